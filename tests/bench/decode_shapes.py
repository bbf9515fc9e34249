"""What the shape of plain JSON costs: CPU time of decoding the same orders, written in one way after the other.

    python -m tests.bench.decode_shapes [--rounds 5]

Prints per shape the CPU microseconds per record, and their ratio to the cheapest shape; ends with 1 if a shape costs more than
`LIMIT` times as much. Batches have 10,000 records, shapes take turns, the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, Final

import pyarrow as pa

from frazil.records.model.spec import RecordSpec
from tests.bench.side_by_side.workloads import WORKLOADS
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, kafka_batch

RECORDS: Final = 10_000

LIMIT: Final = 2.0
"""Times the cheapest shape."""

BAD_EVERY: Final = 20

ORDERS: Final = RecordSpec(
    pa.schema(
        [
            pa.field("order_id", pa.int64()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("store", pa.int32()),
            pa.field("amount", pa.float64()),
            pa.field("customer", pa.struct([("id", pa.int64()), ("country", pa.string())])),
            pa.field("items", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))),
            pa.field("state", pa.string()),
            pa.field("channel", pa.string()),
        ]
    )
)
DECIMALS: Final = replace(
    ORDERS,
    columns=ORDERS.columns.set(3, pa.field("amount", pa.decimal128(12, 2))).set(0, pa.field("order_id", pa.int64())),
)

Order = dict[str, Any]


def _compact(order: Order, *, ensure_ascii: bool = True) -> bytes:
    return json.dumps(order, separators=(",", ":"), ensure_ascii=ensure_ascii).encode()


def _shuffled(order: Order) -> bytes:
    return _compact(dict(random.Random(order["order_id"]).sample(list(order.items()), len(order))))


def _deep(order: Order) -> bytes:
    return _compact(order | {"meta": {"trace": {"spans": [{"id": order["store"], "tags": ["a", "b"]}]}}})


def _some_bad(order: Order) -> bytes:
    return _compact(order)[: -1 if order["order_id"] % BAD_EVERY == 0 else None]


SHAPES: Final[dict[str, tuple[RecordSpec, Callable[[Order], bytes]]]] = {
    "plain": (ORDERS, _compact),
    "pretty-printed": (ORDERS, lambda order: json.dumps(order, indent=2).encode()),
    "keys in any order": (ORDERS, _shuffled),
    "decimals": (DECIMALS, _compact),
    "escaped quotes": (ORDERS, lambda order: _compact(order | {"channel": 'the "web" shop'})),
    "unicode": (ORDERS, lambda order: _compact(order | {"channel": "Zürich ☕"}, ensure_ascii=False)),
    "unicode as escapes": (ORDERS, lambda order: _compact(order | {"channel": "Zürich ☕"})),
    "decimals beside escapes": (DECIMALS, lambda order: _compact(order | {"channel": 'Zürich "☕"'})),
    "undeclared fields": (ORDERS, lambda order: _compact(order | {"coupon": None, "gift": True})),
    "undeclared, four levels deep": (ORDERS, _deep),
    "undeclared, deep, decimals": (DECIMALS, _deep),
    "5 % bad": (ORDERS, _some_bad),
}


def measured(rounds: int) -> dict[str, float]:
    """CPU microseconds per record of each shape: the median of the rounds, after one to warm up."""
    record = WORKLOADS["orders"].records()
    pool = [json.loads(record(n)) for n in range(RECORDS)]
    ways = {
        name: (OneTable(spec, BATCH_NUMBER), kafka_batch([write(order) for order in pool]))
        for name, (spec, write) in SHAPES.items()
    }
    costs: dict[str, list[float]] = {name: [] for name in ways}
    gc.collect()
    gc.disable()
    for _ in range(rounds + 1):
        for name, (decoder, records) in ways.items():
            began = time.process_time()
            outcomes = decoder.decode(records)
            costs[name].append((time.process_time() - began) * 1_000_000 / RECORDS)
            dead = RECORDS // BAD_EVERY if name == "5 % bad" else 0
            if len(outcomes.dead) != dead:
                sys.exit(f"{name}: expected {dead} dead letters, found {len(outcomes.dead)}")
    gc.enable()
    return {name: median(cost[1:]) for name, cost in costs.items()}


def main() -> int:
    """Measure, print, and return 1 if a shape costs too much."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    costs = measured(parser.parse_args().rounds)
    best = min(costs.values())
    for name, cost in costs.items():
        print(f"| {name} | {cost:.2f} | {cost / best:.2f} |", flush=True)  # noqa: T201
    return 1 if max(costs.values()) > LIMIT * best else 0


if __name__ == "__main__":
    sys.exit(main())
