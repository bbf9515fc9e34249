"""Properties of tables that somebody edited by hand."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.tables import _finished_by_mark

PIPELINE = Pipeline.model_validate(
    {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b", "columns": {"a": "long"}}]}
)


@pytest.mark.parametrize("text", ["", "[]", '{"value": "n"}', '{"value": "[1]"}', '{"value": "{}"}', '{"id": 1}'])
def test_damaged_done_mark_is_named(text: str) -> None:
    """Also where the mark within the property is damaged."""
    layout = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    metadata = new_table_metadata(Schema(), *layout, "file:///a", {"frazil.done.p": text})

    with pytest.raises(Terminal, match=r"property frazil\.done\.p of a\.p__ledger can't be read"):
        _finished_by_mark(metadata, PIPELINE)
