"""Transforms that give records another topic to be routed by. Position, Kafka columns and dead letters keep the original."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records.model.dead_letter import Reason
from frazil.records.model.frame import Frame, Transformed
from frazil.records.transforms.fields import describe_value, failure, select
from frazil.records.transforms.patterns import WholeMatch
from frazil.records.transforms.values.java_dates import DatePattern

_REFERENCE: Final = re.compile(
    r"\\(?P<literal>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|[\\$]", re.DOTALL
)
_VARIABLE: Final = re.compile(r"\$\{(topic|timestamp)\}")


@dataclass(frozen=True, slots=True)
class RegexRouter:
    r"""Replaces topics that an expression matches from end to end; others stay.

    Attributes:
        regex: The expression, as Java spells it.
        replacement: The new topic: `$1` or `${name}` is what a group matched, `\$` a dollar.

    Raises:
        Terminal: not an expression, or the replacement names a group that it does not have.
    """

    regex: str
    replacement: str

    def __post_init__(self) -> None:
        pattern = WholeMatch(self.regex)
        pattern.replaced(pa.array([], pa.string()), _replacement(pattern, self.replacement))

    def apply(self, frame: Frame) -> Transformed:
        """Replace the topics; a topic of no characters fails."""
        pattern = WholeMatch(self.regex)
        topics = frame.topic.dictionary_encode()
        routed = pattern.replaced(topics.dictionary, _replacement(pattern, self.replacement))
        return _with_topics(frame, routed.take(topics.indices), "RegexRouter")


@dataclass(frozen=True, slots=True)
class TimestampRouter:
    """Puts the time of the record, in UTC, into the topic. A record without timestamp, or outside of years 1 to 9999, fails.

    Attributes:
        topic_format: The new topic, with `${topic}` and `${timestamp}`.
        timestamp_format: A pattern of Java's SimpleDateFormat, as `DatePattern` reads it.

    Raises:
        Terminal: the pattern is not known here, or the topic has neither variable.
    """

    topic_format: str = "${topic}-${timestamp}"
    timestamp_format: str = "yyyyMMdd"

    def __post_init__(self) -> None:
        DatePattern(self.timestamp_format)
        if not _VARIABLE.search(self.topic_format):
            raise BAD_TRANSFORM.terminal(
                f"TimestampRouter: {self.topic_format!r} has neither ${{topic}} nor ${{timestamp}}",
                next_step="write topic.format with them, or use RegexRouter",
            )

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
    """Return a replacement as texts and numbers of groups; a number has as many digits as there are groups for (Java)."""
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
        next_step=r"refer to a group that is there; a dollar or backslash itself is written \$ or \\",
    )


def _with_topics(
    frame: Frame, topics: pa.StringArray, transform: str, failed: dict[int, Reason] | None = None
) -> Transformed:
    reasons = failed or {}
    for row in pc.indices_nonzero(pc.equal(topics, "")).to_pylist():
        original = describe_value(frame.topic[row].as_py())
        reasons[row] = failure(f"{transform}: expected a topic, found that {original} becomes an empty name")
    return select(replace(frame, topic=topics), failed=reasons)
