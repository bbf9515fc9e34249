"""Images of changed rows in parsed JSON objects, before they are decoded into columns."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.batch.changes import DELETE, UPSERT
from frazil.records.model.changes import Object, ParsedImages
from frazil.records.model.json_text import JsonValue


def images_for_op(op: str | None, after: JsonValue, before: JsonValue) -> ParsedImages:
    """Return the images of a value with a row, or a list of rows, after the change and one before it."""
    rows, before_rows = tuple(_objects(after)), tuple(_objects(before))
    if op == UPSERT:
        return ParsedImages(rows, before_rows)
    all_rows = (*rows, *before_rows)
    return ParsedImages((), all_rows) if op == DELETE else ParsedImages(ignored_rows=all_rows)


def _objects(parsed: JsonValue) -> Iterable[Object]:
    return (
        candidate for candidate in (parsed if isinstance(parsed, list) else [parsed]) if isinstance(candidate, dict)
    )
