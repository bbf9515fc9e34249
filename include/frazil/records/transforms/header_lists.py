"""Headers of many records at once, as columns of lists of names and bytes: read, drop and append them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import utf8_texts
from frazil.records.model.format import values_by_row
from frazil.records.model.rows import HEADERS, header_entries, last_header


def has_header(headers: pa.ListArray, name: str) -> pa.BooleanArray:
    """Return, per row, whether it has a header of that name; never null."""
    rows, entries = header_entries(headers)
    named = pc.fill_null(pc.equal(pc.struct_field(entries, 0), name), False)  # noqa: FBT003 - a value
    return pc.is_in(pa.arange(0, len(headers)), value_set=rows.filter(named).unique())


def header_texts(headers: pa.ListArray, name: str) -> pa.StringArray:
    """Return, per row, the text of the last header of that name; null without one, or if it is not UTF-8."""
    rows, values = last_header(headers, name)
    return values_by_row(utf8_texts(values), rows, len(headers))


def text_maps(headers: pa.ListArray) -> pa.MapArray:
    """Return the headers as maps of name -> text, null where it is not UTF-8. Of headers with one name the last counts."""
    rows, entries = header_entries(headers)
    is_named = pc.struct_field(entries, 0).is_valid()
    rows, (names, values) = rows.filter(is_named), entries.filter(is_named).flatten()
    numbered = pa.table({"row": rows, "name": names, "index": pa.arange(0, len(rows))})
    last = numbered.group_by(["row", "name"], use_threads=False).aggregate([("index", "max")])["index_max"]
    last = last.combine_chunks().sort()
    offsets = pc.search_sorted(rows.take(last), pa.arange(0, len(headers) + 1), side="left").cast(pa.int32())
    return pa.MapArray.from_arrays(offsets, names.take(last), utf8_texts(values.take(last)))


def drop_headers(headers: pa.ListArray, names: Sequence[str]) -> pa.ListArray:
    """Return the headers without those of some names; a record without headers stays so."""
    rows, entries = header_entries(headers)
    keeps_entry = pc.invert(pc.is_in(pc.struct_field(entries, 0), value_set=pa.array(names, pa.string())))
    return _lists(rows.filter(keeps_entry), entries.filter(keeps_entry), headers.is_null())


def append_header(headers: pa.ListArray, name: str, values: pa.BinaryArray) -> pa.ListArray:
    """Return the headers with one more at the end of each row. A null value makes a header without value."""
    names = pa.repeat(pa.scalar(name, pa.string()), len(headers))
    added = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    existing_rows, existing = header_entries(headers)
    entries = pa.concat_arrays([existing.cast(HEADERS.value_type), added])
    rows = pa.concat_arrays([existing_rows, pa.arange(0, len(headers))])
    order = pc.sort_indices(rows)  # stable: the new header comes last
    return _lists(rows.take(order), entries.take(order), None)


def _lists(rows: pa.Int64Array, entries: pa.StructArray, nulls: pa.BooleanArray | None) -> pa.ListArray:
    """Return lists of entries.

    Args:
        rows: Per entry the row it belongs to, ascending.
        entries: Name and bytes.
        nulls: Per row whether its list is null; None if every row has entries.
    """
    size = len(nulls) if nulls is not None else (rows[-1].as_py() + 1 if len(rows) else 0)
    offsets = pc.search_sorted(rows, pa.arange(0, size + 1), side="left").cast(pa.int32())
    mask = nulls if nulls is not None and pc.any(nulls).as_py() else None
    return pa.ListArray.from_arrays(offsets, entries.cast(HEADERS.value_type), type=HEADERS, mask=mask)
