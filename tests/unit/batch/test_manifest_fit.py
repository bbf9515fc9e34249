"""Files go only into the table that they were staged for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.batch.manifest import Fit

FIT = Fit("uuid-1", 0, {1: "long", 2: "string"})
NESTED = Fit("uuid-1", 0, {1: "int", 2: "struct", 3: "float", 4: "decimal(9, 2)"})


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (FIT, None),
        (replace(FIT, fields={**FIT.fields, 3: "date"}), None),
        (replace(FIT, uuid="uuid-2"), "replaced: files were staged for uuid-1, found uuid-2"),
        (replace(FIT, spec_id=1), "spec changed from 0 to 1"),
        (replace(FIT, fields={1: "long"}), "2: string -> gone"),
        (replace(FIT, fields={1: "int", 2: "string"}), "1: long -> int"),
    ],
    ids=["the same", "column added", "table replaced", "spec changed", "column gone", "type changed"],
)
def test_files_are_refused_by_a_table_they_do_not_fit(problem: Fit, message: str | None) -> None:
    """A column added meanwhile is harmless, everything else is named."""
    mismatch = FIT.mismatch(problem)

    assert (mismatch is None) if message is None else (mismatch is not None and message in mismatch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({1: "long", 3: "double", 4: "decimal(20, 2)"}, None),
        ({5: "string"}, None),
        ({1: "double"}, "1: int -> double"),
        ({3: "float", 4: "decimal(8, 2)"}, "4: decimal(9, 2) -> decimal(8, 2)"),
        ({4: "decimal(20, 3)"}, "4: decimal(9, 2) -> decimal(20, 3)"),
        ({2: "list"}, "2: struct -> list"),
    ],
    ids=["widened", "nested field added", "another kind", "narrowed", "other scale", "replaced"],
)
def test_files_fit_a_table_that_only_grew(changes: dict[int, str], message: str | None) -> None:
    """Files fit a table whose columns were widened or got fields; readers promote them. Any other type is refused."""
    changed = replace(NESTED, fields={**NESTED.fields, **changes})
    mismatch = NESTED.mismatch(changed)

    assert (mismatch is None) if message is None else (mismatch is not None and message in mismatch)
