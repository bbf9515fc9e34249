"""Shared by tests of fitting: fits one column as a block and one by one, and compares both."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.casting.fitter import Fitted, Fitter
from frazil.records.model.column import AS_IT_IS, ColumnSpec, Reading


def specs(schema: pa.Schema, **more: ColumnSpec) -> tuple[ColumnSpec, ...]:
    """Return a declaration per field of the rows, less those given."""
    return tuple(
        more.get(field.name) or ColumnSpec(field.name, field.type, required=not field.nullable) for field in schema
    )


def fit_both(columns: tuple[ColumnSpec, ...], schema: pa.Schema, value: pa.RecordBatch, **options: object) -> Fitted:
    """Fit as blocks and one by one, demand the same outcome, and return it."""
    as_block = Fitter(columns, schema, **options).fit(value)
    one_by_one = Fitter(columns, schema, **options, blocks=False).fit(value)
    as_block.rows.validate(full=True)
    assert as_block.rows.schema.equals(schema, check_metadata=True)
    assert as_block.dead == one_by_one.dead
    assert as_block.input_rows.equals(one_by_one.input_rows)
    assert as_block.ignored.count() == one_by_one.ignored.count()
    assert same(as_block.rows, one_by_one.rows), f"{as_block.rows}\n{one_by_one.rows}"
    return as_block


def same(first: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    """Return whether two batches are equal; NaN equals NaN."""
    return all(
        one.equals(second) or repr(one.to_pylist()) == repr(second.to_pylist())
        for one, second in zip(first.columns, right.columns, strict=True)
    )


def fit_one(
    array: pa.Array, target: pa.DataType, *, required: bool = False, reading: Reading = AS_IT_IS, **options: object
) -> Fitted:
    """Fit an array as the column `c` of a type."""
    schema = pa.schema([pa.field("c", target, nullable=not required)])
    column = ColumnSpec("c", target, required=required, reading=reading)
    return fit_both((column,), schema, pa.RecordBatch.from_arrays([array], ["c"]), **options)
