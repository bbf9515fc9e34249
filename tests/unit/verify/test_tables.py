"""Properties of tables that somebody edited by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.tables import _created_tables, _finished_by_mark, _foreign_topics

PIPELINE = Pipeline.model_validate(
    {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b", "columns": {"a": "long"}}]}
)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"value": "n"}', '{"value": "[1]"}', '{"value": "{}"}', '{"value": "{\\"n\\": 1e999}"}', '{"id": 1}'],
)
def test_damaged_done_mark_is_named(text: str) -> None:
    """Also where the mark within the property is damaged."""
    layout = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    metadata = new_table_metadata(Schema(), *layout, "file:///a", {"frazil.done.p": text})

    with pytest.raises(Terminal, match=r"property frazil\.done\.p of a\.p__ledger can't be read"):
        _finished_by_mark(metadata, PIPELINE)


@pytest.mark.parametrize("value", ["null", "false", "0", "5", '""', '{"a.b": 1}', "[[1]]"])
def test_damaged_names_of_created_tables_are_named(value: str) -> None:
    """Otherwise `verify` would take it for a pipeline that created no table, and check none of them."""
    layout = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    properties = {key: json.dumps({"value": value}) for key in ("frazil.made.p", "frazil.topics.q")}
    metadata = new_table_metadata(Schema(), *layout, "file:///a", properties)

    with pytest.raises(Terminal, match=r"property frazil\.made\.p of a\.p__ledger can't be read"):
        _created_tables(SimpleNamespace(metadata=metadata), PIPELINE)  # type: ignore[arg-type]
    with pytest.raises(Terminal, match=r"property frazil\.topics\.q of a\.b can't be read"):
        _foreign_topics(metadata, PIPELINE, "a.b")
