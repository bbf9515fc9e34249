"""Reads the control topic of Kafka Connect's Iceberg sink: which files were announced for which table.

A value has the form of Iceberg's `AvroEncoderUtil`: the bytes C2 01, the length of the writer's schema (2 bytes), the schema as
JSON, the datum. The schema refers from inside a name space to a type without one, which only Java resolves. So all names lose
their name spaces before the schema is used. Sinks before 0.6.13 have other names for the fields.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import fastavro

from frazil.connect.control import FilesWritten
from frazil.error_codes import KAFKA_NAME_IN_USE, TOPIC_UNFIT
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import WHOLE, read_range

_MAGIC: Final = b"\xc2\x01"
_DATA_WRITTEN: Final = 1
"""Type of the events that announce files, in every release: `DATA_WRITTEN`, formerly `COMMIT_RESPONSE`."""

_NAMED_TYPES: Final = ("record", "enum", "fixed")


class UnreadableEvent(ValueError):
    """The value is no event of the sink."""


def announced_files(cluster: Cluster, topic: str) -> tuple[dict[int, tuple[int, int]], tuple[FilesWritten, ...]]:
    """Read all events of a control topic that announce files, of all connectors that share it.

    Returns:
        Partition -> its log start and its stable end; and the events by partition and offset.

    Raises:
        Terminal: The topic does not exist, may not be read, or has a record that is no event of the sink.
        Retryable: No broker answers, or a transaction is open.
    """
    events: list[FilesWritten] = []
    bounds: dict[int, tuple[int, int]] = {}
    for number, partition in enumerate(observe(cluster, [topic]).topics[topic].partitions):
        if partition.stable_end < partition.high_watermark:
            raise KAFKA_NAME_IN_USE.retryable(
                f"{cluster}, topic {topic!r}, partition {number}: a transaction is open at offset {partition.stable_end}",
                next_step="wait a minute: Kafka ends the transaction of a stopped task after its timeout",
            )
        bounds[number] = partition.log_start, partition.stable_end
        events += _events(cluster, topic, number, *bounds[number])
    return bounds, tuple(events)


def _events(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> Iterator[FilesWritten]:
    for batch in read_range(cluster, topic, partition, start, end, WHOLE):
        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True):
            try:
                event = decode_event(partition, offset, value)
            except UnreadableEvent as error:
                raise TOPIC_UNFIT.terminal(
                    f"{cluster}, topic {topic!r}, partition {partition}, offset {offset}: {error}",
                    next_step="name the connector's own control topic: iceberg.control.topic",
                ) from error
            if event is not None:
                yield event


def decode_event(partition: int, offset: int, value: bytes | None) -> FilesWritten | None:
    """The event of a value; None if it announces no files.

    Raises:
        UnreadableEvent: The value is no event of the sink.
    """
    if value is None or value[:2] != _MAGIC or len(value) < 4:  # noqa: PLR2004 - the schema's length follows
        raise UnreadableEvent("not an event of the Iceberg sink")
    (length,) = struct.unpack(">H", value[2:4])
    try:
        schema = _without_name_spaces(json.loads(value[4 : 4 + length].decode()))
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[4 + length :]), schema, None)
        return _files_written(partition, offset, event)
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError, OverflowError) as error:
        raise UnreadableEvent(f"an event that can't be read: {type(error).__name__}: {error}") from error


def _files_written(partition: int, offset: int, event: Any) -> FilesWritten | None:
    if event["type"] != _DATA_WRITTEN:
        return None
    payload = event["payload"]
    table = payload["table_reference"] if "table_reference" in payload else _first(payload, "table_name", "tableName")
    files = sum(
        len(_first(payload, *names) or ()) for names in (("data_files", "dataFiles"), ("delete_files", "deleteFiles"))
    )
    name = ".".join([*table["namespace"], table["name"]])
    return FilesWritten(partition, offset, str(_first(event, "group_id", "groupId")), name, files)


def _first(record: Any, *names: str) -> Any:
    return next(record[name] for name in names if name in record)


def _without_name_spaces(schema: Any) -> Any:
    """A writer's schema whose types have no name spaces; also without logical types, which nothing here needs."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2]
    if isinstance(schema, list):
        return [_without_name_spaces(branch) for branch in schema]
    plain = {key: part for key, part in schema.items() if key not in ("namespace", "logicalType", "aliases")}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _without_name_spaces(plain[key])
    if "fields" in plain:
        plain["fields"] = [
            {"name": field["name"], "type": _without_name_spaces(field["type"])} for field in plain["fields"]
        ]
    if schema.get("type") in _NAMED_TYPES and "name" in plain:
        plain["name"] = str(plain["name"]).rpartition(".")[2]
    return plain
