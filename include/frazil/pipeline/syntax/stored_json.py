"""Reads and writes Frazil's stored JSON, which may be damaged, of another version, or hold any Python string."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


def write_json(adapter: TypeAdapter[T], value: T) -> str:
    """Return a value as JSON, with times in ISO form."""
    return json.dumps(adapter.dump_python(value, by_alias=True), default=datetime.isoformat, sort_keys=True)


def read_json(adapter: TypeAdapter[T], text: str) -> T:
    """Read what `write_json` wrote.

    Raises:
        ValueError: It is something else. Its one line says where and what was expected, and nothing of what is there.
    """
    try:
        # A half character that somebody's error holds is a question mark here: pydantic's reader refuses it.
        readable = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        return adapter.validate_json(readable, strict=True)
    except ValidationError as error:
        first, *_ = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
