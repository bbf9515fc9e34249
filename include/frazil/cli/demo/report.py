"""Output at the end of a demo: the table, its snapshots, the dead letters, the check of counts, and the page in Airflow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from frazil.cli.output import console
from frazil.cli.output.progress import Progress
from frazil.cli.reports.history import print_batches
from frazil.cli.reports.sql import show_result
from frazil.error_codes import RUN_FAILED
from frazil.maintain.last import Maintained, last_maintenance
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.report.history import history
from frazil.report.landing import landing
from frazil.report.sql import query
from frazil.runtime import airflow_login
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.home import Home
from frazil.runtime.waiting import until
from frazil.verify.check import verify

if TYPE_CHECKING:
    import pyarrow as pa


_SAMPLE_ROWS = 5
_WHOLE = 20
"""Values up to this length are never cut; order ids have 39 digits, toppings as much text."""


def print_report(project: Project, pipeline: Pipeline) -> bool:
    """Print the results of the pipeline.

    Returns:
        Whether every produced record is accounted for.
    """
    table, letters = pipeline.destinations[0].table, pipeline.dead_letters_table
    names = ", ".join(f'"{column}"' for column in pipeline.destinations[0].columns)
    # Names come from the pipeline file, whose model lets nothing else pass.
    sample = f"SELECT {names} FROM {table} LIMIT {_SAMPLE_ROWS}"  # noqa: S608
    stores = f"SELECT store_id, count(*) AS pizzas FROM {table} GROUP BY store_id ORDER BY 2 DESC, 1 LIMIT 10"  # noqa: S608
    reasons = f"SELECT code, stage, count(*) AS records FROM {letters} GROUP BY ALL ORDER BY records DESC, code"  # noqa: S608
    console.headline(f"Rows of {table}")
    out = console.out()
    out.print(_sample(query(project, sample), out.width))
    console.headline("The ten stores with most pizzas")
    show_result(query(project, stores))
    console.headline(f"Snapshots of {table}")
    print_batches(history(project, pipeline))
    console.headline(f"Dead letters in {letters}")
    show_result(query(project, reasons))
    console.headline(f"Maintenance of {table}")
    print_maintenance(last_maintenance(project, pipeline).get(table))
    return _print_reconciliation(project, pipeline)


def print_maintenance(noted: Maintained | None) -> None:
    """Print the last maintenance result that is stored in the table's properties."""
    if noted is None:
        console.say("nothing is noted in the table")
        return
    before, after = noted.outcome.before, noted.outcome.after
    console.say(
        f"health {before.score} -> {after.score}, {before.files:,} -> {after.files:,} files,"
        f" {before.bytes:,} -> {after.bytes:,} bytes, {before.snapshots:,} -> {after.snapshots:,} snapshots"
    )
    for step in noted.outcome.steps:
        console.say(step.line)


def _print_reconciliation(project: Project, pipeline: Pipeline) -> bool:
    """Print whether each record became a row or a dead letter, as `frazil verify` compares them, record by record."""
    console.headline("Reconciliation")
    produced, verification = landing(project, pipeline).produced, verify(project, pipeline)
    agrees = verification.is_clean
    for table in dict.fromkeys(partition.table for partition in verification.partitions):
        partitions = [partition for partition in verification.partitions if partition.table == table]
        rows, letters, filtered = (
            sum(getattr(partition, name) for partition in partitions) for name in ("rows", "letters", "filtered")
        )
        total = f"rows {rows} + dead letters {letters}" + (f" + filtered {filtered}" if filtered else "")
        # Of several tables each has the records that are meant for it.
        difference = produced - rows - letters - filtered if len(pipeline.destinations) == 1 else 0
        agrees = agrees and not difference
        line = Text(f"produced {produced} {'=' if agrees else '!='} {total}", style="green" if agrees else "bold red")
        console.out().print(line if len(pipeline.destinations) == 1 else Text(f"{table}: {total}"), soft_wrap=True)
        if difference:
            console.say(f"{abs(difference)} records {'are missing' if difference > 0 else 'are there too often'}")
    for wrong in verification.differences:
        console.say(str(wrong))
    return agrees


def _sample(rows: pa.Table, page: int) -> Table:
    """A table that fits a page of so many columns: short values stay whole, the others share the room and are cut."""
    cells = {
        name: [str(value) for value in column.to_pylist()]
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    widths = {name: max(map(len, [name, *values])) for name, values in cells.items()}
    cut = [name for name, width in widths.items() if width > _WHOLE]
    whole_width = sum(width for name, width in widths.items() if name not in cut) + 2 * len(widths)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in widths.items():
        room = max(len(name), (page - whole_width) // len(cut)) if name in cut else width
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=min(width, room))
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


_READ_SECONDS: Final = 120.0
"""Bounds the wait until the page has read the pipeline: it begins with the first look, and takes 1-2 s on two idle cores."""

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
    """Return what the page says of a pipeline now: of a reading that was begun after this call, the health of a table in it.

    Raises:
        Retryable: It has not said so in time.
    """
    called, readings = datetime.now(UTC), list[PageReading]()

    def read() -> bool:
        html = api.page(_path(pipeline))
        instant, page_state = read_at(html), parse_page(html)
        if instant is not None and instant >= called and table in page_state.health:
            readings.append(page_state)
        return bool(readings)

    if not until(read, _READ_SECONDS, 1):
        raise RUN_FAILED.retryable(f"the page has not read pipeline {pipeline} within {_READ_SECONDS:.0f} s")
    return readings[-1]


def read_at(html: str) -> datetime | None:
    """Return when the pipeline on a page was last read; None if not yet, and the page shows dashes."""
    match = _READ.search(html)
    return None if match is None else datetime.fromisoformat(match[1])


def parse_page(html: str) -> PageReading:
    """Return what a pipeline's page says."""
    state, figures = _STATE.search(html), dict(_FIGURE.findall(html))
    return PageReading(
        state=state[1] if state else "no state",
        rows=figures.get("Rows, last day", "no"),
        dead=figures.get("Dead letters, last day", "no"),
        health={table: int(score) for table, score in _HEALTH.findall(html)},
    )


def _path(pipeline: str) -> str:
    return f"/frazil/pipelines/{quote(pipeline, safe='')}"
