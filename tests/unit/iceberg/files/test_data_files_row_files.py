"""Rows staged for an engine: UUIDs go as texts, at every depth, since Spark reads no others."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa

from frazil.iceberg.files.data_files import _with_uuid_texts

FIRST, SECOND = UUID("00112233-4455-6677-8899-aabbccddeeff"), UUID(int=1)


def uuids(values: list[UUID | None]) -> pa.Array:
    """Values as a task has them."""
    return pa.array([None if value is None else value.bytes for value in values], pa.binary(16)).cast(pa.uuid())


def test_uuids_are_staged_as_their_texts() -> None:
    """In columns, structs, lists and maps, with nulls of each kind; slices keep to their rows."""
    ids = uuids([FIRST, None, SECOND, FIRST])
    struct = pa.StructArray.from_arrays(
        [ids, pa.array([1, 2, 3, 4])], ["id", "n"], mask=pa.array([False, False, True, False])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 2, 4], pa.int32()), ids, mask=pa.array([False, True, False, False])
    )
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), pa.array(["a", "b", "c", "d"]), ids)
    table = pa.table({"id": ids, "struct": struct, "list": lists, "map": maps, "n": pa.array([1, 2, 3, 4])})
    one, two = str(FIRST), str(SECOND)
    expected = [
        {"id": one, "struct": {"id": one, "n": 1}, "list": [one, None], "map": [("a", one)], "n": 1},
        {"id": None, "struct": {"id": None, "n": 2}, "list": None, "map": [], "n": 2},
        {"id": two, "struct": None, "list": [], "map": [("b", None), ("c", two)], "n": 3},
        {"id": one, "struct": {"id": one, "n": 4}, "list": [two, one], "map": [("d", one)], "n": 4},
    ]
    assert _with_uuid_texts(table).to_pylist() == expected
    assert _with_uuid_texts(table.slice(1, 2)).to_pylist() == expected[1:3]
    assert pa.uuid() not in _with_uuid_texts(table).schema.types


def test_rows_without_uuids_are_staged_as_they_are() -> None:
    """No copy: most tables have none."""
    table = pa.table({"n": pa.array([1]), "s": pa.array([{"a": [1]}])})
    assert _with_uuid_texts(table) is table
