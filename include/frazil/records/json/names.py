"""Names of fields in JSON objects: matched whatever their case, and checked for repetition."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_text import JsonValue, describe

Fold = Literal["last", "dead_letter"]
"""The policy for fields whose names differ in case only: the last one counts, or the record is a dead letter."""


def fold_fields(value: dict[str, JsonValue], names: Collection[str], policy: Fold) -> dict[str, JsonValue]:
    """Return fields by their case-folded names, only those in `names`.

    Raises:
        Rejection: DUPLICATE_KEY, if the policy is `dead_letter` and two fields have one folded name.
    """
    fields: dict[str, JsonValue] = {}
    for name, item in value.items():
        key = name.casefold()
        if key not in names:
            continue
        if policy == "dead_letter" and key in fields:
            raise repeated_name(name)
        fields[key] = item
    return fields


def keep_last_place(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object with each repeated field at its last place.

    A dict keeps the first place of a name. `fold_fields` needs the last: of names that differ in case only the last one counts.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        value.clear()
        for name, item in pairs:
            value.pop(name, None)
            value[name] = item
    return value


def refuse_repeated_names(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Return an object; each field must be named once.

    Raises:
        Rejection: DUPLICATE_KEY.
    """
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise repeated_name(name)
        names.add(name)
    return value


def repeated_name(name: str) -> Rejection:
    """Return the rejection of an object that names a field twice."""
    return Rejection(DeadCode.DUPLICATE_KEY, f"expected each field once, found {describe(name)} again")
