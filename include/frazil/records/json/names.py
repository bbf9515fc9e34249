"""The names in JSON objects: found whatever their case, and told when they repeat."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_text import JsonValue, describe

Fold = Literal["last", "dead_letter"]
"""What fields mean that differ in case only: the last one, or a dead letter."""


def folded(value: dict[str, JsonValue], wanted: Collection[str], policy: Fold) -> dict[str, JsonValue]:
    """Return the wanted fields by their case-folded names.

    Raises:
        Rejection: DUPLICATE_KEY, where the policy says so.
    """
    found: dict[str, JsonValue] = {}
    for name, item in value.items():
        key = name.casefold()
        if key not in wanted:
            continue
        if policy == "dead_letter" and key in found:
            raise repeated(name)
        found[key] = item
    return found


def last_at_its_place(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object whose fields stand where they were named last.

    A dict keeps a name's first place. Of names that differ in case only the last one counts, whichever was first.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        value.clear()
        for name, item in pairs:
            value.pop(name, None)
            value[name] = item
    return value


def once(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object of which each field is named once.

    Raises:
        Rejection: DUPLICATE_KEY.
    """
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise repeated(name)
        seen.add(name)
    return value


def repeated(name: str) -> Rejection:
    """Return the verdict on an object that names a field twice."""
    return Rejection(DeadCode.DUPLICATE_KEY, f"expected each field once, found {describe(name)} again")
