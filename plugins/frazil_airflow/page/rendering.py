"""Renders templates as pages, and serves style sheets and scripts. All values in a page are escaped, since names, messages
and records come from outside.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from frazil.monitor.state import STATES
from frazil.report.dead_letters_page import template_environment
from frazil_airflow.page import words
from frazil_airflow.page.access import run_of

FOLDER = Path(__file__).with_name("static")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

router = APIRouter()


@router.get("/static/{name:path}")
def static_file(request: Request, name: str) -> Response:
    """One file, or 304 if the browser has it. A changed file has another address, so browsers may keep it."""
    content = _files().get(name)
    if content is None:
        raise HTTPException(404, "There is no such file")
    headers = {"ETag": f'"{digest(name)}"', "Cache-Control": "private, max-age=86400"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)


@cache
def digest(name: str) -> str:
    """A digest of the file's content."""
    return hashlib.sha256(_files()[name]).hexdigest()[:16]


@cache
def _files() -> dict[str, bytes]:
    """All static files, read once, so that a requested name never becomes a path."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }


def render(request: Request, template: str, **values: Any) -> HTMLResponse:
    """Return a page."""
    root = request.scope.get("root_path", "").rstrip("/")
    return HTMLResponse(_environment().get_template(template).render(root=root, home=_home(root), **values))


def _home(root: str) -> str:
    """Path of Airflow itself: what stands before the prefix of this application."""
    return root.rpartition("/")[0]


@cache
def _environment() -> Environment:
    environment = template_environment("frazil_airflow.page")
    environment.filters |= {
        "number": words.number,
        "short": words.short,
        "seconds": words.seconds,
        "brief": words.brief,
        "size": words.size,
        "instant": words.instant,
        "plain": words.plain,
        "bars": words.bars,
        "phases": words.phases,
        "code": words.code,
        "segment": lambda text: quote(str(text), safe=""),
    }
    environment.globals |= {"ago": words.ago, "run_of": run_of, "static": _static, "STATES": STATES}
    return environment


def _static(root: str, name: str) -> str:
    return f"{root}/static/{name}?v={digest(name)}"
