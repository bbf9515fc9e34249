"""`frazil status`: how the pipelines are doing, below the processes of the embedded stack if there is one."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.options import Json
from frazil.cli.stack import show_stack
from frazil.local.home import Home

if TYPE_CHECKING:
    from frazil.monitor.watch import Watch

_FIRST_SECONDS = 20.0
"""How long a single look may take: a broker that is away is known after 8 s, but there may be many pipelines."""

_AT_ONCE = 16
"""Pipelines that are looked at together: somebody waits."""

_REFRESH_SECONDS = 5.0
_REDRAW_SECONDS = 1.0


def status(
    pipelines: Annotated[
        list[str] | None, typer.Argument(metavar="[PIPELINE]...", help="All if left out.", show_default=False)
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show how pipelines are doing, the most urgent first, and which processes of the embedded stack run.

    The words, by urgency: Paused, Refused, Failed, Degraded, Behind, Running, Idle. [cyan]lag[/cyan]: records not read yet.
    [cyan]waits[/cyan]: since when the oldest of them does. [cyan]fresh[/cyan]: of 95 in 100 records of the last day, the
    longest time from the record to its commit. With --json and --watch, one line of JSON per look.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    from frazil.local import airflow
    from frazil.monitor.airflow_runs import runs_of
    from frazil.monitor.project_files import ProjectFiles
    from frazil.monitor.watch import Watch

    home = Home.resolve()
    if not pipelines and not as_json and not watch:
        show_stack(home)
    if airflow.remote_url() is not None:
        airflow.any_api(home).close()  # a password that is missing would look like an Airflow that does not answer
    files = ProjectFiles(os.environ)
    project = files.project()
    for name in pipelines or ():
        project.pipeline(name)
    seconds = _REFRESH_SECONDS if watch else float("inf")
    watching = Watch(files.project, pipelines or (), lambda of: runs_of(of, home), seconds, threads=_AT_ONCE)
    with watching:
        if watch:
            _watch(watching, home, as_json=as_json)
        else:
            watching.wait(_FIRST_SECONDS)
            _show(watching, home, as_json=as_json)


def _show(watching: "Watch", home: Home, *, as_json: bool) -> None:
    from frazil.cli.status_table import facts, lines

    if as_json:
        console.print_json(facts(watching.snapshot(), watching.promises(), home))
        return
    out = console.out()
    out.print(lines(watching.snapshot(), watching.promises(), out.width))


def _watch(watching: "Watch", home: Home, *, as_json: bool) -> None:
    import time

    from rich.live import Live

    from frazil.cli.status_table import lines
    from frazil.errors import Terminal

    out = console.out()
    if as_json:
        while True:
            watching.wait(_FIRST_SECONDS)
            _show(watching, home, as_json=True)
    if not out.is_terminal:
        raise Terminal("--watch draws on a terminal", next_step="frazil status --watch --json prints a line per look")
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            live.update(lines(watching.snapshot(), watching.promises(), out.width, out.height), refresh=True)
            time.sleep(_REDRAW_SECONDS)
