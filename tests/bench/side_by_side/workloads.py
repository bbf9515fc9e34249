"""What is landed: records of a given shape, the table that takes them, and the pipeline that says how.

Records are made of a pool of different ones that is sent again and again: making 20 million of them would take longer than
landing them. Each time a record is sent it gets a number and an instant that no other has, as ids and times are in real topics: a
column of repeated values would be a small dictionary.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import fastavro

from tests.bench.side_by_side.avro import ORDER_SCHEMA, registered_avro

POOL: Final = 50_000
"""Records of a workload that differ in more than number and instant."""

FIRST: Final = 10_000_000_000
"""Number of the first record. Ten million million records later it still has as many digits, and bytes in Avro."""

BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)
_EPOCH_MILLISECONDS: Final = int(BEGIN.timestamp()) * 1000
_DAY_MILLISECONDS: Final = 86_400_000
_STEP_MILLISECONDS: Final = 7_919_777
"""From record to record, around the day: without a common factor, so each millisecond comes once."""


Records = Callable[[int], bytes]
"""The record of a number, for as many numbers as are wanted."""


def _records(pool: list[bytes], number: Callable[[int], bytes], instant: Callable[[int], bytes]) -> Records:
    """Make records without an end: the `n`-th is one of a pool with a number and an instant of its own.

    Args:
        pool: Encoded records whose number is `FIRST` and whose instant is `BEGIN`, if they have one.
        number: Encodes a number.
        instant: Encodes an instant, in milliseconds since `BEGIN`.
    """

    def record(n: int) -> bytes:
        value = pool[n % len(pool)].replace(number(FIRST), number(FIRST + n))
        return value.replace(instant(0), instant(n * _STEP_MILLISECONDS % _DAY_MILLISECONDS))

    return record


def _json_long(number: int) -> bytes:
    return b"%d" % number


_SECONDS: Final = [(BEGIN + timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%S.").encode() for n in range(86_400)]


def _json_instant(milliseconds: int) -> bytes:
    return b"%b%03dZ" % (_SECONDS[milliseconds // 1000], milliseconds % 1000)


def _avro_long(number: int) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, {"type": "long"}, number)
    return buffer.getvalue()


@dataclass(frozen=True)
class Workload:
    """A shape of records.

    Attributes:
        name: Of the topic, and of the table in the namespace `bench`.
        said: In words, for reports.
        partitions: Of the topic.
        columns: Of the table, as in a pipeline file.
        make: Makes a record, as JSON has it; its number is `FIRST`, its instant `BEGIN`, if it has one.
        schema: Of Avro; records without are JSON.
    """

    name: str
    said: str
    partitions: int
    columns: dict[str, Any]
    make: Callable[[random.Random], dict[str, Any]]
    schema: dict[str, Any] | None = None

    @property
    def table(self) -> str:
        """The table that Frazil lands into."""
        return f"bench.{self.name}"

    def records(self, registry: str = "") -> Records:
        """The records, as many as are wanted.

        Args:
            registry: Address of the registry that gets the schema; of records with a schema only.
        """
        chance = random.Random(1)
        pool = [self.make(chance) for _ in range(POOL)]
        if self.schema is not None:
            values = registered_avro(registry, self.name, self.schema, pool)
            return _records(values, _avro_long, lambda milliseconds: _avro_long(_EPOCH_MILLISECONDS + milliseconds))
        return _records(
            [json.dumps(record, separators=(",", ":")).encode() for record in pool], _json_long, _json_instant
        )

    @property
    def pipeline(self) -> str:
        """The pipeline file."""
        return self.pipeline_with()

    def pipeline_with(self, **keys: object) -> str:
        """The pipeline file with further keys."""
        value = {"format": "json"} if self.schema is None else {"format": "avro", "registry": "main"}
        file = {
            "name": self.name,
            "source": {"topics": [self.name]},
            "value": value,
            "destinations": [{"table": self.table, "columns": self.columns}],
        }
        return json.dumps(file | keys)


def _order(chance: random.Random) -> dict[str, Any]:
    return {
        "order_id": FIRST,
        "at": _json_instant(0).decode(),
        "store": chance.randrange(500),
        "amount": chance.randrange(10_000, 1_000_000) / 100,
        "customer": {"id": chance.randrange(10_000_000), "country": chance.choice(("NL", "DE", "FR", "US"))},
        "items": [{"sku": f"SKU-{chance.randrange(10_000):05d}", "n": chance.randrange(1, 9)}],
        "state": chance.choice(("placed", "paid", "sent")),
        "channel": chance.choice(("web", "app", "till")),
    }


_ORDER_COLUMNS: Final = {
    "order_id": "long",
    "at": "timestamptz",
    "store": "int",
    "amount": "double",
    "customer": "struct<id: long, country: string>",
    "items": "list<struct<sku: string, n: int>>",
    "state": "string",
    "channel": "string",
}


def _avro_order(chance: random.Random) -> dict[str, Any]:
    return _order(chance) | {"at": BEGIN}


_TRIP_TYPES: Final = {"int": "ABCDEFGHIJKLM", "double": "defmtlicas", "string": "vwxy"}
_TRIP_SPARSE: Final = "IJKLMxy"
"""Columns that most trips lack. 29 columns in about 144 bytes leave no room for more, nor for longer names."""

_TRIP_COLUMNS: Final = {name: type_name for type_name, names in _TRIP_TYPES.items() for name in names} | {
    "n": "long",
    "p": "int",
}


def _trip(chance: random.Random) -> dict[str, Any]:
    record: dict[str, Any] = {"n": FIRST, "p": chance.randrange(99)}
    for name, type_name in _TRIP_COLUMNS.items():
        if name not in record and (name not in _TRIP_SPARSE or chance.random() < 0.1):
            record[name] = chance.choice("YN") if type_name == "string" else chance.randrange(9)
    return record


def _event(chance: random.Random) -> dict[str, Any]:
    return {
        "event_id": f"{chance.getrandbits(64):016x}{FIRST:016d}",
        "n": FIRST,
        "at": _json_instant(0).decode(),
        "kind": chance.choice(("view", "click", "buy")),
        "page": f"/shop/{chance.randrange(10_000)}/{chance.randrange(100)}",
        "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/139.0 Safari/537.36",
        "price": chance.randrange(1_000_000) / 100,
        "text": "".join(chance.choices("abcdefghij klmnopqrst", k=755)),
    }


_EVENT_COLUMNS: Final = {
    "event_id": "string",
    "n": "long",
    "at": "timestamptz",
    "kind": "string",
    "page": "string",
    "agent": "string",
    "price": "double",
    "text": "string",
}

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("orders", "nested JSON orders", 4, _ORDER_COLUMNS, _order),
        Workload("avro", "the same orders in Avro, with a registry", 4, _ORDER_COLUMNS, _avro_order, ORDER_SCHEMA),
        Workload("trips", "flat JSON trips of 29 columns", 5, _TRIP_COLUMNS, _trip),
        Workload("events", "JSON events", 4, _EVENT_COLUMNS, _event),
    )
}
"""By name."""
