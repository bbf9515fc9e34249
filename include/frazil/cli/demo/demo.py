"""`frazil demo`: the way of a record from the topic through Airflow and Spark into the table. At its end, the demo stops the servers that it started."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.operate.stack import server_start
from frazil.cli.output import console
from frazil.cli.output.console import Progress
from frazil.errors import EXIT_FAILED, FrazilError
from frazil.extras import require
from frazil.runtime import spark_server
from frazil.runtime.home import Home, write_atomically

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def demo_stack(home: Home, progress: Progress) -> Iterator[None]:
    """Bring the stack up for a block, and stop the parts that were not up before.

    The names of these parts are in a file before they start. So if a demo is killed, the next one stops them too.

    Raises:
        FrazilError: As `frazil.devstack.stack.up` and `down`.
    """
    from frazil.devstack import stack

    record = home.run / "demo.json"
    stack_status = stack.status(home)
    start_server, recorded = server_start(is_required=False), _read_record(record)
    own_parts: list[str] = [
        part for part in stack.names(home.profile) if part in recorded or not stack_status.is_running(part)
    ]
    if start_server is not None and ("spark" in recorded or not spark_server.is_started(home)):
        own_parts.append("spark")
    write_atomically(record, json.dumps(own_parts))
    try:
        with progress:
            stack.up(home, report=progress.done)
            if start_server is not None:
                start_server(progress.done)
        yield
    finally:
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of the stack behind
        with progress:
            progress.doing("stopping")
            stack.down(home, only=own_parts)
            progress.done(f"stopped: {', '.join(own_parts) or 'nothing, all of it ran before'}")
        record.unlink(missing_ok=True)


def _read_record(record: Path) -> list[str]:
    try:
        return list(json.loads(record.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):  # no demo was killed, or its file is damaged
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
"""Commands to try while the stack is up, each after what it shows."""


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
    for text, command in TOUR:
        console.say(f"  # {text}\n  {command}")
    try:
        while True:
            signal.pause()
    except KeyboardInterrupt:
        console.say()
