"""Renders templates as pages and serves style sheets and scripts. Writes numbers, times and texts of records for people, and
computes the coordinates of small drawings.
"""

# ruff: noqa: PLR2004 - bounds of units and of decimals

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup, escape

from frazil.monitor.condition import STATES, spoken
from frazil.pipeline.channels import visible
from frazil.report.dead_letters_summary import template_environment
from frazil_airflow.page.access import run_of

NONE = "–"  # noqa: RUF001 - a dash of the width of a figure
"""Stands in place of an unknown value."""

_STEPS = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None) -> str:
    """A whole number with separators of thousands."""
    return NONE if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """A number in about five characters: `9,999`, `12.3k`, `4.6M`."""
    if value is None:
        return NONE
    for size, suffix in _STEPS:
        if abs(value) >= size:
            unit = 1_000 if suffix == "k" else size
            shown = value / unit
            return f"{shown:.0f}{suffix}" if shown >= 100 else f"{shown:.1f}{suffix}"
    return f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """A duration in its two largest units; below ten seconds with tenths."""
    if value is None:
        return NONE
    if 0 < value < 0.1:
        return "<0.1 s"
    return f"{value:.1f} s" if 0 < value < 10 else spoken(value)


def brief(value: float | None) -> str:
    """A duration in its largest unit, for columns: `42 s`, `2.1 min`, `5 h`."""
    if value is None:
        return NONE
    if value < 60:
        return seconds(value)
    unit, length = next((unit, length) for unit, length in _UNITS if value >= length)
    shown = value / length
    return f"{shown:.1f} {unit}" if shown < 9.95 else f"{shown:.0f} {unit}"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return NONE
    unit = 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_SIZES[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_SIZES[unit]}"


def instant(moment: datetime | None) -> str:
    """An instant to the second, in UTC as in tables, logs and commands."""
    return NONE if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long ago something was, in its largest unit."""
    return "never" if moment is None else f"{brief((now - moment).total_seconds())} ago"


def plain(text: str) -> str:
    """A text from a record without characters that are invisible or change the direction of reading."""
    return visible(text, "\n\t")


def code(text: str) -> Markup:
    """Frazil's own text as HTML, with text between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


PHASES = ("plan", "stage", "audit", "decide", "forward")
"""Phases in the order in which a batch goes through them. Phases that only a newer Frazil knows come after these."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a batch: number (for its colour), name, seconds, and its place in a drawing 100 wide."""

    number: int
    name: str
    seconds: float
    x: float
    width: float


def bars(values: Sequence[float], width: float = 96, height: float = 20, gap: float = 0.8) -> str:
    """The path of an SVG with a bar per value. The highest bar fills the height; each value above zero has a visible bar."""
    most = max(values, default=0)
    step = width / max(1, len(values))
    paths = []
    for number, value in enumerate(values):
        if value > 0:
            high = max(1.5, height * value / most)
            paths.append(f"M{number * step:.1f} {height}v-{high:.1f}h{step - gap:.1f}v{high:.1f}z")
    return "".join(paths)


def phases(seconds: Mapping[str, float]) -> tuple[Phase, ...]:
    """The phases of a batch in their order, each with a width by its share of the duration."""
    phase_names = [name for name in PHASES if name in seconds]
    names = [*phase_names, *sorted(set(seconds) - set(phase_names))]
    whole = sum(max(0.0, seconds[name]) for name in names)
    shares: list[Phase] = []
    x = 0.0
    for number, name in enumerate(names):
        width = 100 * max(0.0, seconds[name]) / whole if whole else 0.0
        shares.append(Phase(number, name, seconds[name], round(x, 2), round(width, 2)))
        x += width
    return tuple(shares)


FOLDER = Path(__file__).with_name("static")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

router = APIRouter()


@router.get("/static/{name:path}")
def static_file(request: Request, name: str) -> Response:
    """Serve a file, or 304 if the browser has it. The address of a changed file differs, so browsers may cache it."""
    content = _files().get(name)
    if content is None:
        raise HTTPException(404, "There is no such file")
    headers = {"ETag": f'"{digest(name)}"', "Cache-Control": "private, max-age=86400"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)


@cache
def digest(name: str) -> str:
    """A digest of a static file's content."""
    return hashlib.sha256(_files()[name]).hexdigest()[:16]


@cache
def _files() -> dict[str, bytes]:
    """Content of all static files by name. A requested name is only looked up here and never becomes a path."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }


def render(request: Request, template: str, **values: Any) -> HTMLResponse:
    """Render a template as a page."""
    root = request.scope.get("root_path", "").rstrip("/")
    home = root.rpartition("/")[0]  # the path of Airflow itself
    return HTMLResponse(_environment().get_template(template).render(root=root, home=home, **values))


@cache
def _environment() -> Environment:
    environment = template_environment("frazil_airflow.page")
    environment.filters |= {
        "number": number,
        "short": short,
        "seconds": seconds,
        "brief": brief,
        "size": size,
        "instant": instant,
        "plain": plain,
        "bars": bars,
        "phases": phases,
        "code": code,
        "segment": lambda text: quote(str(text), safe=""),
    }
    urgent_first = sorted(STATES, key=lambda state: state == "Paused")  # a person chose to pause: not urgent
    environment.globals |= {"ago": ago, "run_of": run_of, "static": _static, "STATES": urgent_first}
    return environment


def _static(root: str, name: str) -> str:
    return f"{root}/static/{name}?v={digest(name)}"
