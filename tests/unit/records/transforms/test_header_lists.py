"""Lists of headers as columns."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.kafka import HEADERS
from frazil.records.transforms.header_lists import rows_with, with_added, without


def test_entries_under_a_null_list_are_a_neighbours() -> None:
    """A null list may stand over entries, of a slice or of masked rows: they are of no record."""
    entries = pa.array([{"key": name, "value": name.encode()} for name in "abc"], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), entries, type=HEADERS, mask=pa.array([False, True, False])
    )
    for headers in (lists, lists[1:]):
        names = [None if of is None else [each["key"] for each in of] for of in headers.to_pylist()]

        assert rows_with(headers, "b").to_pylist() == [False] * len(headers)
        assert rows_with(headers, "c").to_pylist() == [of == ["c"] for of in names]
        assert without(headers, ["x"]).to_pylist() == headers.to_pylist()
        added = with_added(headers, "d", pa.array([b"d"] * len(headers), pa.binary()))
        assert [[each["key"] for each in of] for of in added.to_pylist()] == [[*(of or []), "d"] for of in names]
