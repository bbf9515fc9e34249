"""A random schedule of faults on a real broker, a real catalog and real processes: `python -m tests.chaos.random_schedule`.

The seed decides what happens, in which order and where it hurts; how long things take does not repeat. It ends when its
time is over: zombies wake up, everything is drained, and every outcome is held against what was produced.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random, SystemRandom

from frazil.runtime.home import is_free
from frazil.spark.submit.configuration import jar_sets
from tests.chaos.lab import new_lab
from tests.chaos.maintenance import maintenance
from tests.chaos.processes import nursery
from tests.chaos.storm import Broken, Storm
from tests.log_truncation import running_patient
from tests.production import STORES, cluster_of, in_production, production_stack

PARTITIONS, BATCH = 3, 60
SHOWN = ("records", "aborted", "batches", "runs", "kills", "refusals", "redone", "later", "commands", "orphans")
"""What is told beside the deeds."""


def main() -> int:
    """Run a schedule; 0 only if nothing was lost, doubled or changed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--profile", choices=["embedded", "production"], default="embedded")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-chaos-") as folder, ExitStack() as stack:
        storm = _storm(stack, Path(folder), args.seed, on_production=args.profile == "production")
        try:
            _blow(storm, args.minutes)
            summary = f"{storm.check()}; {_figures(storm)}"
        except (Broken, AssertionError) as broken:
            traceback.print_exception(broken)
            summary = f"BROKEN; {_figures(storm)}"
    _say(f"seed {args.seed}: {summary}")
    if summary.startswith("BROKEN"):
        options = f"--seed {args.seed} --minutes {args.minutes:g} --profile {args.profile}"
        _say(f"again: python -m tests.chaos.random_schedule {options}")
        return 1
    return 0


def _storm(stack: ExitStack, folder: Path, seed: int, *, on_production: bool) -> Storm:
    if on_production:
        home = stack.enter_context(production_stack(STORES))
        in_production(home, folder / "home")
        cluster, cut = cluster_of(home), None
    else:
        ports = list(islice(filter(is_free, SystemRandom().sample(range(20_000, 32_000), 100)), 2))
        patient = stack.enter_context(running_patient(folder / "broker", ports))
        cluster, cut = patient.cluster, patient.truncate
    children = stack.enter_context(nursery(folder / "children"))
    orders = new_lab(folder, cluster, children, PARTITIONS, max_records=BATCH)
    maintained = stack.enter_context(maintenance(jar_sets(orders.project.settings))).of(orders.project)
    return Storm(orders, maintained, Random(seed), stack, cut)


def _blow(storm: Storm, minutes: float) -> None:
    began = checked = time.monotonic()
    while time.monotonic() < began + minutes * 60:
        storm.step()
        if time.monotonic() > checked + 60:
            checked = time.monotonic()
            _say(f"minute {round((checked - began) / 60)}: {storm.check()}; {_figures(storm)}")
    while storm.zombies:
        storm.wake_a_zombie()


def _figures(storm: Storm) -> str:
    deeds = (event.__name__ for event in storm.events())
    return ", ".join(f"{name} {storm.figures[name]}" for name in (*SHOWN, *deeds))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
