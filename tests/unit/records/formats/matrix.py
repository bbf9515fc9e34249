"""All formats and column types at one look: what the cases say of each pair, in a word."""

from __future__ import annotations

from collections.abc import Iterable

from frazil.records.model.dead_letter import DeadCode
from tests.unit.records.formats.case import Case

KINDS = (
    *("boolean", "int", "long", "float", "double", "decimal", "date", "time", "timestamp", "timestamptz", "string"),
    *("uuid", "fixed", "binary", "struct", "list", "map"),
)
"""Iceberg's types, in the order of the docs."""

YES, AS_TEXT = "yes", "from text"

_OPTIONS_SHOWN = ("casts", "unit")
"""Options that make something land which does not without."""


def groups(cases: Iterable[Case]) -> list[str]:
    """The columns of the matrix: formats, in the order of the docs."""
    return list(dict.fromkeys(case.group for case in cases))


def matrix(cases: list[Case]) -> dict[tuple[str, str], list[str]]:
    """Say per type and format how a value lands, or by which codes it never does; nothing where there is no case.

    `YES`: the format has values of such a type, `AS_TEXT`: only texts that say one, or an option that must be asked for.
    """
    return {
        (kind, group): _ways([case for case in cases if (case.kind, case.group) == (kind, group)])
        for kind in KINDS
        for group in groups(cases)
    }


def _ways(cases: list[Case]) -> list[str]:
    landed = [_way(case) for case in cases if not isinstance(case.result, DeadCode) and case.result != "null"]
    if YES in landed:
        return [YES]
    return sorted(set(landed), reverse=True) or list(dict.fromkeys(str(case.result) for case in cases))


def _way(case: Case) -> str:
    options = [name for name in _OPTIONS_SHOWN if name in case.column or name in case.value]
    if options:
        return f"by `{options[0]}`"
    return AS_TEXT if case.is_text and case.kind != "string" else YES
