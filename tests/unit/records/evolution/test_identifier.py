"""Columns that identify rows, in a table that lets records relax all others."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from frazil.batch.schema_change import SchemaChange
from frazil.records.model.spec import Evolution, RecordSpec
from tests.unit.records.evolution.evolving import land, spec, transformed

COLUMNS = [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)]


@pytest.mark.parametrize("way", [lambda spec: spec, transformed], ids=["direct", "transformed"])
@pytest.mark.parametrize("on_incompatible", ["dead_letter", "variant_column"])
def test_record_without_its_key_is_a_dead_letter(way: Callable[[RecordSpec], RecordSpec], on_incompatible: str) -> None:
    """It is a dead letter: a table can't have rows without one. Other columns may be null from then on."""
    full = Evolution("full", on_incompatible, never_null=frozenset({"id"}))  # type: ignore[arg-type]

    landed = land(
        [[{"id": 1}, {"name": "a"}, {"id": None, "name": "b"}, {"id": "x", "name": "c"}]], way(spec(COLUMNS, full))
    )

    assert landed.rounds == [(SchemaChange(("name",), "optional"),)]
    assert [row["id"] for row in landed.rows] == [1]
    assert len(landed.codes) == 3
    assert not landed.spec.columns.field("id").nullable
