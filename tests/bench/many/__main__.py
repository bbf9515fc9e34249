"""Many pipelines in one deployment: their files, their plans, and a scheduler on PostgreSQL that has to start them all.

    python -m tests.bench.many [--part files|plans|scheduler] [--pipelines 500] [--topics 2000] [--minutes 3]

Files: CPU time and memory of `frazil validate` and of each DAG file. Plans: an idle plan beside a broker with all topics.
Scheduler: Airflow with PostgreSQL and LocalExecutor, all pipelines due every minute, with nothing in Kafka: what is measured is
what runs cost that have nothing to do. CPU seconds are the figures that hold on another machine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from frazil.runtime.home import Home
from tests.bench.many import files, plans, scheduler
from tests.bench.stack import running_broker

PARTS = ("files", "plans", "scheduler")


def lines(part: str, folder: Path, args: argparse.Namespace) -> Iterator[str]:
    """The report of a part."""
    count, each = args.pipelines, max(1, args.topics // args.pipelines)
    if part == "files":
        yield from files.report(folder, count, each, Home.resolve().project / "dags")
    elif part == "plans":
        with running_broker(folder / "broker") as home:
            yield from plans.report(folder, home, count, each)
    else:
        yield from scheduler.report(folder, count, each, args.minutes)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--pipelines", type=int, default=500)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=3, help="how long the scheduler is watched, twice")
    args = parser.parse_args()
    for part in args.part or PARTS:
        print(f"\n{part}: {args.pipelines} pipelines, {args.topics} topics", flush=True)  # noqa: T201
        with tempfile.TemporaryDirectory() as folder:
            for line in lines(part, Path(folder), args):
                print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
