"""`frazil status`: how the pipelines are doing, below the processes of the embedded stack if there is one. `frazil
lag`: how far one is behind its topics.
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
"""How the words look."""

_READING = "reading"

_WIDE = 120
"""Columns from which freshness and counts find room beside the reason."""

_AROUND = 4
"""Lines of a screen that are no pipelines: the head, what does not fit, the sum, and the cursor's."""

Conditions = Mapping[str, Condition | None]
Promises = Mapping[str, float | None]


def lines(conditions: Conditions, promises: Promises, width: int, height: int | None = None) -> Group:
    """Pipelines and captures, the most urgent first, and their number per state.

    Args:
        conditions: By unique name; None of one that was not read yet.
        promises: Freshness objective of each.
        width: Columns of the terminal.
        height: Its lines; what does not fit is counted. None: all.
    """
    judged = {name: _judged(condition, promises.get(name)) for name, condition in conditions.items()}
    names = sorted(judged, key=lambda name: (_urgency(judged[name][0]), name))
    shown = names if height is None else names[: max(1, height - _AROUND)]
    table = _table(width, has_why=_shows_reasons(width, height))
    for name in shown:
        state, why = judged[name]
        cells = _cells(name, conditions[name], state, width)
        table.add_row(*cells, *([why] if len(table.columns) > len(cells) else []))
    reasons = (
        []
        if _shows_reasons(width, height)
        else [_reason(name, *judged[name]) for name in shown if _matters(judged[name][0])]
    )
    below = [*reasons, _sum(judged, Counter(word for word, _ in judged.values()))]
    if len(shown) < len(names):
        hidden = Counter(judged[name][0] for name in names[len(shown) :])
        below.insert(0, Text(f"… and {len(names) - len(shown)} more: {_counted(hidden)}", "dim"))
    return Group(table, *below)


def facts(conditions: Conditions, promises: Promises, home: Home) -> dict[str, Any]:
    """The embedded stack, the pipelines and the captures in JSON's terms."""
    from frazil.devstack import stack

    bodies: dict[str, dict[str, Any]] = {"pipelines": {}, "captures": {}}
    for key, condition in conditions.items():
        state, why = _judged(condition, promises.get(key))
        body = {"state": state, "why": why} | ({} if condition is None else condition.to_body())
        bodies["captures" if "." in key else "pipelines"][key.rpartition(".")[2]] = body
    return {**stack.status(home).to_json(), **bodies}


def _judged(condition: Condition | None, promise: float | None) -> tuple[str, str]:
    return (_READING, "") if condition is None else state_of(condition, promise)


def _urgency(word: str) -> int:
    """Sort key: pipelines that need attention first, then paused ones, which somebody paused on purpose, then healthy ones."""
    order = ("Refused", "Failed", "Degraded", "Behind", _READING, "Paused", "Running", "Idle")
    return order.index(word)


def _shows_reasons(width: int, height: int | None) -> bool:
    """Whether the table itself shows the reasons. If there is no room, they are printed whole below it."""
    return height is not None or width >= _WIDE


def _matters(word: str) -> bool:
    return word not in ("Idle", "Running", _READING)


def _reason(name: str, word: str, why: str) -> Text:
    return Text.assemble((f"{_title(name)}: ", "bold"), (word, STYLES.get(word, "")), f", {why}")


def _title(key: str) -> str:
    """The name of a pipeline, and of a capture with that word before it."""
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


def _cells(name: str, condition: Condition | None, word: str, width: int) -> list[str | Text]:
    state = Text(word, STYLES.get(word, "dim"))
    if condition is None:
        return [_title(name), state, *[""] * (6 if width >= _WIDE else 3)]
    fresh = "-" if condition.freshness.p95 is None else _short(condition.freshness.p95)
    wide: list[str | Text] = [
        fresh,
        f"{condition.rows:,}",
        Text(f"{condition.dead:,}", "yellow" if condition.dead else ""),
    ]
    if condition.is_capture:
        wide = ["", "", ""]
    lag = "-" if condition.lag is None else f"{condition.lag:,}{' files' if condition.is_capture else ''}"
    waits = "-" if condition.lag_seconds is None else "" if condition.lag == 0 else _short(condition.lag_seconds)
    return [
        _title(name),
        state,
        lag,
        waits,
        *(wide if width >= _WIDE else ()),
        _ago(condition.last_commit, condition.read_at),
    ]


def _short(seconds: float) -> str:
    """A duration in its largest unit: `2 h`, `48 s`."""
    return " ".join(spoken(seconds).split()[:2])


def _ago(instant: datetime | None, until: datetime) -> str:
    return "never" if instant is None else f"{_short((until - instant).total_seconds())} ago"


def _sum(keys: Iterable[str], counted: Counter[str]) -> Text:
    captures = sum("." in key for key in keys)
    subjects = f"{counted.total() - captures} pipelines" + (f", {captures} captures" if captures else "")
    return Text(f"{subjects}: {_counted(counted)}" if counted else "there are no pipelines", "bold")


def _counted(counted: Counter[str]) -> str:
    return ", ".join(f"{counted[word]} {word}" for word in (*STATES, _READING) if counted[word])


_FIRST_SECONDS = 20.0
"""How long a single look may take: a broker that is away is known after 8 s, but there may be many pipelines."""

_AT_ONCE = 16
"""Pipelines that are looked at together: somebody waits."""

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

    The states, by urgency: Paused, Refused, Failed, Degraded, Behind, Running, Idle. [cyan]lag[/cyan]: records that are not
    read yet; for a capture, files with new lines. [cyan]waits[/cyan]: how long the oldest of them has waited.
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

    watching = Watch(files.project, keys, runs_and_refusals, seconds, threads=_AT_ONCE)
    with watching:
        if watch:
            _watch(watching, home, as_json=as_json)
        else:
            watching.wait(_FIRST_SECONDS)
            _show(watching, home, as_json=as_json)


def _try_airflow(home: Home) -> None:
    """Say why the Airflow that the environment names does not give its runs: they would look like none.

    Raises:
        Terminal: Its password is not given.
    """
    from frazil.runtime.airflow_login import PASSWORD_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, any_api

    with any_api(home) as airflow:
        try:
            airflow.paused("ingest__")
        except FrazilError as problem:
            step = f"correct {URL_VARIABLE}, and {PASSWORD_VARIABLE} or {TOKEN_VARIABLE}; the tables' states are shown without"
            console.show_failure("runs unknown", problem.message_with_code, step)


def _keys(project: Project, name: str) -> list[str]:
    """Keys of the pipeline and the capture of a name: they may share it.

    Raises:
        Terminal: Nothing has it.
    """
    keys = [capture.unique_name for capture in project.captures.usable.values() if capture.name == name]
    return keys if keys and name not in project.pipelines.usable else [*keys, project.pipeline(name).unique_name]


def _show(watching: Watch, home: Home, *, as_json: bool) -> None:

    if as_json:
        console.print_json(facts(watching.snapshot(), watching.promises(), home))
        return
    out = console.out()
    out.print(lines(watching.snapshot(), watching.promises(), out.width))


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
            screen = lines(watching.snapshot(), watching.promises(), out.width, out.height)
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
        position = (
            "none yet"
            if partition.position is None and not partition.state
            else partition.state
            if partition.position is None
            else f"{partition.position:,}"
        )
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
    yield from _oddities(backlog)
    yield f"complete through {backlog.complete_through or 'an instant that is not known'}"


def _oddities(backlog: Lag) -> Iterator[str]:
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
