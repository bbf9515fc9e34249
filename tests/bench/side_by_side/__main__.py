"""Frazil beside Kafka Connect's Iceberg sink, on one broker, in one run.

    python -m tests.bench.side_by_side [--quick] [--part drain|trickle|idle|small]... [--workload NAME]... [--records N] [--rounds N]

Prints tables, and keeps every round in `.frazil/bench/<instant>.json` as it comes. Exits with 1 if what landed is wrong, and with
2 if a part failed: the others are measured all the same.
`python -m tests.bench.side_by_side.tables FILE` prints the tables anew. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from frazil.runtime.home import Home
from frazil.spark.submit.class_archive import make_archive
from tests.bench.side_by_side.drain import SIDES, DrainOrder, drain
from tests.bench.side_by_side.machine import machine, versions
from tests.bench.side_by_side.small_batch import SmallOrder, small_batches
from tests.bench.side_by_side.tables import tables
from tests.bench.side_by_side.trickle import TrickleOrder, trickle
from tests.bench.side_by_side.workloads import WORKLOADS

RUNS: Final[dict[str, Callable[[Path, Any, dict[str, Any], Callable[[str], None]], None]]] = {
    "drain": drain,
    "trickle": trickle,
    "idle": trickle,
    "small": small_batches,
}


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes:
        records: Workload -> records, for each size one drain of all sides.
        rounds: Of each drain.
        minutes: Of each trickle.
        intervals: Commit intervals of trickles, seconds.
        small_rounds: Of small batches.
        engines: Frazil's, of drains and small batches.
        beside: Who else drains besides Frazil and Kafka Connect, by workload.
    """

    records: dict[str, tuple[int, ...]]
    rounds: int
    minutes: float
    intervals: tuple[float, ...]
    small_rounds: int
    engines: tuple[str, ...]
    beside: dict[str, tuple[str, ...]]


LONG: Final = Extent(
    {"orders": (5_000_000, 20_000_000), "trips": (5_000_000,), "events": (5_000_000,), "avro": (5_000_000,)},
    rounds=3,
    minutes=10,
    intervals=(10, 60),
    small_rounds=5,
    engines=("submit", "connect"),
    beside={"orders": ("flink", "plain"), "avro": ("flink",)},
)

QUICK: Final = Extent(
    {"orders": (3_000_000,), "trips": (500_000,), "events": (500_000,), "avro": (500_000,)},
    rounds=1,
    minutes=0.75,
    intervals=(10,),
    small_rounds=1,
    engines=("submit",),
    beside={},
)
"""Within 15 minutes on two cores: of orders so many that the sink makes three commits and more, and has a rate between them."""

_QUIET_LOAD: Final = 0.7
"""Load average below which a machine counts as quiet."""


def main() -> int:
    """Measure, print, keep; 1 if results were wrong, 2 if a part failed."""
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # brokers and workers would stay behind
    extent = QUICK if args.quick else LONG
    make_archive(Home.resolve(), _say)
    began = datetime.now(UTC)
    if (load := os.getloadavg()[0]) > _QUIET_LOAD:
        _say(f"something else is running (load {load:.1f}): CPU time is the machine's, so figures will be too high")
    results: dict[str, Any] = {
        "began": began.isoformat(timespec="seconds"),
        "command": " ".join(["python -m tests.bench.side_by_side", *sys.argv[1:]]),
        "machine": machine(),
        "versions": versions(),
        "parts": [],
    }
    file = Home.resolve().root / "bench" / f"{began:%Y%m%dT%H%M%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    measured(_orders(args, extent), results, file)
    print("\n".join(tables(results)), flush=True)  # noqa: T201
    _say(f"kept in {file}")
    return verdict(results["parts"])


def measured(orders: list[tuple[str, Any]], results: dict[str, Any], file: Path) -> None:
    """Measure part after part; the file is as complete as they are at any time. One that fails says why in `failed`."""

    def keep(line: str) -> None:
        file.write_text(json.dumps(results, indent=1), encoding="utf-8")
        _say(line)

    for part, order in orders:
        found: dict[str, Any] = {"part": part, "wrong": []}
        results["parts"].append(found)
        try:
            with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
                RUNS[part](Path(folder) / "bench", order, found, keep)
        except Exception:  # noqa: BLE001 - whatever happens to one part, hours of others are not lost; the exit code says it
            found["failed"] = traceback.format_exc()
        keep(found.get("failed", f"{part}: done"))


def verdict(parts: list[dict[str, Any]]) -> int:
    """Say whether all sides hold the same, and what failed: the exit code."""
    wrong = [line for part in parts for line in part["wrong"]]
    failed = [part["part"] for part in parts if "failed" in part]
    if wrong:
        _say("\n".join(["wrong results:", *wrong]))
    if failed:
        _say(f"failed: {', '.join(failed)}")
    if not wrong and not failed:
        _say("all sides hold the same")
    return 1 if wrong else 2 if failed else 0


def _orders(args: argparse.Namespace, extent: Extent) -> list[tuple[str, Any]]:
    engines = tuple(args.engine or extent.engines)
    parts: list[tuple[str, Any]] = []
    for name in args.workload or WORKLOADS:
        for count in [args.records] if args.records else extent.records[name]:
            sides = extent.beside.get(name, ()) if args.beside is None else tuple(args.beside)
            parts.append(("drain", DrainOrder(name, count, args.rounds or extent.rounds, engines, sides)))
    minutes = args.minutes or extent.minutes
    for part, rate in (("trickle", 1_000), ("idle", 0)):
        orders = (TrickleOrder(rate, interval, minutes, args.trickle_engine) for interval in extent.intervals)
        parts += [(part, order) for order in orders]
    parts.append(("small", SmallOrder(10_000, args.rounds or extent.small_rounds, engines)))
    return [(part, order) for part, order in parts if part in (args.part or RUNS)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 15 minutes on two cores")
    parser.add_argument("--part", choices=list(RUNS), action="append", help="only this part; may be given again")
    parser.add_argument(
        "--workload", choices=list(WORKLOADS), action="append", help="drain only this; may be given again"
    )
    parser.add_argument("--records", type=int, help="of each drain")
    parser.add_argument("--rounds", type=int, help="of each drain, and of small batches")
    parser.add_argument("--minutes", type=float, help="of each trickle")
    parser.add_argument("--engine", action="append", help="Frazil's, for drains and small batches; may be given again")
    parser.add_argument("--trickle-engine", default="inline", help="Frazil's, for trickles (default: inline)")
    parser.add_argument(
        "--beside",
        choices=list(SIDES),
        nargs="*",
        help="who drains besides Frazil and Kafka Connect; nobody if none is named",
    )
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
