"""Dead letters: why a record has no row, as a code to count and a message to act on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

MAX_DEPTH: Final = 50
"""Most levels of objects and lists in one value, of every format and for every table. Arrow refuses to hand over types of more
than 63 levels, transforms add some, and Python recurses once or more per level. It is fixed, and checked before anything else, so
that a value has the same outcome wherever it is decoded."""

MAX_CELLS: Final = 1_000_000
"""Most cells that the lists of one value make, or one per byte if it has more bytes: each element takes a cell in every column of
its type. It is fixed for the same reason."""


class Stage(StrEnum):
    """How far a record came before it became a dead letter."""

    DECODE = "decode"
    TRANSFORM = "transform"
    CONVERT = "convert"
    ROUTE = "route"


class DeadCode(StrEnum):
    """The kind of reason of a dead letter, with its `stage`, its `meaning` and its `remedy`."""

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
        "Key, value and headers have more bytes than `limits.max_record_bytes`. The dead letter has the size, not the record.",
        "Raise `limits.max_record_bytes`, then replay the range from Kafka; or let the producer send less.",
    )
    UNREADABLE_BATCH = (
        "UNREADABLE_BATCH",
        Stage.DECODE,
        "The Kafka client can't unpack the batch of records that holds this offset: it is damaged, or too large after unpacking.",
        "Raise `receive.message.max.bytes` of the cluster in the settings, then replay the range from Kafka.",
    )
    INVALID_HEADERS = (
        "INVALID_HEADERS",
        Stage.DECODE,
        "The name of a header is not UTF-8, so the headers can't be read. The dead letter has key and value, but no headers.",
        "Correct the producer. `frazil dead-letters replay` lands such records without their headers.",
    )
    NULL_VALUE = (
        "NULL_VALUE",
        Stage.DECODE,
        "The record has no value (a tombstone). The pipeline makes those dead letters, or no key shows which row to delete.",
        "Declare how to decode keys (`key`), so that the tombstone deletes a row. Or drop tombstones: `value.null_value: filter`.",
    )
    EMPTY_VALUE = (
        "EMPTY_VALUE",
        Stage.DECODE,
        "The value is not null but has no bytes. That is neither a JSON document nor a tombstone.",
        "Correct the producer: it should send null for a tombstone, `{}` for an object without fields.",
    )
    INVALID_UTF8 = (
        "INVALID_UTF8",
        Stage.DECODE,
        "The value is not UTF-8, as RFC 8259 requires of JSON. Frazil does not guess encodings, because that corrupts text.",
        "Correct the producer's encoding; the message names the first bad byte.",
    )
    INVALID_JSON = (
        "INVALID_JSON",
        Stage.DECODE,
        ("The value is not exactly one JSON document of RFC 8259: cut off, garbled, or followed by something else."),
        "Check the position in the message; a value that was cut off often means a size limit in the producer.",
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
        f"Objects and lists are nested more than {MAX_DEPTH} levels deep.",
        "Check the producer: this is usually an attack or an endless recursion. Such a document can be sent as a JSON text in a field.",
    )
    TOO_MANY_NAMES = (
        "TOO_MANY_NAMES",
        Stage.DECODE,
        "Records decoded together have more undeclared field names than transforms can handle. Usually keys hold data, such as ids.",
        "Declare `value.fields`, with a map or a string where keys hold data; then `frazil dead-letters replay`.",
    )
    TOO_WIDE = (
        "TOO_WIDE",
        Stage.DECODE,
        f"Lists or maps of the value need more than {MAX_CELLS:,} cells (elements times columns), or rows of `Explode` more than 128 MiB.",
        "Check the producer: this is usually an attack. Large elements can be sent as records of their own, or as a JSON text in a field.",
    )
    DUPLICATE_KEY = (
        "DUPLICATE_KEY",
        Stage.DECODE,
        "An object has a field twice, and the pipeline makes such records dead letters.",
        "Correct the producer, or set `value.duplicate_keys: last`, as most parsers do.",
    )
    INVALID_WIRE = (
        "INVALID_WIRE",
        Stage.DECODE,
        "Neither the value nor its header begins with a schema id as Schema Registry clients write it; or a value packed by AWS Glue can't be unpacked.",
        "Check the producer's serializer, and `framing` of the registry; values without an id need `value.schema_file`.",
    )
    UNKNOWN_SCHEMA = (
        "UNKNOWN_SCHEMA",
        Stage.DECODE,
        "The Schema Registry has no schema with the id that the value names.",
        "Check that producer and pipeline use the same registry, and that no schema was deleted for good.",
    )
    SCHEMA_NOT_ASKED_FOR = (
        "SCHEMA_NOT_ASKED_FOR",
        Stage.DECODE,
        "Too many values named schema ids that the Schema Registry does not have. Frazil looked up no further unknown ids for a minute.",
        "Find the producer of such ids. Then `frazil dead-letters replay` lands the records whose schema exists.",
    )
    UNUSABLE_SCHEMA = (
        "UNUSABLE_SCHEMA",
        Stage.DECODE,
        "The value's schema is invalid, too costly, without columns, or of another kind than the pipeline's format.",
        "Read the message; register a schema that fits a table, or declare the right format.",
    )
    INVALID_AVRO = (
        "INVALID_AVRO",
        Stage.DECODE,
        "The bytes don't fit the schema that they name: they are cut off, too long, or were written with another schema.",
        "Correct the producer; the message shows where reading stopped.",
    )
    INVALID_PROTOBUF = (
        "INVALID_PROTOBUF",
        Stage.DECODE,
        "The bytes are not a message of the type that they name.",
        "Correct the producer; a value that was cut off often means a size limit.",
    )
    SCHEMA_VIOLATION = (
        "SCHEMA_VIOLATION",
        Stage.DECODE,
        "The value is JSON that breaks a rule of its own schema.",
        "Correct the producer: its serializer does not validate. The message names the rule.",
    )
    INVALID_ENVELOPE = (
        "INVALID_ENVELOPE",
        Stage.DECODE,
        'The value is not Kafka Connect\'s `{"schema": …, "payload": …}`, or its payload does not fit its schema.',
        "Check `schemas.enable` of the producer's converter; without schemas the format is `json`.",
    )
    INVALID_DELIMITED = (
        "INVALID_DELIMITED",
        Stage.DECODE,
        "The line has more or fewer fields than declared, or a quote that never ends.",
        "Correct the producer, or declare delimiter, quote and fields as they are sent.",
    )
    INVALID_SCALAR = (
        "INVALID_SCALAR",
        Stage.DECODE,
        "The value does not have the length of this format: a long and a double have 8 bytes.",
        "Check the producer's serializer; numbers sent as text need the format `string`.",
    )
    INVALID_KEY = (
        "INVALID_KEY",
        Stage.DECODE,
        "The key does not fit `key` of the pipeline file. The message names the code that a value would have.",
        "Correct the producer or `key`; remove `key` if no column and no transform needs it.",
    )
    TRANSFORM_FAILED = (
        "TRANSFORM_FAILED",
        Stage.TRANSFORM,
        "A transform failed on this record.",
        "The message names the transform and the value; restrict it with `when`, or correct the producer.",
    )
    UNROUTED = (
        "UNROUTED",
        Stage.ROUTE,
        "The record has no destination: the field or topic that decides has no value, or names no destination.",
        "Name the table under `destinations` and `route`, or set `route.otherwise: filter`.",
    )
    TABLE_NOT_MADE = (
        "TABLE_NOT_MADE",
        Stage.ROUTE,
        "The record names a new table that was not created: its name is taken, or a limit is reached. The message shows which.",
        "Rename or drop that table, allow it (`route.create.existing_tables`), or raise `max_new_tables` or `max_tables`; then `frazil dead-letters replay`.",
    )
    UNKNOWN_FIELD = (
        "UNKNOWN_FIELD",
        Stage.CONVERT,
        "The value has a field without a column, and the pipeline makes such records dead letters.",
        "Declare a column for it, or set `value.unknown_fields` to `ignore` or `rescue`.",
    )
    NOT_FINITE = (
        "NOT_FINITE",
        Stage.CONVERT,
        "The number is NaN or infinite, and the column's type has no such numbers.",
        "Correct the producer, or declare the column as double.",
    )
    LONE_SURROGATE = (
        "LONE_SURROGATE",
        Stage.CONVERT,
        r"A text has half of a surrogate pair (such as `\ud800`). That is not a character and can't be stored as UTF-8.",
        "Correct the producer: it cut a text in the middle of a character.",
    )
    WRONG_TYPE = (
        "WRONG_TYPE",
        Stage.CONVERT,
        "The field's value is of another kind than the column accepts. Frazil never casts text to a number or back.",
        "Correct the producer, declare the column with the type that is sent, or convert the field with a transform such as `Cast` or `Sql`.",
    )
    OUT_OF_RANGE = (
        "OUT_OF_RANGE",
        Stage.CONVERT,
        "The value is of the right kind, but too large for the column's type.",
        "Declare a wider type (long, a larger decimal precision). For a table of ORC files the message has the limits.",
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
        "The text does not have the form of its type: base64 for binary and fixed, 8-4-4-4-12 digits for a uuid. Or a header is not UTF-8.",
        "Correct the producer, or declare the column as string.",
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
        "The row has a new partition value, and its task already wrote `limits.max_partitions` values to the table.",
        "`frazil dead-letters replay` lands as many values again. Raise the limit, or partition by a value that repeats: `day(column)`.",
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
"""Most characters of one step of a path: a name may be as long as a record."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one record can't become a row.

    Attributes:
        code: The kind of reason.
        message: What was expected and what was found.
        path: Path of the field in the value, such as `items[3].price`; empty for the value as a whole.
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
    """Carries a reason to the code that knows the record, within `frazil.records`."""

    def __init__(self, code: DeadCode, message: str, path: str = "") -> None:
        super().__init__(code, message, path)
        self.reason = Reason(code, message, path)

    def with_parent(self, step: str) -> Rejection:
        """Return the same rejection with a field name or `[index]` in front of its path."""
        outer = self.reason.with_parent(step)
        return Rejection(outer.code, outer.message, outer.path)
