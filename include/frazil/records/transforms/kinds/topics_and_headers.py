"""Transforms of headers, and of the topic that routes use. Position, Kafka columns and dead letters keep the original topic."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import Frame, Transformed
from frazil.records.transforms.definition import KAFKA, ConnectClass, TransformDefinition, option, target_option
from frazil.records.transforms.fields import (
    Target,
    WholeMatch,
    batch_of,
    columns_of,
    describe_value,
    failure,
    fields_of,
    no_field_message,
    reject_all,
    select,
    with_fields,
)
from frazil.records.transforms.java_dates import DatePattern


@dataclass(frozen=True, slots=True)
class HeaderFrom(TransformDefinition):
    """Copies or moves fields into headers.

    The headers are appended. A text becomes its bytes in UTF-8, binary stays unchanged, numbers and times become text, structs and
    lists JSON; null becomes a header without value. Records without one of the fields fail.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}HeaderFrom")
    reads: ClassVar = ("fields",)

    fields: tuple[str, ...] = option("The fields.", form="names", min_length=1)
    headers: tuple[str, ...] = option("Names of their headers, in the same order.", form="names", min_length=1)
    operation: Literal["move", "copy"] = option("`move` removes the fields, `copy` keeps them.")
    target: Target = target_option()

    def __post_init__(self) -> None:
        if len(self.fields) != len(self.headers):
            raise ValueError(f"{len(self.fields)} fields can't become {len(self.headers)} headers")

    def apply(self, frame: Frame) -> Transformed:
        """Add the headers."""
        from frazil.records.transforms.header_lists import append_header
        from frazil.records.transforms.java_casts import header_bytes

        fields = fields_of(frame, self.target)
        names = fields.schema.names
        headers = frame.headers
        for name, header in zip(self.fields, self.headers, strict=True):
            if name not in names:
                return reject_all(frame, no_field_message("HeaderFrom", name, fields), name)
            headers = append_header(headers, header, header_bytes(fields.column(name)))
        changed = replace(frame, headers=headers)
        if self.operation == "copy":
            return Transformed(changed)
        remaining = [(column, values) for column, values in columns_of(fields) if column.name not in self.fields]
        return Transformed(with_fields(changed, self.target, batch_of(remaining, len(frame), like=fields)))


@dataclass(frozen=True, slots=True)
class InsertHeader(TransformDefinition):
    """Appends a header with a fixed text."""

    connect_class: ClassVar = ConnectClass(f"{KAFKA}InsertHeader")
    uses_fields: ClassVar = False

    header: str = option("Name of the header.", min_length=1)
    value_literal: str = option("Its text.", key="value.literal")

    def apply(self, frame: Frame) -> Transformed:
        """Add the header."""
        from frazil.records.transforms.header_lists import append_header

        values = pa.repeat(pa.scalar(self.value_literal.encode(), pa.binary()), len(frame))
        return Transformed(replace(frame, headers=append_header(frame.headers, self.header, values)))


@dataclass(frozen=True, slots=True)
class DropHeaders(TransformDefinition):
    """Removes headers.

    A record without them stays unchanged.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}DropHeaders")
    uses_fields: ClassVar = False

    headers: tuple[str, ...] = option("Names of the headers.", form="names", min_length=1)

    def apply(self, frame: Frame) -> Transformed:
        """Remove the headers."""
        from frazil.records.transforms.header_lists import drop_headers

        return Transformed(replace(frame, headers=drop_headers(frame.headers, self.headers)))


_REFERENCE: Final = re.compile(
    r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|[\\$]", re.DOTALL
)
_VARIABLE: Final = re.compile(r"\$\{(topic|timestamp)\}")


@dataclass(frozen=True, slots=True)
class RegexRouter(TransformDefinition):
    """Replaces topics that match an expression, for routing; Kafka columns and dead letters keep the original."""

    connect_class: ClassVar = ConnectClass(f"{KAFKA}RegexRouter")
    uses_fields: ClassVar = False

    regex: str = option(
        "Regular expression of RE2 that matches the whole topic; named groups as Java spells them.", form="expression"
    )
    replacement: str = option("The new topic; `$1` or `${name}` stands for the text that a group matched.")

    def prepare(self) -> None:
        """Refuse an expression that RE2 does not support, and a replacement with a group that does not exist."""
        pattern = WholeMatch(self.regex)
        pattern.replace(pa.array([], pa.string()), _replacement(pattern, self.replacement))

    def apply(self, frame: Frame) -> Transformed:
        """Replace the topics. A record whose topic becomes empty fails."""
        pattern = WholeMatch(self.regex)
        topics = frame.topic.dictionary_encode()
        routed = pattern.replace(topics.dictionary, _replacement(pattern, self.replacement))
        return _with_topics(frame, routed.take(topics.indices), "RegexRouter")


def _require_variable(text: str) -> str:
    if not _VARIABLE.search(text):
        raise ValueError("has neither ${topic} nor ${timestamp}")
    return text


@dataclass(frozen=True, slots=True)
class TimestampRouter(TransformDefinition):
    """Puts the time of the record into the topic, for routing.

    The time is in UTC. A record fails without a timestamp, or if that is outside of the years 1 to 9999.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}TimestampRouter")
    uses_fields: ClassVar = False

    topic_format: str = option(
        "The new topic, with `${topic}` and `${timestamp}`.",
        "${topic}-${timestamp}",
        key="topic.format",
        check=_require_variable,
    )
    timestamp_format: str = option(
        "Pattern of Java's SimpleDateFormat, in UTC.", "yyyyMMdd", key="timestamp.format", min_length=1
    )

    def prepare(self) -> None:
        """Refuse a pattern that `DatePattern` does not support."""
        DatePattern(self.timestamp_format)

    def apply(self, frame: Frame) -> Transformed:
        """Replace the topics."""
        micros = frame.records.column("timestamp").cast(pa.int64())
        times = DatePattern(self.timestamp_format).write(micros)
        # A split by an expression with a group gives text, variable, text, variable, … in turn.
        pieces = [
            {"topic": frame.topic, "timestamp": times}[piece] if index % 2 else pa.scalar(piece)
            for index, piece in enumerate(_VARIABLE.split(self.topic_format))
        ]
        reason = failure("TimestampRouter: expected a timestamp of years 1 to 9999, found none or another one")
        failed = dict.fromkeys(pc.indices_nonzero(times.is_null()).to_pylist(), reason)
        return _with_topics(frame, pc.binary_join_element_wise(*pieces, ""), "TimestampRouter", failed)


def _replacement(pattern: WholeMatch, text: str) -> list[str | int]:
    """Parse a replacement into texts and group numbers. As in Java, `$12` is group 12 if that exists, else group 1 and a 2."""
    pieces: list[str | int] = []
    position = 0
    for match in _REFERENCE.finditer(text):
        pieces.append(text[position : match.start()])
        position = match.end()
        if match["literal"] is not None:
            pieces.append(match["literal"])
        elif match["number"] is not None:
            pieces += _group_reference(pattern, match["number"])
        elif match["name"] in pattern.names:
            pieces.append(pattern.names[match["name"]])
        else:
            raise _no_group(match[0], pattern)
    return [*pieces, text[position:]]


def _group_reference(pattern: WholeMatch, digits: str) -> tuple[int, str]:
    number, digit_count = int(digits[0]), 1
    while digit_count < len(digits) and number * 10 + int(digits[digit_count]) <= pattern.groups:
        number, digit_count = number * 10 + int(digits[digit_count]), digit_count + 1
    if number > pattern.groups:
        raise _no_group(f"${digits}", pattern)
    return number, digits[digit_count:]


def _no_group(reference: str, pattern: WholeMatch) -> Terminal:
    return BAD_TRANSFORM.terminal(
        f"RegexRouter: the replacement refers to {reference}, and {pattern.pattern!r} has {pattern.groups} groups"
        f" ({', '.join(pattern.names) or 'none with a name'})",
        next_step=r"refer to a group that exists; a dollar or backslash itself is written \$ or \\",
    )


def _with_topics(
    frame: Frame, topics: pa.StringArray, transform: str, failed: dict[int, Reason] | None = None
) -> Transformed:
    reasons = failed or {}
    for row in pc.indices_nonzero(pc.equal(topics, "")).to_pylist():
        original = describe_value(frame.topic[row].as_py())
        reasons[row] = failure(f"{transform}: expected a topic, found that {original} becomes an empty name")
    return select(replace(frame, topic=topics), failed=reasons)
