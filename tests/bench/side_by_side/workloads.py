"""What is landed: records of a given shape, the table that takes them, and the pipeline that says how.

Records are made of a pool of different ones that is sent again and again: making 20 million of them would take longer than
landing them. Where each of them is, in topic and table, is told by its offset.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.bench.side_by_side.avro import ORDER_SCHEMA, registered_avro

POOL: Final = 50_000
"""Different records of a workload."""

_BEGIN: Final = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Workload:
    """A shape of records.

    Attributes:
        name: Of the topic, and of the table in the namespace `bench`.
        said: In words, for reports.
        partitions: Of the topic.
        columns: Of the table, as in a pipeline file.
        make: Makes the n-th record, as JSON has it.
        schema: Of Avro; records without are JSON.
    """

    name: str
    said: str
    partitions: int
    columns: dict[str, Any]
    make: Callable[[random.Random, int], dict[str, Any]]
    schema: dict[str, Any] | None = None

    @property
    def table(self) -> str:
        """The table that Frazil lands into."""
        return f"bench.{self.name}"

    def pool(self, seed: int = 1, registry: str = "") -> Sequence[bytes]:
        """The different records.

        Args:
            seed: Of the chances.
            registry: Address of the registry that gets the schema; of records with a schema only.
        """
        chance = random.Random(seed)
        records = [self.make(chance, n) for n in range(POOL)]
        if self.schema is not None:
            return registered_avro(registry, self.name, self.schema, records)
        return [json.dumps(record, separators=(",", ":")).encode() for record in records]

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


def _instant(chance: random.Random) -> str:
    return (_BEGIN + timedelta(milliseconds=chance.randrange(86_400_000))).isoformat(timespec="milliseconds")


def _order(chance: random.Random, n: int) -> dict[str, Any]:
    return {
        "order_id": 10_000_000_000 + n,
        "at": _instant(chance),
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


def _avro_order(chance: random.Random, n: int) -> dict[str, Any]:
    made = _order(chance, n)
    return made | {"at": datetime.fromisoformat(made["at"])}


_TRIP_TYPES: Final = {"int": "ABCDEFGHIJKLM", "double": "defmtlicas", "string": "vwxy"}
_TRIP_SPARSE: Final = "IJKLMxy"
"""Columns that most trips lack. 29 columns in about 144 bytes leave no room for more, nor for longer names."""

_TRIP_COLUMNS: Final = {name: of for of, names in _TRIP_TYPES.items() for name in names} | {"n": "long", "p": "int"}


def _trip(chance: random.Random, n: int) -> dict[str, Any]:
    made: dict[str, Any] = {"n": n, "p": chance.randrange(99)}
    for name, of in _TRIP_COLUMNS.items():
        if name not in made and (name not in _TRIP_SPARSE or chance.random() < 0.1):
            made[name] = chance.choice("YN") if of == "string" else chance.randrange(9)
    return made


def _event(chance: random.Random, n: int) -> dict[str, Any]:
    return {
        "event_id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "n": n,
        "at": _instant(chance),
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
    of.name: of
    for of in (
        Workload("orders", "nested JSON orders", 4, _ORDER_COLUMNS, _order),
        Workload("avro", "the same orders in Avro, with a registry", 4, _ORDER_COLUMNS, _avro_order, ORDER_SCHEMA),
        Workload("trips", "flat JSON trips of 29 columns", 5, _TRIP_COLUMNS, _trip),
        Workload("events", "JSON events", 4, _EVENT_COLUMNS, _event),
    )
}
"""By name."""
