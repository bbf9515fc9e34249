"""What a demo shows at its very end: the page in Airflow, opened as a browser does, and what it says of the pipeline."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from frazil.cli import console
from frazil.cli.progress import Progress
from frazil.errors import Retryable
from frazil.local import airflow
from frazil.local.airflow_api import AirflowApi
from frazil.local.home import Home
from frazil.local.waiting import until
from frazil.pipeline.model import Pipeline

_READ_SECONDS: Final = 120.0
"""Bounds the wait until the page has read the pipeline: it begins with the first look, and takes 1-2 s on two idle cores."""

_STATE: Final = re.compile(r'class="state state-\w+">.*?</svg>\s*(\w+)</span>', re.DOTALL)
_READ: Final = re.compile(r'class="sub">Read <time datetime="([^"]+)"')
_FIGURE: Final = re.compile(r"<dt>([^<]+)</dt><dd>([^<]+)")
_HEALTH: Final = re.compile(
    r'title="([^"]+)">[^<]+</a></td><td>[^<]+</td><td class="num">\s*<span class="health.*?</meter>(\d+)'
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page says of a pipeline.

    Attributes:
        state: The state's word.
        rows, dead: Rows and dead letters of the last day, as they are written there.
        health: Table -> 0 to 100.
    """

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
    with progress, airflow.api(home) as api:
        progress.doing("opening the page")
        table = pipeline.destinations[0].table
        seen = look(api, pipeline.name, table)
    console.headline("The page in Airflow")
    console.say(page_address(home, pipeline.name))
    console.say(
        f"{pipeline.name}: {seen.state}, {seen.rows} rows and {seen.dead} dead letters landed,"
        f" health of {table} {seen.health[table]}"
    )


def page_address(home: Home, pipeline: str) -> str:
    """Return where a person finds a pipeline, in Airflow's frame."""
    return f"{home.airflow_url}/plugin/frazil{_path(pipeline)}"


def look(api: AirflowApi, pipeline: str, table: str) -> Seen:
    """Return what the page says of a pipeline now: of a reading that was begun after this call, the health of a table in it.

    Raises:
        Retryable: It has not said so in time.
    """
    called, found = datetime.now(UTC), list[Seen]()

    def read() -> bool:
        html = api.page(_path(pipeline))
        at, seen = read_at(html), seen_in(html)
        if at is not None and at >= called and table in seen.health:
            found.append(seen)
        return bool(found)

    if not until(read, _READ_SECONDS, 1):
        raise Retryable(f"the page has not read pipeline {pipeline} within {_READ_SECONDS:.0f} s")
    return found[-1]


def read_at(html: str) -> datetime | None:
    """Return when the pipeline was read that a page shows; None if it was not yet: its figures are dashes then."""
    at = _READ.search(html)
    return None if at is None else datetime.fromisoformat(at[1])


def seen_in(html: str) -> Seen:
    """Return what a pipeline's page says."""
    state, figures = _STATE.search(html), dict(_FIGURE.findall(html))
    return Seen(
        state=state[1] if state else "no state",
        rows=figures.get("Rows, last day", "no"),
        dead=figures.get("Dead letters, last day", "no"),
        health={table: int(score) for table, score in _HEALTH.findall(html)},
    )


def _path(pipeline: str) -> str:
    return f"/frazil/pipelines/{quote(pipeline, safe='')}"
