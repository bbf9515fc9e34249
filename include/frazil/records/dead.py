"""Dead letters: why a record has no row, as a code to count and a message to act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

import pyarrow as pa

from frazil.records.kafka import KAFKA_SCHEMA


class Stage(StrEnum):
    """How far a record came before it became a dead letter."""

    DECODE = "decode"
    CONVERT = "convert"
    ROUTE = "route"


class DeadCode(StrEnum):
    """The reason of a dead letter. Each code knows its `stage`, its `meaning` and the `remedy`."""

    stage: Stage
    meaning: str
    remedy: str

    def __new__(cls, code: str, stage: Stage, meaning: str, remedy: str) -> Self:
        """Make a member whose value is `code`, so that it is stored and compared as plain text."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.stage = stage
        member.meaning = meaning
        member.remedy = remedy
        return member

    NULL_VALUE = (
        "NULL_VALUE",
        Stage.DECODE,
        "The record has no value (a tombstone) and the pipeline wants tombstones as dead letters.",
        "Set `value.null_value: filter` if such records mean nothing here.",
    )
    EMPTY_VALUE = (
        "EMPTY_VALUE",
        Stage.DECODE,
        ("The value is there and has no bytes. Nothing is not a JSON document, and it is not a tombstone either."),
        "Mend the producer: null for a tombstone, `{}` for an object without fields.",
    )
    INVALID_UTF8 = (
        "INVALID_UTF8",
        Stage.DECODE,
        ("The value is not UTF-8, which RFC 8259 asks of JSON that is exchanged. Guessing an encoding corrupts text."),
        "Mend the producer's encoding; the message names the first bad byte.",
    )
    INVALID_JSON = (
        "INVALID_JSON",
        Stage.DECODE,
        ("The value is not exactly one JSON document of RFC 8259: cut off, garbled, or followed by something else."),
        ("Look at the position in the message; a cut value often means a size limit in the producer."),
    )
    NOT_AN_OBJECT = (
        "NOT_AN_OBJECT",
        Stage.DECODE,
        "The value is JSON, but not an object, so it has no fields to take columns from.",
        "Check that the pipeline reads the right topic and value format.",
    )
    TOO_DEEP = (
        "TOO_DEEP",
        Stage.DECODE,
        "Objects and lists are nested deeper than can be read safely. No table has such a shape.",
        "Look at the producer: this is usually an attack or an endless recursion.",
    )
    LONE_SURROGATE = (
        "LONE_SURROGATE",
        Stage.CONVERT,
        (
            r"A text holds half of a surrogate pair (such as `\ud800`). It is no character and "
            "can't be stored as UTF-8."
        ),
        "Mend the producer: it cut a text in the middle of a character.",
    )
    WRONG_TYPE = (
        "WRONG_TYPE",
        Stage.CONVERT,
        ("The field holds another kind of JSON value than the column takes. Text is never cast to a number or back."),
        "Mend the producer or declare the column with the type that is sent.",
    )
    OUT_OF_RANGE = (
        "OUT_OF_RANGE",
        Stage.CONVERT,
        "The value is of the right kind and too big for the column's type.",
        "Declare a wider type (long, a larger decimal precision).",
    )
    LOSSY_CAST = (
        "LOSSY_CAST",
        Stage.CONVERT,
        ("The value has digits that the column can't hold: 1.5 into an integer, nanoseconds into microseconds."),
        ("Declare a type that holds them (decimal with more scale, double), or round in the producer."),
    )
    INVALID_TIME = (
        "INVALID_TIME",
        Stage.CONVERT,
        ("The text is not a date, a time or a timestamp in a form Frazil reads, or names a day that does not exist."),
        "Send `YYYY-MM-DD`, `HH:MM:SS` or RFC 3339, or declare the column as string.",
    )
    INVALID_TEXT = (
        "INVALID_TEXT",
        Stage.CONVERT,
        ("The text is not in the form its type needs: base64 for binary and fixed, 8-4-4-4-12 digits for a uuid."),
        "Mend the producer or declare the column as string.",
    )
    MISSING_REQUIRED = (
        "MISSING_REQUIRED",
        Stage.CONVERT,
        "A required field is missing or null, and no default is declared.",
        "Declare a default, or make the column optional.",
    )
    DEAD_BEFORE = (
        "DEAD_BEFORE",
        Stage.CONVERT,
        (
            "The letter was lost with its table and put back by `frazil settle --restage`. It was a letter when its batch "
            "landed; the pipeline file was edited since, and the record is good now."
        ),
        "Replay its offsets (`frazil replay`): it becomes a row, and the letter goes.",
    )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one record can't become a row.

    Attributes:
        code: The kind of reason.
        message: What was expected and what was found.
        path: Where in the value, such as `items[3].price`; empty for the value as a whole.
    """

    code: DeadCode
    message: str
    path: str = ""

    def within(self, step: str) -> Reason:
        """Return the reason seen from one level further out, behind a field name or `[index]`."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Reason(self.code, self.message, f"{step}{joint}{self.path}")


class Rejection(Exception):
    """Carries a reason to where the record is known. Never leaves this room."""

    def __init__(self, code: DeadCode, message: str, path: str = "") -> None:
        super().__init__(code, message, path)
        self.reason = Reason(code, message, path)

    def within(self, step: str) -> Rejection:
        """Return the same verdict with its path seen from one level further out."""
        outer = self.reason.within(step)
        return Rejection(outer.code, outer.message, outer.path)


DEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("code", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        *(KAFKA_SCHEMA.field(name) for name in ("key", "value", "headers", "topic", "partition", "offset")),
        KAFKA_SCHEMA.field("timestamp"),
    ]
)
"""One row per dead letter: the reason, then the record as it came, bytes untouched. The writer adds
the batch number."""


def dead_letters(records: pa.RecordBatch, reasons: list[Reason]) -> pa.RecordBatch:
    """Return rows of `DEAD_SCHEMA` for `records` (of `KAFKA_SCHEMA`) and their reasons."""
    said = {
        "code": [reason.code.value for reason in reasons],
        "stage": [reason.code.stage.value for reason in reasons],
        "message": [_storable(f"{r.path}: {r.message}" if r.path else r.message) for r in reasons],
        "path": [_storable(reason.path) or None for reason in reasons],
    }
    columns = [
        pa.array(said[field.name], field.type) if field.name in said else records.column(field.name)
        for field in DEAD_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_SCHEMA)


def _storable(text: str) -> str:
    # A found text may hold half a surrogate pair; a message about it must still be UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
