"""The steps of the demo on a running stack: produce records, trigger the DAG, follow it, let the schedule land the rest,
report on tables and page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from rich.table import Table
from rich.text import Text
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from frazil.cli.operate.produce import PARTITIONS, ensure_topic
from frazil.cli.output import console
from frazil.cli.output.console import Progress
from frazil.cli.reports.history import print_batches
from frazil.cli.reports.sql import show_result
from frazil.error_codes import AIRFLOW_FAILED, INTERNAL, RUN_FAILED
from frazil.errors import Retryable
from frazil.generators import DEMO_BROKEN_PER_THOUSAND, GENERATORS
from frazil.kafka.write.produce import produce
from frazil.maintain.run import Maintained, last_maintenance
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import history
from frazil.report.lag import Landing, landing
from frazil.report.sql import query
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.home import Home
from frazil.runtime.process import until
from frazil.verify.check import verify

if TYPE_CHECKING:
    import pyarrow as pa


_DAG_SECONDS = 60.0
"""Bounds the wait for Airflow to read the DAG files, 5 to 10 s after its start."""

_FIRST_RUN_SECONDS = 75.0
"""Bounds the wait for the schedule's first run, which comes within a minute. If it does not come, the demo goes on."""

_RUN_SECONDS = 300.0
"""Bounds one DAG run: 20 s on two idle cores, and its task may be tried again."""

_SCHEDULE_SECONDS = 180.0
"""Bounds the wait for the schedule: a minute until it fires, then one run."""

_EVERY_SECONDS = 1.0
_ATTEMPTS = 5
_SECOND_SHARE = 10
"""The schedule gets a tenth of the records."""

_LOG_LINES = 12

T = TypeVar("T")


def land_pizzas(project: Project, pipeline: Pipeline, records: int, progress: Progress) -> None:
    """Produce records in two parts, and wait until a triggered run and then scheduled runs have landed them all.

    While the second part lands, a run maintains the table, whether that is due or not.

    Raises:
        Terminal: A run failed, its DAG does not exist, or records that were acknowledged are not in the topic.
        Retryable: A run did not end in time.
    """
    dag, maintenance = f"ingest__{pipeline.name}", f"maintain__{pipeline.name}"
    cluster, topic = project.cluster(pipeline.source.cluster), pipeline.source.topics[0]
    with airflow_login.api(project.home) as api:
        if ensure_topic(cluster, topic, PARTITIONS):
            progress.done(f"topic {topic}: created with {PARTITIONS} partitions")
        _start_schedule(api, dag, progress)
        _wait_for_dag(api, maintenance, progress)
        _retry(lambda: api.unpause(maintenance))  # its first scheduled run finds nothing due
        _send(project, pipeline, records, progress)
        _run_once(project, pipeline, api, dag, progress)
        maintenance_run = _trigger(api, maintenance, {"table": pipeline.tables[0], "force": True}, progress)
        _send(project, pipeline, max(1, records // _SECOND_SHARE), progress)
        if not _landed_by_schedule(project, pipeline, progress):
            _run_once(project, pipeline, api, dag, progress)
        _follow(project.home, api, maintenance_run, lambda: "beside the schedule", progress)


def _start_schedule(api: AirflowApi, dag: str, progress: Progress) -> None:
    """Unpause the DAG, and wait for the run that Airflow starts at once for the interval that just ended.

    Otherwise this run would land the records, and the triggered one would find none.
    """
    began = datetime.now(UTC)
    _wait_for_dag(api, dag, progress)
    _retry(lambda: api.unpause(dag))
    progress.doing(f"{dag}: unpaused, waiting for the schedule's first run")

    def has_ended() -> bool:
        runs = _retry(lambda: api.runs(dag))
        return all(run.has_finished for run in runs) and any(run.end_date and run.end_date > began for run in runs)

    if until(has_ended, _FIRST_RUN_SECONDS, _EVERY_SECONDS):
        progress.done(f"{dag}: the schedule's first run is over")


def _send(project: Project, pipeline: Pipeline, count: int, progress: Progress) -> None:
    cluster, topic = project.cluster(pipeline.source.cluster), pipeline.source.topics[0]
    before = landing(project, pipeline).produced
    pizzas = GENERATORS["pizzas"](count, broken_per_thousand=DEMO_BROKEN_PER_THOUSAND)
    delivery = produce(
        cluster, topic, pizzas, progress=lambda n: progress.counting(f"produced {n:,} of {count:,} records")
    )
    progress.done(
        f"topic {topic}: {delivery.count:,} records produced in {delivery.seconds:.1f} s,"
        f" {DEMO_BROKEN_PER_THOUSAND} of every thousand broken on purpose"
    )
    growth = landing(project, pipeline).produced - before
    if growth < delivery.count:
        raise INTERNAL.terminal(
            f"topic {topic}: {delivery.count} records were acknowledged, its offsets grew by {growth}"
        )


def _wait_for_dag(api: AirflowApi, dag: str, progress: Progress) -> None:
    progress.doing(f"waiting for Airflow to read {dag}")
    if not until(lambda: dag in _retry(api.dag_ids), _DAG_SECONDS, _EVERY_SECONDS):
        errors = [f"{error.filename}: {error.stack_trace.strip().splitlines()[-1]}" for error in api.import_errors()]
        raise AIRFLOW_FAILED.terminal(
            f"Airflow does not know {dag} after {_DAG_SECONDS:.0f} s",
            next_step="; ".join(errors) or "see the DAG processor's log",
        )


def _run_once(project: Project, pipeline: Pipeline, api: AirflowApi, dag: str, progress: Progress) -> None:
    """Trigger a run and follow it. A scheduled run may be at work too: the later of both finds nothing to do."""
    before = landing(project, pipeline).landed
    run = _trigger(api, dag, {}, progress)
    firsts: list[float] = []

    def progress_text() -> str:
        counts = landing(project, pipeline)
        if counts.landed > before and not firsts:
            firsts.append(time.monotonic() - run.began)
            progress.done(f"{dag}: the first batch landed {firsts[0]:.1f} s after the trigger")
        return _landing_text(counts)

    _follow(project.home, api, run, progress_text, progress)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that the demo triggered, and the time of the trigger by the monotonic clock."""

    dag: str
    id: str
    began: float


def _trigger(api: AirflowApi, dag: str, conf: Mapping[str, Any], progress: Progress) -> _Run:
    run_id = f"demo__{datetime.now(UTC).isoformat(timespec='seconds')}"
    api.trigger(dag, run_id=run_id, conf=conf, note="triggered by `frazil demo`")
    progress.done(f"{dag}: run {run_id} triggered through the REST API")
    return _Run(dag, run_id, time.monotonic())


def _follow(home: Home, api: AirflowApi, run: _Run, landed_so_far: Callable[[], str], progress: Progress) -> None:
    """Show the progress of a run until it has ended.

    Raises:
        Terminal: It failed.
        Retryable: It did not end in time.
    """
    state = ""

    def has_ended() -> bool:
        nonlocal state
        tasks = _retry(lambda: api.task_instances(run.dag, run.id))
        state = _retry(lambda: api.run(run.dag, run.id)).state
        steps = ", ".join(f"{task.task_id} {task.state or 'waiting'}" for task in tasks)
        progress.doing(f"{run.dag}: {state} ({steps}); {landed_so_far()}")
        return state in ("success", "failed")

    if not until(has_ended, _RUN_SECONDS, _EVERY_SECONDS):
        raise RUN_FAILED.retryable(f"run {run.id} of {run.dag} is still {state} after {_RUN_SECONDS:.0f} s")
    if state == "failed":
        raise RUN_FAILED.terminal(
            f"run {run.id} of {run.dag} failed\n{_last_log(api, run.dag, run.id)}",
            next_step=f"see {home.airflow_url}",
        )
    progress.done(f"{run.dag}: run succeeded after {time.monotonic() - run.began:.1f} s; {landed_so_far()}")


def _landed_by_schedule(project: Project, pipeline: Pipeline, progress: Progress) -> bool:
    began = time.monotonic()

    def all_landed() -> bool:
        counts = landing(project, pipeline)
        progress.doing(f"waiting for the schedule ({pipeline.interval}); {_landing_text(counts)}")
        return counts.is_complete

    if not until(all_landed, _SCHEDULE_SECONDS, _EVERY_SECONDS):
        progress.done(f"the schedule has not picked up everything after {_SCHEDULE_SECONDS:.0f} s")
        return False
    progress.done(
        f"the schedule picked up the rest after {time.monotonic() - began:.1f} s; {_landing_text(landing(project, pipeline))}"
    )
    return True


def _landing_text(counts: Landing) -> str:
    return f"{counts.landed:,} of {counts.produced:,} records landed"


def _retry(request: Callable[[], T]) -> T:
    """Retry a request while Airflow is too busy to answer: its metadata database is one SQLite file."""
    retrying = Retrying(
        retry=retry_if_exception_type(Retryable),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_fixed(_EVERY_SECONDS),
        reraise=True,
    )
    return retrying(request)


def _last_log(api: AirflowApi, dag: str, run_id: str) -> str:
    parts = []
    for task in api.task_instances(dag, run_id):
        if task.state == "failed":
            lines = api.log(dag, run_id, task.task_id, try_number=task.try_number).splitlines()
            parts.append(f"the log of task {task.task_id} ends with\n" + "\n".join(lines[-_LOG_LINES:]))
    return "\n".join(parts)


_SAMPLE_ROWS = 5
_SHORT = 20
"""Characters of a value that is never cut. Order ids have 39, toppings about as many."""


def print_report(project: Project, pipeline: Pipeline) -> bool:
    """Print rows, batches, dead letters, maintenance and the reconciliation of the pipeline.

    Returns:
        Whether every produced record is accounted for.
    """
    table, letters = pipeline.destinations[0].table, pipeline.dead_letters_table
    names = ", ".join(f'"{column}"' for column in pipeline.destinations[0].columns)
    # The pipeline file's model has checked the names of columns and tables, so they can't inject SQL.
    sample = f"SELECT {names} FROM {table} LIMIT {_SAMPLE_ROWS}"  # noqa: S608
    stores = f"SELECT store_id, count(*) AS pizzas FROM {table} GROUP BY store_id ORDER BY 2 DESC, 1 LIMIT 10"  # noqa: S608
    reasons = f"SELECT code, stage, count(*) AS records FROM {letters} GROUP BY ALL ORDER BY records DESC, code"  # noqa: S608
    console.headline(f"Rows of {table}")
    out = console.out()
    out.print(_sample_table(query(project, sample), out.width))
    console.headline("The ten stores with most pizzas")
    show_result(query(project, stores))
    console.headline(f"Snapshots of {table}")
    print_batches(history(project, pipeline))
    console.headline(f"Dead letters in {letters}")
    show_result(query(project, reasons))
    console.headline(f"Maintenance of {table}")
    print_maintenance(last_maintenance(project, pipeline).get(table))
    return _print_reconciliation(project, pipeline)


def print_maintenance(maintained: Maintained | None) -> None:
    """Print the last maintenance result, which the table's properties have."""
    if maintained is None:
        console.say("no maintenance of the table is recorded")
        return
    before, after = maintained.outcome.before, maintained.outcome.after
    console.say(
        f"health {before.score} -> {after.score}, {before.files:,} -> {after.files:,} files,"
        f" {before.bytes:,} -> {after.bytes:,} bytes, {before.snapshots:,} -> {after.snapshots:,} snapshots"
    )
    for step in maintained.outcome.steps:
        console.say(step.line)


def _print_reconciliation(project: Project, pipeline: Pipeline) -> bool:
    """Print whether each record became a row or a dead letter, by the comparison of `frazil verify`."""
    console.headline("Reconciliation")
    produced, verification = landing(project, pipeline).produced, verify(project, pipeline)
    agrees = verification.is_clean
    for table in dict.fromkeys(partition.table for partition in verification.partitions):
        partitions = [partition for partition in verification.partitions if partition.table == table]
        rows, letters, filtered = (
            sum(getattr(partition, name) for partition in partitions) for name in ("rows", "letters", "filtered")
        )
        total = f"rows {rows} + dead letters {letters}" + (f" + filtered {filtered}" if filtered else "")
        # Only a single table must have all records; of several tables, each has those that are meant for it.
        difference = produced - rows - letters - filtered if len(pipeline.destinations) == 1 else 0
        agrees = agrees and not difference
        line = Text(f"produced {produced} {'=' if agrees else '!='} {total}", style="green" if agrees else "bold red")
        console.out().print(line if len(pipeline.destinations) == 1 else Text(f"{table}: {total}"), soft_wrap=True)
        if difference:
            console.say(f"{abs(difference)} records {'are missing' if difference > 0 else 'occur too often'}")
    for mismatch in verification.differences:
        console.say(str(mismatch))
    return agrees


def _sample_table(rows: pa.Table, page_width: int) -> Table:
    """A table that fits the width of a page: short values stay whole, long ones are cut to equal widths."""
    cells = {
        name: [str(value) for value in column.to_pylist()]
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    widths = {name: max(map(len, [name, *values])) for name, values in cells.items()}
    long = [name for name, width in widths.items() if width > _SHORT]
    short_width = sum(width for name, width in widths.items() if name not in long) + 2 * len(widths)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in widths.items():
        room = max(len(name), (page_width - short_width) // len(long)) if name in long else width
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=min(width, room))
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


_READ_SECONDS: Final = 120.0
"""Bounds the wait until the page has read the pipeline, which its first request starts: 1-2 s on two idle cores."""

_STATE: Final = re.compile(r'class="state state-\w+">.*?</svg>\s*(\w+)</span>', re.DOTALL)
_READ: Final = re.compile(r'class="sub">Read <time datetime="([^"]+)"')
_FIGURE: Final = re.compile(r"<dt>([^<]+)</dt><dd>([^<]+)")
_HEALTH: Final = re.compile(
    r'title="([^"]+)">[^<]+</a></td><td>[^<]+</td><td class="num">\s*<span class="health.*?</meter>(\d+)'
)


@dataclass(frozen=True, slots=True)
class PageReading:
    """A pipeline's state as the page shows it."""

    state: str
    rows: str
    dead: str
    health: dict[str, int]


def print_page(home: Home, pipeline: Pipeline, progress: Progress) -> None:
    """Open the pipeline's page, and print its address and what it shows.

    Raises:
        Retryable: Airflow does not answer, or the page has not read the pipeline in time.
        Terminal: Airflow refuses the login or the page.
    """
    with progress, airflow_login.api(home) as api:
        progress.doing("opening the page")
        table = pipeline.destinations[0].table
        page_state = read_page(api, pipeline.name, table)
    console.headline("The page in Airflow")
    console.say(page_address(home, pipeline.name))
    console.say(
        f"{pipeline.name}: {page_state.state}, {page_state.rows} rows and {page_state.dead} dead letters landed,"
        f" health of {table} {page_state.health[table]}"
    )


def page_address(home: Home, pipeline: str) -> str:
    """Return the address of a pipeline's page within Airflow's UI."""
    return f"{home.airflow_url}/plugin/frazil{_path(pipeline)}"


def read_page(api: AirflowApi, pipeline: str, table: str) -> PageReading:
    """Return the state of a pipeline by its page. The page must have read it after this call, with the health of a table.

    Raises:
        Retryable: The page did not in time.
    """
    called, readings = datetime.now(UTC), list[PageReading]()

    def read() -> bool:
        html = api.page(_path(pipeline))
        instant, page_state = read_at(html), parse_page(html)
        if instant is not None and instant >= called and table in page_state.health:
            readings.append(page_state)
        return bool(readings)

    if not until(read, _READ_SECONDS, 1):
        raise RUN_FAILED.retryable(f"the page did not show pipeline {pipeline} within {_READ_SECONDS:.0f} s")
    return readings[-1]


def read_at(html: str) -> datetime | None:
    """Return when the page last read its pipeline; None if it has not yet, and shows dashes."""
    match = _READ.search(html)
    return None if match is None else datetime.fromisoformat(match[1])


def parse_page(html: str) -> PageReading:
    """Return the figures of a pipeline's page."""
    state, figures = _STATE.search(html), dict(_FIGURE.findall(html))
    return PageReading(
        state=state[1] if state else "no state",
        rows=figures.get("Rows, last day", "no"),
        dead=figures.get("Dead letters, last day", "no"),
        health={table: int(score) for table, score in _HEALTH.findall(html)},
    )


def _path(pipeline: str) -> str:
    return f"/frazil/pipelines/{quote(pipeline, safe='')}"
