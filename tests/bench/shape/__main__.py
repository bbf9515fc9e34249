"""How cost grows with one thing at a time: the batch, partitions, columns, tables, snapshots, dead letters, the backlog.

    python -m tests.bench.shape [--axis NAME] [--quick]

Lands real records with a broker of its own, and prints per axis a table, and the line through its CPU seconds: what a batch costs
at all, what each more costs, and how far the figures are from that line. The engine is `inline`: CPU time is this process's.
Each point has a topic and tables of its own, which were made before; making them is not in the figures.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from pathlib import Path

from tests.bench.shape.axes import AXES, Axis, Ground
from tests.bench.shape.cost import report
from tests.bench.stack import running_broker


def measured(ground: Ground, axis: Axis, sizes: tuple[int, ...]) -> list[str]:
    """Measure the points of an axis."""
    costs = []
    for size in sizes:
        gc.collect()
        costs.append(axis.measure(ground, size))
    return report(axis.what, costs)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", choices=list(AXES), action="append")
    parser.add_argument("--quick", action="store_true", help="fewer points, none of them large")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as broker:
        ground = Ground(Path(folder), broker)
        AXES["batch"].measure(ground, 1_000)  # the first run of all loads what all need
        for name in args.axis or AXES:
            axis = AXES[name]
            costs = measured(ground, axis, axis.quick if args.quick else axis.sizes)
            print("\n".join(costs), end="\n\n", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
