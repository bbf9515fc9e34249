"""Images of rows in values that are JSON objects, before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.batch.changes import DELETE, UPSERT
from frazil.records.model.changes import Object, ParsedImages
from frazil.records.model.json_text import JsonValue


def sent_images(op: str | None, now: JsonValue, was: JsonValue) -> ParsedImages:
    """Return the images of a value that holds two rows, or two lists of rows."""
    rows, before = tuple(_objects(now)), tuple(_objects(was))
    if op == UPSERT:
        return ParsedImages(rows, before)
    every = (*rows, *before)
    return ParsedImages((), every) if op == DELETE else ParsedImages(void=every)


def _objects(found: JsonValue) -> Iterable[Object]:
    return (of for of in (found if isinstance(found, list) else [found]) if isinstance(of, dict))
