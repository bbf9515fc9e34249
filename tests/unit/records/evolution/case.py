"""One change of records, and its outcome at each level of `evolve`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from frazil.records.evolution.types import read_type
from frazil.records.model.format import FormatSpec
from frazil.records.model.spec import Evolution
from tests.unit.records.evolution.evolving import land, land_still, spec

LEVELS: Final = ("none", "add", "widen", "full")


@dataclass(frozen=True)
class Case:
    """One change.

    Attributes:
        group: The kind of format.
        change: What is new, in words.
        columns: Name -> type of the table's columns; `!` behind a type that is required, `?` behind one that records brought.
        sent: The record, as JSON text or as its schema and value.
        becomes: What happens with evolve `none`, `add`, `widen` and `full`; the last one counts for those not named.
    """

    group: str
    change: str
    columns: Mapping[str, str]
    sent: str
    becomes: tuple[str, ...]
    value: bytes
    format: FormatSpec = FormatSpec()  # noqa: RUF009 - it is frozen

    def result(self, level: str) -> str:
        """What is expected."""
        return self.becomes[min(LEVELS.index(level), len(self.becomes) - 1)]

    def outcome(self, level: str) -> str:
        """What happens."""
        columns = [pa.field(name, _type(text), nullable=not text.endswith("!")) for name, text in self.columns.items()]
        declared = frozenset(name for name, text in self.columns.items() if not text.endswith("?"))
        options: dict[str, Any] = {"format": self.format, "declared": declared}
        evolving_spec = spec(columns, None if level == "none" else Evolution(level), **options)  # type: ignore[arg-type]
        if level == "none":
            return _outcome((), land_still(self.value, replace(evolving_spec, evolution=None, declared=None)))
        landed = land([[self.value]], evolving_spec)
        changes = tuple(str(change) for changes in landed.rounds for change in changes)
        return _outcome(changes, landed.tasks[0])


def _type(text: str) -> pa.DataType:
    return read_type(text.rstrip("!?"))


def _outcome(changes: tuple[str, ...], outcomes: Any) -> str:
    codes = outcomes.dead.column("code").to_pylist()
    if codes:
        return ", ".join([*changes, *codes])
    is_rescued = all(name.startswith("_rescued: ") for name in outcomes.unknown_fields.names)
    unknown_text = (
        ["rescued, counted" if is_rescued else "left out, counted"] if outcomes.unknown_fields.records else []
    )
    return ", ".join([*changes, *unknown_text]) or "lands"
