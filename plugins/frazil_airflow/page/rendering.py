"""Templates become pages. Whatever is put into one is escaped: names, messages and records come from others."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from frazil.monitor.state import STATES
from frazil_airflow.page import marks, words
from frazil_airflow.page.naming import run_of
from frazil_airflow.page.static_routes import digest


def render(request: Request, template: str, **values: Any) -> HTMLResponse:
    """Return a page."""
    root = request.scope.get("root_path", "").rstrip("/")
    return HTMLResponse(_environment().get_template(template).render(root=root, home=_home(root), **values))


def _home(root: str) -> str:
    """Path of Airflow itself: what stands before the prefix of this application."""
    return root.rpartition("/")[0]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("frazil_airflow.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.number,
        "short": words.short,
        "seconds": words.seconds,
        "brief": words.brief,
        "size": words.size,
        "instant": words.instant,
        "plain": words.plain,
        "bars": marks.bars,
        "phases": marks.phases,
        "code": words.code,
        "segment": lambda text: quote(str(text), safe=""),
    }
    environment.globals |= {"ago": words.ago, "run_of": run_of, "static": _static, "STATES": STATES}
    return environment


def _static(root: str, name: str) -> str:
    return f"{root}/static/{name}?v={digest(name)}"
