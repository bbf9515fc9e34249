"""SIGTERM at every crash point: the run ends in order and in time, and the next one carries on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from frazil.errors import Stopped
from frazil.failpoints import VARIABLE, Failpoint
from frazil.runtime.drivers import drivers
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.process import stat_of, until
from tests.chaos.lab import LEDGER, TABLES, Lab
from tests.chaos.processes import SECONDS, stop_at, term_at
from tests.chaos.scenes import BATCH, EVOLVE, FEW_LETTERS, INGEST, LETTER_TOPIC, REPLAY, SEND, Scene

MakeLab = Callable[..., Lab]
P = Failpoint

ENDS_WITHIN_SECONDS: Final = 30
"""What is promised of a run that is asked to stop."""

UNDECIDED: Final = (P.STAGING, P.STAGED, P.EVOLVING, P.EVOLVED, P.AUDITED, P.MANIFEST_WRITTEN)
"""Where nothing is decided yet. Later than that the batch is finished."""

SHORT = [
    *map(INGEST.kill, (P.STAGING, P.MANIFEST_WRITTEN, P.FOLLOW_COMMITTING)),
    REPLAY.kill(P.MANIFEST_WRITTEN),
    EVOLVE.kill(P.EVOLVED),
    LETTER_TOPIC.kill(P.LETTERS_SENDING),
    FEW_LETTERS.kill(P.DECIDE_COMMITTING),
]
"""A stop in each phase, before the decision and after it."""

EVERY = [
    *map(INGEST.kill, INGEST.points[1:]),  # before the first one no run has begun
    *map(REPLAY.kill, REPLAY.points[1:]),
    *map(EVOLVE.kill, (P.STAGED, P.EVOLVING)),
    *map(LETTER_TOPIC.kill, SEND),
    *map(FEW_LETTERS.kill, FEW_LETTERS.points),
]


def data_files(orders: Lab) -> Iterator[Path]:
    """Data files in the folders of the pipeline's tables, whether a snapshot names them or not."""
    for table in TABLES:
        yield from Path(orders.load(table).location().removeprefix("file://")).glob("data/**/*.parquet")


def batches(orders: Lab) -> int:
    """How many batches the ledger tells of."""
    return len({row["n"] for row in orders.rows(LEDGER)})


@pytest.mark.parametrize(
    ("scene", "point", "time"),
    [*SHORT, *(pytest.param(*case.values, id=case.id, marks=pytest.mark.full) for case in EVERY)],
)
def test_stop_leaves_no_half_batch(lab: MakeLab, scene: Scene, point: Failpoint, time: int) -> None:
    """Asked to stop anywhere, a run finishes what it decided and discards what it did not, with an exit code of its own."""
    orders = lab(max_records=BATCH)
    deed = scene.prepare(orders)
    before, files = batches(orders), set(data_files(orders))

    ended = orders.start(deed, term_at(point, time)).wait()

    decided = batches(orders) - before
    assert decided == (0 if point in UNDECIDED else 1), ended.output
    is_over = scene is REPLAY and decided  # a replay is one batch
    assert ended.code == (0 if is_over else Stopped.exit_code), ended.output
    assert "SIGTERM: stopping" in ended.output
    assert is_over or "asked to stop by SIGTERM" in ended.output
    if not decided:
        assert set(data_files(orders)) == files, "files of a discarded batch are left"
    assert drivers(orders.project.home, "orders") == []
    orders.run(deed)
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()


@pytest.mark.embedded  # looks at processes of its own Spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("signal_name", ["run", pytest.param("driver", marks=pytest.mark.full)])
def test_stopped_spark_run_leaves_no_job_behind(lab: MakeLab, signal_name: str) -> None:
    """Asked to stop while Spark stages, `frazil run` discards the batch and ends in time, its job with it.

    So it does if its driver alone is asked. A worker that would never come to its end is not waited for.
    """
    fetch(Home.resolve(), "spark")
    orders = lab(partitions=2, max_records=BATCH)
    orders.run()
    orders.fill(0, 40)
    orders.fill(100, 40)  # several batches, so that the first one is not the end of the run
    command = [sys.executable, "-m", "frazil.cli", "run", "orders", "--engine", "spark"]
    home = orders.project.home
    env = os.environ | orders.env | {VARIABLE: stop_at(P.STAGING)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as run:
        assert until(lambda: "T" in states_of(home).values() or run.poll() is not None, 3 * SECONDS), (
            "no worker got so far"
        )
        if signal_name == "run":
            run.send_signal(signal.SIGTERM)
        else:
            (driver,) = drivers(home, "orders")
            driver.ask_to_stop()
        began = time.monotonic()
        errors = run.communicate(timeout=SECONDS)[1]
        took = time.monotonic() - began

    assert run.returncode == Stopped.exit_code, errors
    assert (
        "is discarded" in errors or "not ended within" in errors
    )  # the second is what a machine hears that is very slow
    assert took < 2 * ENDS_WITHIN_SECONDS
    assert drivers(home, "orders") == []
    assert until(lambda: states_of(home) == {}, ENDS_WITHIN_SECONDS), "processes of the job are left"
    orders.run()
    orders.assert_clean()
    orders.assert_at_rest()


def states_of(home: Home) -> dict[int, str]:
    """State of each live process that has this home in its environment, a letter of /proc."""
    states = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            is_of_home, stat = str(home.root).encode() in (entry / "environ").read_bytes(), stat_of(int(entry.name))
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if is_of_home and stat is not None and not stat.has_ended:
            states[stat.pid] = stat.state
    return states
