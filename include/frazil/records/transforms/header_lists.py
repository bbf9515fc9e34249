"""Headers of many records at once: lists of name and bytes, added to and thinned out as columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import utf8_texts
from frazil.records.model.format import values_by_row
from frazil.records.model.rows import HEADERS, header_entries, last_header


def has_header(headers: pa.ListArray, name: str) -> pa.BooleanArray:
    """Return per row whether it has a header of that name; never null."""
    rows, entries = header_entries(headers)
    named = pc.fill_null(pc.equal(pc.struct_field(entries, 0), name), False)  # noqa: FBT003 - a value
    return pc.is_in(_row_numbers(len(headers)), value_set=rows.filter(named).unique())


def header_texts(headers: pa.ListArray, name: str) -> pa.StringArray:
    """Return the text of a header row by row, null where there is none, or none that is UTF-8."""
    rows, values = last_header(headers, name)
    return values_by_row(utf8_texts(values), rows, len(headers))


def text_maps(headers: pa.ListArray) -> pa.MapArray:
    """Return the headers as maps of name -> text, null where it is not UTF-8. Of several of one name the last one counts."""
    parents, entries = header_entries(headers)
    is_named = pc.struct_field(entries, 0).is_valid()
    parents, (names, values) = parents.filter(is_named), entries.filter(is_named).flatten()
    places = pa.table({"row": parents, "name": names, "last": _row_numbers(len(parents))})
    last = places.group_by(["row", "name"], use_threads=False).aggregate([("last", "max")])["last_max"].combine_chunks()
    last = last.take(pc.array_sort_indices(last))
    offsets = pc.search_sorted(parents.take(last), _row_numbers(len(headers) + 1), side="left").cast(pa.int32())
    return pa.MapArray.from_arrays(offsets, names.take(last), utf8_texts(values.take(last)))


def drop_headers(headers: pa.ListArray, names: Sequence[str]) -> pa.ListArray:
    """Return the headers without those of some names; a record without headers stays so."""
    rows, entries = header_entries(headers)
    keeps_entry = pc.invert(pc.is_in(pc.struct_field(entries, 0), value_set=pa.array(names, pa.string())))
    return _lists(rows.filter(keeps_entry), entries.filter(keeps_entry), headers.is_null())


def append_header(headers: pa.ListArray, name: str, values: pa.BinaryArray) -> pa.ListArray:
    """Return the headers with one more of that name at the end of each row, null bytes included."""
    names = pa.repeat(pa.scalar(name, pa.string()), len(headers))
    added = pa.StructArray.from_arrays([names, values], fields=list(HEADERS.value_type))
    parents, existing = header_entries(headers)
    entries = pa.concat_arrays([existing.cast(HEADERS.value_type), added])
    rows = pa.concat_arrays([parents, _row_numbers(len(headers))])
    order = pc.sort_indices(rows)  # stable: the new one comes last
    return _lists(rows.take(order), entries.take(order), None)


def _row_numbers(rows: int) -> pa.Int64Array:
    return pa.array(range(rows), pa.int64())


def _lists(rows: pa.Int64Array, entries: pa.StructArray, nulls: pa.BooleanArray | None) -> pa.ListArray:
    """Return lists of entries.

    Args:
        rows: Per entry the row it belongs to, ascending.
        entries: Name and bytes.
        nulls: Per row whether it has no list; None means that every row has entries.
    """
    size = len(nulls) if nulls is not None else (rows[-1].as_py() + 1 if len(rows) else 0)
    offsets = pc.search_sorted(rows, _row_numbers(size + 1), side="left").cast(pa.int32())
    mask = nulls if nulls is not None and pc.any(nulls).as_py() else None
    return pa.ListArray.from_arrays(offsets, entries.cast(HEADERS.value_type), type=HEADERS, mask=mask)
