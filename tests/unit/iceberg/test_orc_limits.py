"""Times that ORC files would change are found before anything is decided."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.iceberg.catalog import Lake
from frazil.iceberg.orc_limits import refuse_altered
from frazil.iceberg.row_files import RowFileWriter
from frazil.iceberg.table import staging_table
from tests.layouts import LAYOUT, created

US, FAR = pa.timestamp("us", "UTC"), 2**63 // 1000 - 1

SHAPES: dict[str, tuple[pa.DataType, Any]] = {
    "plain": (US, lambda at: at),
    "local": (pa.timestamp("us"), lambda at: at),
    "list": (pa.list_(US), lambda at: [0, None, at]),
    "struct": (pa.struct([("a", pa.struct([("b", US)]))]), lambda at: {"a": {"b": at}}),
    "map": (pa.map_(pa.string(), US), lambda at: [("x", at)]),
    "key": (pa.map_(US, pa.string()), lambda at: [(at, "x")]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [-1, -999_999, FAR + 1, -FAR - 1])
def test_time_is_changed_in_silence(shape: str, at: int) -> None:
    """At any depth, in any row."""
    of, make = SHAPES[shape]
    with pytest.raises(Terminal, match=r"table shop\.orders, column at: a time within the second before 1970"):
        refuse_altered(pa.table({"id": [1, 2, 3], "at": pa.array([None, make(at), make(5)], of)}), "shop.orders")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [-1_000_000, -1_000_001, 0, 1, FAR, -FAR])
def test_time_that_orc_keeps_is_refused(shape: str, at: int) -> None:
    """Those at the edges are fine; so are tables without times."""
    of, make = SHAPES[shape]
    refuse_altered(pa.table({"id": [1, 2], "at": pa.array([None, make(at)], of)}), "shop.orders")


@pytest.mark.parametrize("files", ["orc", "ORC"])
def test_writer_of_staged_rows_does_not_ask(lake: Lake, files: str) -> None:
    """Rows for ORC files are looked at; those for Parquet have no such limit."""
    rows = pa.RecordBatch.from_pydict({"at": pa.array([-1], US)})
    for kind in (files, "parquet"):
        name = f"shop.{kind.lower()}"
        properties = {"write.format.default": kind}
        table = created(lake, LAYOUT.model_copy(update={"table": name, "properties": properties}))
        writer = RowFileWriter(staging_table(name, table))
        writer.write(rows)
        if kind == "parquet":
            assert [of.rows for of in writer.close()] == [1]
        else:
            with pytest.raises(Terminal, match="nothing was published"):
                writer.close()
