"""Dead letters: why a record has no row, as a code to count and a message to act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

MAX_DEPTH: Final = 50
"""Levels of objects and lists in one value, of every format and for every table. Arrow refuses to hand over types of more
than 63 levels, transforms add some, and Python recurses once or more per level. Fixed, and checked before anything else
looks at a value, so that it has the same outcome wherever it is decoded."""

MAX_CELLS: Final = 1_000_000
"""Cells that the lists of one value may make, or one per byte if it has more: each element takes a cell in every column of
its type. Fixed, as the levels are."""


class Stage(StrEnum):
    """How far a record came before it became a dead letter."""

    DECODE = "decode"
    TRANSFORM = "transform"
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

    RECORD_TOO_LARGE = (
        "RECORD_TOO_LARGE",
        Stage.DECODE,
        "Key, value and headers have more bytes than `limits.max_record_bytes`. The letter has the size and no record.",
        "Raise `limits.max_record_bytes`, then replay the range from Kafka; or have the producer send less.",
    )
    UNREADABLE_BATCH = (
        "UNREADABLE_BATCH",
        Stage.DECODE,
        "The Kafka client can't unpack the batch of records that holds this offset: it is damaged, or too large unpacked.",
        "Raise `receive.message.max.bytes` of the cluster in the settings, then replay the range from Kafka.",
    )
    INVALID_HEADERS = (
        "INVALID_HEADERS",
        Stage.DECODE,
        "The name of a header is not UTF-8, so the headers can't be read. The letter has key and value, and no headers.",
        "Mend the producer. `frazil dead-letters replay` lands such records without their headers.",
    )
    NULL_VALUE = (
        "NULL_VALUE",
        Stage.DECODE,
        "The record has no value (a tombstone), and the pipeline wants those as dead letters, or no key tells which row goes.",
        "Say how keys are decoded (`key`), so that it deletes a row; or `value.null_value: filter`, if it means nothing.",
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
        f"Objects and lists are nested more than {MAX_DEPTH} levels deep. No table has such a shape.",
        "Look at the producer: this is usually an attack or an endless recursion. A document of that depth can travel as a text.",
    )
    TOO_MANY_NAMES = (
        "TOO_MANY_NAMES",
        Stage.DECODE,
        "Records decoded together have more names of fields that nobody declared than transforms can see at once: keys are data.",
        "Declare `value.fields`, keys that are data as a map or a string; then `frazil dead-letters replay`.",
    )
    TOO_WIDE = (
        "TOO_WIDE",
        Stage.DECODE,
        f"Lists or maps would make more than {MAX_CELLS:,} cells, elements times columns of one; or rows of `Explode` more than 128 MiB.",
        "Look at the producer: this is usually an attack. Elements of so many fields can travel as records, or as JSON in a text.",
    )
    DUPLICATE_KEY = (
        "DUPLICATE_KEY",
        Stage.DECODE,
        "An object names a field twice and the pipeline wants such records as dead letters.",
        "Mend the producer, or set `value.duplicate_keys: last`, as most parsers have it.",
    )
    INVALID_WIRE = (
        "INVALID_WIRE",
        Stage.DECODE,
        "Neither before the value nor in its header is the id of a schema, as Schema Registry clients write it; or what Glue's packed can't be unpacked.",
        "Check the serializer of the producer, and `framing` of the registry; a value without an id needs `value.schema_file`.",
    )
    UNKNOWN_SCHEMA = (
        "UNKNOWN_SCHEMA",
        Stage.DECODE,
        "The Schema Registry knows no schema of the id that the value names.",
        "Check that producer and pipeline use the same registry, and that no schema was deleted for good.",
    )
    SCHEMA_NOT_ASKED_FOR = (
        "SCHEMA_NOT_ASKED_FOR",
        Stage.DECODE,
        "Within a minute so many values named ids that the Schema Registry does not know that no other id was asked for.",
        "Find who writes such ids; then `frazil dead-letters replay` brings home those whose id is known.",
    )
    UNUSABLE_SCHEMA = (
        "UNUSABLE_SCHEMA",
        Stage.DECODE,
        "The schema of the value is of another kind than the pipeline's format, invalid, too costly, or has no columns.",
        "Read the message; register a schema that tables have a shape for, or declare the right format.",
    )
    INVALID_AVRO = (
        "INVALID_AVRO",
        Stage.DECODE,
        "The bytes can't have been written with the schema that they name: cut off, too long, or another schema's.",
        "Mend the producer; the message says where reading stopped.",
    )
    INVALID_PROTOBUF = (
        "INVALID_PROTOBUF",
        Stage.DECODE,
        "The bytes are no message of the type that they name.",
        "Mend the producer; a cut value often means a size limit.",
    )
    SCHEMA_VIOLATION = (
        "SCHEMA_VIOLATION",
        Stage.DECODE,
        "The value is JSON, and its own schema forbids it.",
        "Mend the producer: its serializer does not validate. The message names the rule.",
    )
    INVALID_ENVELOPE = (
        "INVALID_ENVELOPE",
        Stage.DECODE,
        'The value is not Kafka Connect\'s `{"schema": …, "payload": …}`, or its payload is not what its schema says.',
        "Check `schemas.enable` of the producer's converter; without schemas the format is `json`.",
    )
    INVALID_DELIMITED = (
        "INVALID_DELIMITED",
        Stage.DECODE,
        "The line has another number of fields than were declared, or a quote that never ends.",
        "Mend the producer, or declare delimiter, quote and fields as they are sent.",
    )
    INVALID_SCALAR = (
        "INVALID_SCALAR",
        Stage.DECODE,
        "The value is not as long as a number of this format: 8 bytes for a long and a double.",
        "Check the serializer of the producer: numbers as text are of format `string`.",
    )
    INVALID_KEY = (
        "INVALID_KEY",
        Stage.DECODE,
        "The key is not what `key` of the pipeline file says. The message names the code that a value would have.",
        "Mend the producer or `key`; leave `key` out if no column and no transform needs it.",
    )
    TRANSFORM_FAILED = (
        "TRANSFORM_FAILED",
        Stage.TRANSFORM,
        "A transform can't do its work on this record.",
        "The message names the transform and what it found; restrict it with `when`, or fix the producer.",
    )
    UNROUTED = (
        "UNROUTED",
        Stage.ROUTE,
        "No destination is for the record: the field or topic that decides has no value, or names none of them.",
        "Name the table under `destinations` and `route`, or say `route.otherwise: filter`.",
    )
    TABLE_NOT_MADE = (
        "TABLE_NOT_MADE",
        Stage.ROUTE,
        "The record names a table that is not there: another one has the name, or all that may be made were; its letter says which.",
        "Rename or drop that table, allow it (`route.create.existing_tables`), or raise `max_new_tables` or `max_tables`; then `frazil dead-letters replay`.",
    )
    UNKNOWN_FIELD = (
        "UNKNOWN_FIELD",
        Stage.CONVERT,
        "The value has a field that no column takes and the pipeline wants such records as dead letters.",
        "Declare a column for it, or set `value.unknown_fields` to `ignore` or `rescue`.",
    )
    NOT_FINITE = (
        "NOT_FINITE",
        Stage.CONVERT,
        "The number is NaN or infinite, and the column holds only numbers that are neither.",
        "Mend the producer or declare the column as double.",
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
        "The field holds another kind of value than the column takes. Text is never cast to a number or back.",
        "Mend the producer, declare the column with the type that is sent, or convert the field by a transform such as `Cast` or `Sql`.",
    )
    OUT_OF_RANGE = (
        "OUT_OF_RANGE",
        Stage.CONVERT,
        "The value is of the right kind and too big for the column's type.",
        "Declare a wider type (long, a larger decimal precision); the message says what a table of ORC files can do.",
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
        "The text is not in the form its type needs: base64 for binary and fixed, 8-4-4-4-12 digits for a uuid. A header is no UTF-8.",
        "Mend the producer or declare the column as string.",
    )
    MISSING_REQUIRED = (
        "MISSING_REQUIRED",
        Stage.CONVERT,
        "A required field is missing or null, and no default is declared.",
        "Declare a default, or make the column optional.",
    )
    TOO_MANY_PARTITIONS = (
        "TOO_MANY_PARTITIONS",
        Stage.CONVERT,
        "The row has a partition value that its table did not get from the task before, and the task has `limits.max_partitions`.",
        "`frazil dead-letters replay` lands as many values again. Raise the limit, or partition by what repeats: `day(column)`.",
    )
    PARTITION_TOO_LONG = (
        "PARTITION_TOO_LONG",
        Stage.CONVERT,
        "Spark writes the table into folders named by partition values, and this value's name has more than 255 bytes.",
        (
            "Set the table properties `write.object-storage.enabled=true` and `write.object-storage.partitioned-paths=false`, or "
            "partition by `truncate(N, column)`; then `frazil dead-letters replay`."
        ),
    )


_STEP_SHOWN: Final = 80
"""Characters of one step of a path: a name may be as long as a record."""


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

    def with_parent(self, step: str) -> Reason:
        """Return the reason with a field name or `[index]` in front of its path."""
        shown = step if len(step) <= _STEP_SHOWN else f"{step[:_STEP_SHOWN]}…"
        joint = "." if self.path and not self.path.startswith("[") else ""
        return Reason(self.code, self.message, f"{shown}{joint}{self.path}")


class Rejection(Exception):
    """Carries a reason to the code that knows the record. Caught within this package."""

    def __init__(self, code: DeadCode, message: str, path: str = "") -> None:
        super().__init__(code, message, path)
        self.reason = Reason(code, message, path)

    def with_parent(self, step: str) -> Rejection:
        """Return the same rejection with a field name or `[index]` in front of its path."""
        outer = self.reason.with_parent(step)
        return Rejection(outer.code, outer.message, outer.path)
