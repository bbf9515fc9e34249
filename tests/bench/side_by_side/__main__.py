"""Frazil beside Kafka Connect's Iceberg sink, on one broker, in one run.

    python -m tests.bench.side_by_side [--quick] [--part drain|trickle|idle|small]... [--workload NAME]... [--records N] [--rounds N]

Prints tables, and keeps every round in `.frazil/bench/<instant>.json`. Exits with 1 if what landed is wrong, and only then.
`python -m tests.bench.side_by_side.tables FILE` prints the tables anew. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from frazil.local.home import Home
from frazil.spark.class_archive import make_archive
from tests.bench.side_by_side.drain import DrainOrder, drain
from tests.bench.side_by_side.machine import machine, versions
from tests.bench.side_by_side.small_batch import SmallOrder, small_batches
from tests.bench.side_by_side.tables import tables
from tests.bench.side_by_side.trickle import TrickleOrder, trickle
from tests.bench.side_by_side.workloads import WORKLOADS

PARTS: Final = ("drain", "trickle", "idle", "small")


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes:
        records: Workload -> records, for each size one drain of all sides.
        rounds: Of each drain.
        minutes: Of each trickle.
        intervals: Commit intervals of trickles, seconds.
        small_rounds: Of small batches.
    """

    records: dict[str, tuple[int, ...]]
    rounds: int
    minutes: float
    intervals: tuple[float, ...]
    small_rounds: int


LONG: Final = Extent(
    {"orders": (5_000_000, 20_000_000), "trips": (5_000_000,), "events": (5_000_000,), "avro": (5_000_000,)},
    rounds=3,
    minutes=10,
    intervals=(10, 60),
    small_rounds=5,
)

QUICK: Final = Extent(
    {"orders": (1_000_000,), "trips": (500_000,), "events": (200_000,), "avro": (500_000,)},
    rounds=1,
    minutes=0.75,
    intervals=(10,),
    small_rounds=1,
)
"""Within 15 minutes on two cores."""

_QUIET_LOAD: Final = 0.7
"""Load average below which a machine counts as quiet."""


def main() -> int:
    """Measure, print, keep, and return whether the results were wrong."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # brokers and workers would stay behind
    extent = QUICK if given.quick else LONG
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
    for part, order in _orders(given, extent):
        with tempfile.TemporaryDirectory(prefix="frazil-bench-") as folder:
            run = {"drain": drain, "trickle": trickle, "idle": trickle, "small": small_batches}[part]
            results["parts"].append({"part": part, **run(Path(folder) / "bench", order, _say)})
        file.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print("\n".join(tables(results)), flush=True)  # noqa: T201
    _say(f"kept in {file}")
    wrong = [line for part in results["parts"] for line in part["wrong"]]
    _say("\n".join(["wrong results:", *wrong]) if wrong else "all sides hold the same")
    return 1 if wrong else 0


def _orders(given: argparse.Namespace, extent: Extent) -> list[tuple[str, Any]]:
    engines = tuple(given.engine or ["submit"])
    made: list[tuple[str, Any]] = []
    for name in given.workload or WORKLOADS:
        for count in [given.records] if given.records else extent.records[name]:
            plain = name == "orders" and not given.no_plain
            made.append(("drain", DrainOrder(name, count, given.rounds or extent.rounds, engines, plain)))
    minutes = given.minutes or extent.minutes
    for part, rate in (("trickle", 1_000), ("idle", 0)):
        orders = (TrickleOrder(rate, of, minutes, given.trickle_engine, stays=given.stay) for of in extent.intervals)
        made += [(part, order) for order in orders]
    made.append(("small", SmallOrder(10_000, given.rounds or extent.small_rounds, tuple(given.engine or []))))
    return [(part, order) for part, order in made if part in (given.part or PARTS)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 15 minutes on two cores")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument(
        "--workload", choices=list(WORKLOADS), action="append", help="drain only this; may be given again"
    )
    parser.add_argument("--records", type=int, help="of each drain")
    parser.add_argument("--rounds", type=int, help="of each drain, and of small batches")
    parser.add_argument("--minutes", type=float, help="of each trickle")
    parser.add_argument("--engine", action="append", help="Frazil's, for drains; may be given again (default: submit)")
    parser.add_argument("--trickle-engine", default="inline", help="Frazil's, for trickles")
    parser.add_argument("--stay", action="store_true", help="trickle by one run that stays, not by a run per interval")
    parser.add_argument("--no-plain", action="store_true", help="leave out Spark jobs without Frazil")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
