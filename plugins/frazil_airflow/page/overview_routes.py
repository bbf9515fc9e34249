"""All pipelines that a person may see."""

# No `from __future__ import annotations`: FastAPI reads the signatures.

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from frazil.monitor.state import STATES
from frazil_airflow.page.asking import AskingDep, Standing
from frazil_airflow.page.rendering import render

PAGE_SIZE = 50

router = APIRouter()

_EARLIEST = datetime.min.replace(tzinfo=UTC)

_KEYS: dict[str, Callable[[Standing], Any]] = {
    "name": lambda of: of.pipeline.name,
    "state": lambda of: (of.state == "Paused", STATES.index(of.state)),  # a person chose to pause: that can wait
    "lag": lambda of: -(of.condition.lag or 0),
    "freshness": lambda of: -(of.condition.freshness.p95 or 0.0),
    "commit": lambda of: of.condition.last_commit or _EARLIEST,
    "rows": lambda of: -of.condition.rows,
    "dead": lambda of: -of.condition.dead,
    "health": lambda of: min(of.condition.health.values(), default=101),
}
"""What columns are sorted by: what needs a person first."""


@router.get("/")
def overview(  # noqa: PLR0913, PLR0917 - filters of a list
    request: Request,
    asking: AskingDep,
    q: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    sort: Annotated[str, Query(max_length=20)] = "state",
    order: Annotated[str, Query(pattern="^(up|down)$")] = "up",
    page: Annotated[int, Query(ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """One line per pipeline, those that need a person first."""
    standings = asking.standings()
    found = sorted_by(chosen(standings, q, state), sort if sort in _KEYS else "state", is_down=order == "down")
    pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(page, pages)
    return render(
        request,
        "overview.html.j2",
        broken=asking.broken(),
        standings=found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        counts=Counter(of.state for of in standings),
        total=len(standings),
        found=len(found),
        view={"q": q, "state": state, "sort": sort if sort in _KEYS else "state", "order": order},
        page=page,
        pages=pages,
        now=datetime.now(UTC),
    )


def chosen(standings: Sequence[Standing], text: str, state: str) -> list[Standing]:
    """Those of a state, with a text in their name, owner or tables."""
    text = text.strip().lower()
    return [
        of
        for of in standings
        if (not state or of.state == state)
        and (
            not text or any(text in part.lower() for part in (of.pipeline.name, of.pipeline.owner, *of.pipeline.tables))
        )
    ]


def sorted_by(standings: Sequence[Standing], column: str, *, is_down: bool) -> list[Standing]:
    """In the order of a column; equal ones by name."""
    by_name = sorted(standings, key=lambda of: of.pipeline.name)
    return sorted(by_name, key=_KEYS[column], reverse=is_down)
