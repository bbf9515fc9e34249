"""Lists of headers as columns."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.model.rows import HEADERS
from frazil.records.transforms.header_lists import append_header, drop_headers, has_header


def test_entries_under_a_null_list_are_ignored() -> None:
    """After a slice or a mask, a null list may have entries in memory: they belong to no record."""
    entries = pa.array([{"key": name, "value": name.encode()} for name in "abc"], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), entries, type=HEADERS, mask=pa.array([False, True, False])
    )
    for headers in (lists, lists[1:]):
        names = [
            None if header_keys is None else [each["key"] for each in header_keys]
            for header_keys in headers.to_pylist()
        ]

        assert has_header(headers, "b").to_pylist() == [False] * len(headers)
        assert has_header(headers, "c").to_pylist() == [keys == ["c"] for keys in names]
        assert drop_headers(headers, ["x"]).to_pylist() == headers.to_pylist()
        added = append_header(headers, "d", pa.array([b"d"] * len(headers), pa.binary()))
        assert [[each["key"] for each in header_keys] for header_keys in added.to_pylist()] == [
            [*(header_keys or []), "d"] for header_keys in names
        ]
