"""Style sheets and scripts, to people who are logged in. By a route, since a mounted folder asks nobody."""

# No `from __future__ import annotations`: FastAPI reads the signatures.

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

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
    """What changes when the file does."""
    return hashlib.sha256(_files()[name]).hexdigest()[:16]


@cache
def _files() -> dict[str, bytes]:
    """All of them, read once: a name that a person sends never becomes a path."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }
