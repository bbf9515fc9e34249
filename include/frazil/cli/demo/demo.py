"""`frazil demo`: the whole way of a record, from the topic through Airflow and Spark into the table. What the demo started is stopped at its end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.operate.stack import server_start
from frazil.cli.output import console
from frazil.cli.output.console import Progress
from frazil.errors import EXIT_FAILED, FrazilError
from frazil.extras import require
from frazil.runtime import spark_server
from frazil.runtime.home import Home, write_atomically

if TYPE_CHECKING:
    from frazil.runtime.home import Home


_UNDISTURBED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def demo_stack(home: Home, progress: Progress) -> Iterator[None]:
    """Bring the stack up for the time of a block.

    Which parts are the demo's is written down first: a demo that was killed outright is cleaned up by the next.

    Raises:
        FrazilError: As `frazil.devstack.stack.up` and `down`.
    """
    from frazil.devstack import stack

    record = home.run / "demo.json"
    stack_status = stack.status(home)
    start_server, before = server_start(is_asked_for=False), _read_record(record)
    owned: list[str] = [
        part for part in stack.names(home.profile) if part in before or not stack_status.is_running(part)
    ]
    if start_server is not None and ("spark" in before or not spark_server.is_started(home)):
        owned.append("spark")
    write_atomically(record, json.dumps(owned))
    try:
        with progress:
            stack.up(home, report=progress.done)
            if start_server is not None:
                start_server(progress.done)
        yield
    finally:
        for number in _UNDISTURBED:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of the stack behind
        with progress:
            progress.doing("stopping")
            stack.down(home, only=owned)
            progress.done(f"stopped: {', '.join(owned) or 'nothing, all of it ran before'}")
        record.unlink(missing_ok=True)


def _read_record(record: Path) -> list[str]:
    try:
        return list(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):  # none, or cut off by a kill: then nothing is known to be the demo's
        return []


PIPELINE = "pizzas"
_EXIT_VARIABLE = "DEMO_EXIT"

TOUR = (
    (
        "1,000 more orders: the schedule lands them within a minute",
        f"frazil produce completed-{PIPELINE} --generate {PIPELINE} --count 1000",
    ),
    ("every batch: its offsets, rows and snapshot", f"frazil history {PIPELINE}"),
    ("records that do not fit, and why", f"frazil dead-letters list {PIPELINE}"),
    ("the proof: each record of the topic against the tables", f"frazil verify {PIPELINE}"),
    (
        "the table itself",
        'frazil sql "SELECT store_id, count(*) AS orders FROM rpc.pizzas GROUP BY 1 ORDER BY 2 DESC LIMIT 5"',
    ),
)
"""What to try while the stack is up: what a line shows, and the line to paste."""


def demo(
    *,
    records: Annotated[
        int, typer.Option(min=1, envvar="DEMO_RECORDS", help="Number of pizza orders to produce.")
    ] = 20_000,
) -> None:
    """Demonstrate Frazil: start Kafka and Airflow, produce pizza orders, land and count them, maintain the table, open the page.

    In a terminal the stack runs until Ctrl-C. Elsewhere, or with DEMO_EXIT=1, it stops by itself. The demo stops only the
    servers that it started; topics and tables stay. The exit code is 1 if something failed or the counts differ.
    """
    require("airflow", "the demo")
    from frazil.cli.demo.run import land_pizzas, print_page, print_report
    from frazil.cli.output.console import Progress
    from frazil.project import Project

    project = Project.load()
    pipeline = project.pipeline(PIPELINE)
    try:
        progress = Progress()
        with demo_stack(project.home, progress):
            with progress:
                land_pizzas(project, pipeline, records, progress)
            agrees = print_report(project, pipeline)
            print_page(project.home, pipeline, progress)
            if agrees and _is_attended():
                _keep_stack_up(project.home)
    except FrazilError as error:
        raise FrazilError(f"the demo failed: {error.message}", code=error.code, next_step=error.next_step) from error
    if not agrees:
        raise typer.Exit(EXIT_FAILED)


def _is_attended() -> bool:
    """Whether a person watches the demo in a terminal, and can press Ctrl-C."""
    wants_exit = os.environ.get(_EXIT_VARIABLE, "") not in ("", "0")
    return sys.stdin.isatty() and sys.stdout.isatty() and not wants_exit


def _keep_stack_up(home: Home) -> None:
    from frazil.cli.demo.run import page_address
    from frazil.runtime.airflow_login import credentials

    login = credentials(home)
    console.headline("The stack stays up, and the schedule lands what is produced every minute.")
    console.say(f"  Airflow   {home.airflow_url}  login {login.user} / {login.password}")
    console.say(f"  page      {page_address(home, PIPELINE)}")
    console.say("  stop      Ctrl-C")
    console.headline("Five things to try, in another terminal")
    for says, line in TOUR:
        console.say(f"  # {says}\n  {line}")
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        console.say()
