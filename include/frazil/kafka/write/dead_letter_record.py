"""Dead letters as records of a dead-letter topic: the original record, with Kafka Connect's error headers added.

Header names: https://github.com/apache/kafka/blob/trunk/connect/runtime/src/main/java/org/apache/kafka/connect/runtime/errors/DeadLetterQueueReporter.java
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from frazil.batch.position import BatchMark
from frazil.kafka.client.record import Header, OutgoingRecord
from frazil.records.model.dead_letter import Stage

PREFIX: Final = "__connect.errors."
"""How Kafka Connect's headers begin. Their values are UTF-8 texts, numbers included."""

CODE_HEADER: Final = "frazil.code"
BATCH_HEADER: Final = "frazil.batch"
BATCH_ID_HEADER: Final = "frazil.batch.id"
"""Number and id of the batch. A letter that was sent twice has the same ones, and the same origin and destination."""

DESTINATION_HEADER: Final = "frazil.destination"
"""The table that the record does not fit; there is none where the letter is of the record as a whole."""

OMITTED_HEADER: Final = "frazil.omitted.bytes"
"""How many bytes key, value and headers of the record have, where the topic does not take them: the table has them."""

STAGES: Final[Mapping[str, str]] = {
    Stage.DECODE: "VALUE_CONVERTER",
    Stage.TRANSFORM: "TRANSFORMATION",
    Stage.CONVERT: "TASK_PUT",
    Stage.ROUTE: "TASK_PUT",
}
"""Stage -> what Kafka Connect calls it. What does not fit a table's columns fails there in the sink's `put`."""

_MICROSECONDS: Final = 1_000
"""In a millisecond, the unit of Kafka's timestamps."""

_CLASS: Final = "frazil.records.decoder.decode.Decoder"
"""The class at work. Kafka Connect has a converter's or a transform's here."""


def letter_records(letters: pa.RecordBatch, pipeline: str, batch: BatchMark) -> Iterator[OutgoingRecord]:
    """Records of a dead-letter topic.

    Key, value and timestamp are those of the record; so are the first headers, whatever their names. A record that fails
    for the second time, in another pipeline, thus has the headers of both failures, the newer ones last.
    """
    stamps = letters.column("timestamp").cast(pa.int64()).to_pylist()  # Python knows no years beyond 9999
    for row, stamp in zip(letters.drop_columns("timestamp").to_pylist(), stamps, strict=True):
        headers = tuple((header["key"] or "", header["value"]) for header in row["headers"] or ())
        yield OutgoingRecord(
            row["key"], row["value"], (*headers, *_failure_headers(row, pipeline, batch)), _milliseconds(stamp)
        )


def without_record(letter: OutgoingRecord) -> OutgoingRecord:
    """Return the letter with its record's coordinates and reason, but without the record's key, value and headers."""
    own = max(place for place, (name, _) in enumerate(letter.headers) if name == f"{PREFIX}topic")
    headers = (*letter.headers[own:], (OMITTED_HEADER, str(letter.size).encode()))
    return replace(letter, key=None, value=None, headers=headers)


def origin(letter: OutgoingRecord) -> str:
    """Return the coordinates of a letter's record, for messages. Where a header repeats, the last one is Frazil's."""
    headers = {
        name: (value or b"").decode(errors="replace") for name, value in letter.headers if name.startswith(PREFIX)
    }
    return ", ".join(f"{what} {headers[PREFIX + what]}" for what in ("topic", "partition", "offset"))


def _failure_headers(row: Mapping[str, Any], pipeline: str, batch: BatchMark) -> Iterator[Header]:
    headers = {
        f"{PREFIX}topic": row["topic"],
        f"{PREFIX}partition": row["partition"],
        f"{PREFIX}offset": row["offset"],
        f"{PREFIX}connector.name": pipeline,
        f"{PREFIX}task.id": 0,
        f"{PREFIX}stage": STAGES[row["stage"]],
        f"{PREFIX}class.name": _CLASS,
        f"{PREFIX}exception.class.name": f"frazil.{row['code']}",
        f"{PREFIX}exception.message": row["message"],
        CODE_HEADER: row["code"],
        BATCH_HEADER: batch.n,
        BATCH_ID_HEADER: batch.batch,
    }
    if (destination := row.get("destination")) is not None:
        headers[DESTINATION_HEADER] = destination
    return ((name, str(value).encode()) for name, value in headers.items())


def _milliseconds(microseconds: int | None) -> int | None:
    """The timestamp in milliseconds; None if the record has none that can be sent."""
    return microseconds // _MICROSECONDS if microseconds is not None and microseconds >= _MICROSECONDS else None
