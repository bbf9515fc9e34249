"""Several connectors at once: entries of the settings that are the same are written once, others get names of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from frazil.connect.config import Connector
from frazil.connect.findings import Finding
from frazil.connect.importing import Imported, Known, Names, import_connector

_REFERENCE = re.compile(r"\$\{env:(\w+)\}")

Settings = dict[str, dict[str, Any]]


def import_all(connectors: Iterable[Connector], known: Known) -> tuple[list[Imported], Settings]:
    """Import connectors side by side.

    Returns:
        What each became, in their order, and the settings of all together: clusters, catalogs, registries.
    """
    together: Settings = {}
    resolved: dict[tuple[str, str], Any] = {}
    taken: set[str] = set()
    done = []
    for connector in connectors:
        made = _beside(connector, known, resolved)
        if made.pipeline and made.pipeline["name"] in taken:
            made = _twice(made)
        if made.pipeline:
            taken.add(made.pipeline["name"])
        for kind, entries in made.settings.items():
            together.setdefault(kind, {}).update(entries)
            resolved |= {(kind, name): _with_values(entry, made.values) for name, entry in entries.items()}
        done.append(made)
    return done, together


def _beside(connector: Connector, known: Known, resolved: Mapping[tuple[str, str], Any]) -> Imported:
    """Import one with names that either are free or stand for the very same."""
    names = Names()
    made = import_connector(connector, known, names)
    for kind, attribute in (("clusters", "cluster"), ("registries", "registry"), ("catalogs", "catalog")):
        first = next(iter(made.settings.get(kind, {})), None)
        number = 1
        while first is not None and _clashes(kind, made, resolved):
            number += 1
            names = replace(names, **{attribute: f"{first}_{number}"})
            made = import_connector(connector, known, names)
    return made


def _clashes(kind: str, made: Imported, resolved: Mapping[tuple[str, str], Any]) -> bool:
    return any(
        (kind, name) in resolved and resolved[kind, name] != _with_values(entry, made.values)
        for name, entry in made.settings.get(kind, {}).items()
    )


def _with_values(entry: Any, values: Mapping[str, str]) -> Any:
    return with_values(entry, values)[0]


def with_values(entry: Any, values: Mapping[str, str]) -> tuple[Any, set[str]]:
    """An entry with its references to variables filled in, and the names of variables that have no value."""
    missing: set[str] = set()

    def fill(of: Any) -> Any:
        if isinstance(of, dict):
            return {name: fill(inner) for name, inner in of.items()}
        return _REFERENCE.sub(value, of) if isinstance(of, str) else of

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            missing.add(found[1])
        return values.get(found[1], found[0])

    return fill(entry), missing


def _twice(made: Imported) -> Imported:
    message = f"another connector became the pipeline {made.pipeline['name']} already"
    finding = Finding("name", "refused", message, "give the connectors different names")
    others = tuple(found for found in made.findings if found.key != "name")
    return replace(made, findings=(finding, *others), pipeline={}, settings={}, positions=None)
