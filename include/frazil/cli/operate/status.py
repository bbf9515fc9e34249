"""`frazil status`: the state of pipelines and captures, and of the embedded stack. `frazil lag`: how far a pipeline is
behind its topics.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from frazil.cli.operate.stack import show_stack
from frazil.cli.output import console
from frazil.cli.output.console import Json, PipelineName, pipeline_names
from frazil.error_codes import BAD_ARGUMENT
from frazil.errors import FrazilError
from frazil.monitor.condition import STATES, Condition, Runs, spoken, state_of
from frazil.runtime.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.monitor.watch import Watch
    from frazil.project import Project
    from frazil.report.lag import Lag, PartitionLag


STYLES = {
    "Paused": "dim",
    "Refused": "bold red",
    "Failed": "bold red",
    "Degraded": "yellow",
    "Behind": "yellow",
    "Running": "cyan",
    "Idle": "green",
}
"""Style of each state."""

_READING = "reading"
"""Instead of a state, until the tables of a pipeline were read."""

_URGENCY = ("Refused", "Failed", "Degraded", "Behind", _READING, "Paused", "Running", "Idle")
"""Order of the lines: first what needs attention, then what somebody paused on purpose, then what is healthy."""

_WIDE = 120
"""Columns of a terminal from which the table also shows freshness, counts and reasons."""

_OTHER_LINES = 4
"""Lines of a screen without a pipeline: the header, the count of hidden pipelines, the totals, and the cursor's line."""

Conditions = Mapping[str, Condition | None]
Objectives = Mapping[str, float | None]


def lines(conditions: Conditions, objectives: Objectives, width: int, height: int | None = None) -> Group:
    """Pipelines and captures, the most urgent first, and their number per state.

    Args:
        conditions: By unique name; None if it was not read yet.
        objectives: Freshness objectives by unique name.
        width: Columns of the terminal.
        height: Lines of the terminal: pipelines that don't fit are counted. None: all pipelines are shown.
    """
    states = {name: _state(condition, objectives.get(name)) for name, condition in conditions.items()}
    names = sorted(states, key=lambda name: (_URGENCY.index(states[name][0]), name))
    shown = names if height is None else names[: max(1, height - _OTHER_LINES)]
    has_why = height is not None or width >= _WIDE  # without room in the table, reasons stand in whole below it
    table = _table(width, has_why=has_why)
    for name in shown:
        state, why = states[name]
        table.add_row(*_cells(name, conditions[name], state, width), *([why] if has_why else []))
    reasons = [
        Text.assemble((f"{_title(name)}: ", "bold"), (state, STYLES.get(state, "")), f", {why}")
        for name, (state, why) in ((name, states[name]) for name in shown)
        if not has_why and state not in ("Idle", "Running", _READING)
    ]
    below = [*reasons, _totals_line(states)]
    if len(shown) < len(names):
        hidden = _state_counts(states[name][0] for name in names[len(shown) :])
        below.insert(0, Text(f"… and {len(names) - len(shown)} more: {hidden}", "dim"))
    return Group(table, *below)


def facts(conditions: Conditions, objectives: Objectives, home: Home) -> dict[str, Any]:
    """The embedded stack, the pipelines and the captures in JSON's terms."""
    from frazil.devstack import stack

    bodies: dict[str, dict[str, Any]] = {"pipelines": {}, "captures": {}}
    for key, condition in conditions.items():
        state, why = _state(condition, objectives.get(key))
        body = {"state": state, "why": why} | ({} if condition is None else condition.to_body())
        bodies["captures" if "." in key else "pipelines"][key.rpartition(".")[2]] = body
    return {**stack.status(home).to_json(), **bodies}


def _state(condition: Condition | None, objective: float | None) -> tuple[str, str]:
    """The state and the reason for it."""
    return (_READING, "") if condition is None else state_of(condition, objective)


def _title(key: str) -> str:
    """The name of a pipeline; of a capture, whose unique name is `capture.NAME`, with the word `capture`."""
    return key.replace(".", " ")


def _table(width: int, *, has_why: bool) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), expand=has_why)
    table.add_column("pipeline", no_wrap=True, overflow="ellipsis", max_width=max(12, width // 4))
    table.add_column("state", no_wrap=True)
    for name in ("lag", "waits", *(("fresh", "rows", "dead") if width >= _WIDE else ()), "commit"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_why:
        table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _cells(name: str, condition: Condition | None, state: str, width: int) -> list[str | Text]:
    styled = Text(state, STYLES.get(state, "dim"))
    if condition is None:
        return [_title(name), styled, *[""] * (6 if width >= _WIDE else 3)]
    lag = "-" if condition.lag is None else f"{condition.lag:,}{' files' if condition.is_capture else ''}"
    waits = "-" if condition.lag_seconds is None else "" if condition.lag == 0 else _short(condition.lag_seconds)
    counts: list[str | Text] = []
    if width >= _WIDE:
        fresh = "-" if condition.freshness.p95 is None else _short(condition.freshness.p95)
        dead = Text(f"{condition.dead:,}", "yellow" if condition.dead else "")
        counts = ["", "", ""] if condition.is_capture else [fresh, f"{condition.rows:,}", dead]
    return [_title(name), styled, lag, waits, *counts, _ago(condition.last_commit, condition.read_at)]


def _short(seconds: float) -> str:
    """A duration in its largest unit: `2 h`, `48 s`."""
    return " ".join(spoken(seconds).split()[:2])


def _ago(instant: datetime | None, until: datetime) -> str:
    return "never" if instant is None else f"{_short((until - instant).total_seconds())} ago"


def _totals_line(states: Mapping[str, tuple[str, str]]) -> Text:
    captures = sum("." in key for key in states)
    flows = f"{len(states) - captures} pipelines" + (f", {captures} captures" if captures else "")
    counts = _state_counts(state for state, _ in states.values())
    return Text(f"{flows}: {counts}" if states else "there are no pipelines", "bold")


def _state_counts(states: Iterable[str]) -> str:
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state}" for state in (*STATES, _READING) if counts[state])


_FIRST_SECONDS = 20.0
"""How long the first reading of all pipelines may take: a broker that is down costs 8 s, and there may be many pipelines."""

_THREADS = 16
"""Pipelines that are read at the same time, since a person waits for the result."""

_REFRESH_SECONDS = 5.0
_REDRAW_SECONDS = 1.0


def status(
    pipelines: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Names of pipelines and captures. Without a name, all.",
            show_default=False,
            autocompletion=pipeline_names,
        ),
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show the state of pipelines and captures, the most urgent first, and the processes of the embedded stack.

    The states, most urgent first: Refused, Failed, Degraded, Behind, Paused, Running, Idle. [cyan]lag[/cyan]: records that are
    not read yet; for a capture, files with new lines. [cyan]waits[/cyan]: how long the oldest of them has waited.
    [cyan]fresh[/cyan]: 95 % of the last day's records were committed within this time. [cyan]rows[/cyan],
    [cyan]dead[/cyan]: rows and dead letters that landed in the last day, also by a replay or reset. --json with --watch
    prints a line of JSON at each refresh.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    from frazil.cli.operate.run import with_refusals
    from frazil.monitor.watch import ProjectFiles, Watch, runs_of
    from frazil.runtime import airflow_login

    home = Home.resolve()
    if not pipelines and not as_json and not watch:
        show_stack(home)
    if airflow_login.remote_url() is not None:
        _try_airflow(home)
    files = ProjectFiles(os.environ)
    project = files.project()
    keys = [key for name in pipelines or () for key in _keys(project, name)]
    seconds = _REFRESH_SECONDS if watch else float("inf")

    def runs_and_refusals(keys_watched: Iterable[str]) -> Mapping[str, Runs]:
        return with_refusals(runs_of(keys_watched, home), home, keys_watched)

    watching = Watch(files.project, keys, runs_and_refusals, seconds, threads=_THREADS)
    with watching:
        if watch:
            _watch(watching, home, as_json=as_json)
        else:
            watching.wait(_FIRST_SECONDS)
            _show(watching, home, as_json=as_json)


def _try_airflow(home: Home) -> None:
    """Report an error of the Airflow that the environment names. Otherwise its runs would look as if there were none.

    Raises:
        Terminal: The environment names no password or token.
    """
    from frazil.runtime.airflow_login import PASSWORD_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, any_api

    with any_api(home) as airflow:
        try:
            airflow.paused("ingest__")
        except FrazilError as problem:
            step = f"correct {URL_VARIABLE}, and {PASSWORD_VARIABLE} or {TOKEN_VARIABLE}; the tables' states are shown without"
            console.show_failure("runs unknown", problem.message_with_code, step)


def _keys(project: Project, name: str) -> list[str]:
    """Unique names of the pipeline and of the capture with this name. Both may exist.

    Raises:
        Terminal: Neither exists.
    """
    keys = [capture.unique_name for capture in project.captures.usable.values() if capture.name == name]
    return keys if keys and name not in project.pipelines.usable else [*keys, project.pipeline(name).unique_name]


def _show(watching: Watch, home: Home, *, as_json: bool) -> None:
    if as_json:
        console.print_json(facts(watching.snapshot(), watching.objectives(), home))
        return
    out = console.out()
    out.print(lines(watching.snapshot(), watching.objectives(), out.width))


def _watch(watching: Watch, home: Home, *, as_json: bool) -> None:
    import time

    from rich.live import Live

    out = console.out()
    if as_json:
        while True:
            watching.wait(_FIRST_SECONDS)
            _show(watching, home, as_json=True)
    if not out.is_terminal:
        raise BAD_ARGUMENT.terminal(
            "--watch needs a terminal", next_step="frazil status --watch --json prints a line of JSON at each refresh"
        )
    with Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            screen = lines(watching.snapshot(), watching.objectives(), out.width, out.height)
            live.update(console.Escaped(screen), refresh=True)
            time.sleep(_REDRAW_SECONDS)


def lag(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Show how far a pipeline is behind its topics, by partition. Nothing is written, no engine is started.

    [cyan]lag[/cyan]: offsets that the next run would read. [cyan]held back[/cyan]: offsets after the start of an open
    transaction, which can't be read yet. [cyan]headroom[/cyan]: offsets between the log start and the position, which
    retention can delete without loss. [cyan]mirrored[/cyan]: the offset in the consumer group, for other tools.
    """
    from frazil.project import Project
    from frazil.report.lag import lag as report

    project = Project.load()
    backlog = report(project, project.pipeline(pipeline))
    if as_json:
        console.print_json({"pipeline": pipeline, **_json(backlog)})
    else:
        print_lag(pipeline, backlog)


def print_lag(pipeline: str, backlog: Lag) -> None:
    """Print the partitions by topic, then the totals."""
    readable = [partition for partition in backlog.partitions if partition.log is not None]
    for topic in dict.fromkeys(partition.topic for partition in readable):
        console.headline(topic)
        console.show_table(_lag_table([partition for partition in readable if partition.topic == topic]))
    if readable:
        console.say()
    for line in _totals(backlog):
        console.say(f"{pipeline}: {line}")


def _lag_table(partitions: Iterable[PartitionLag]) -> Table:
    ends = ("partition", "position", "stable\nend", "high\nwatermark")
    table = console.new_table(numbers=(*ends, "lag", "held\nback", "headroom", "mirrored"), is_tight=True)
    for partition in partitions:
        log = (partition.log.stable_end, partition.log.high_watermark) if partition.log is not None else (None, None)
        position = (partition.state or "none yet") if partition.position is None else f"{partition.position:,}"
        numbers = (*log, partition.lag, partition.held_back, partition.headroom, partition.mirrored)
        table.add_row(str(partition.partition), position, *("-" if n is None else f"{n:,}" for n in numbers))
    return table


def _totals(backlog: Lag) -> Iterator[str]:
    if backlog.n is None:
        yield "never ran, so there is no position yet"
    else:
        yield f"batch {backlog.n} holds the position, in snapshot {backlog.snapshot_id}"
    numbers = (("lag", backlog.total), ("held back", backlog.held_back), ("least headroom", backlog.headroom))
    if figures := [f"{name} {value:,}" for name, value in numbers if value is not None]:
        yield ", ".join(figures)
    yield from _lag_remarks(backlog)
    yield f"complete through {backlog.complete_through or 'an unknown time'}"


def _lag_remarks(backlog: Lag) -> Iterator[str]:
    vanished = {partition.topic for partition in backlog.partitions if partition.state == "vanished"}
    if vanished:
        yield f"not in Kafka any more: {', '.join(sorted(vanished))}"
    for state in ("recreated", "other cluster"):
        topics = {partition.topic for partition in backlog.partitions if partition.state == state}
        if topics:
            yield f"{state}, so the position says nothing about it: {', '.join(sorted(topics))}"
    if backlog.absent:
        yield f"not in Kafka: {', '.join(backlog.absent)}"
    if backlog.group_problem:
        yield f"consumer group {backlog.group} can't be read: {backlog.group_problem}"


def _json(backlog: Lag) -> dict[str, object]:
    return {
        "n": backlog.n,
        "snapshot_id": backlog.snapshot_id,
        "complete_through": backlog.complete_through,
        "lag": backlog.total,
        "held_back": backlog.held_back,
        "headroom": backlog.headroom,
        "group": backlog.group,
        "group_problem": backlog.group_problem,
        "absent": backlog.absent,
        "partitions": [_partition(partition) for partition in backlog.partitions],
    }


def _partition(partition: PartitionLag) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "position": partition.position,
        "log_start": partition.log.log_start if partition.log else None,
        "stable_end": partition.log.stable_end if partition.log else None,
        "high_watermark": partition.log.high_watermark if partition.log else None,
        "lag": partition.lag,
        "held_back": partition.held_back,
        "headroom": partition.headroom,
        "mirrored": partition.mirrored,
        "state": partition.state,
    }
