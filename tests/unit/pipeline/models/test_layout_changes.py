"""Keys about merged tables in a pipeline file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems

COLUMNS = {"id": {"type": "long", "required": True}, "name": "string", "price": "double", "at": "timestamptz"}
DEBEZIUM = {"format": "debezium"}


def pipeline(engine: str = "spark", **options: Any) -> Pipeline:
    destination = {"table": "shop.customers", "columns": COLUMNS} | options
    return Pipeline.model_validate(
        {"name": "customers", "source": {"topics": ["c"]}, "destinations": [destination], "engine": engine}
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"write": "upsert", "identifier": ["nr"]}, "identifier names 'nr', which is no declared column"),
        ({"write": "upsert", "identifier": ["id", "id"]}, "identifier names a column twice"),
        ({"identifier": ["name"]}, "'name', which is not required"),
        ({"identifier": ["price"]}, "'price', of type double"),
        ({"write": "upsert", "identifier": ["id"], "kafka_columns": False}, "kafka_columns: false"),
        ({"write": "upsert", "identifier": ["id"], "order_by": "nr"}, "order_by names 'nr'"),
        ({"write": "upsert", "identifier": ["id"], "changes": DEBEZIUM}, "changes is for write: cdc"),
        ({"write": "cdc", "identifier": ["id"]}, "write: cdc needs changes"),
        ({"write": "cdc", "identifier": ["id"], "changes": DEBEZIUM, "engine": "inline"}, "inline can't merge rows"),
        (
            {"write": "upsert", "identifier": ["id"], "columns": COLUMNS | {"_pos": "long"}},
            "a column has the name _pos, which engines give to facts",
        ),
        ({"deletes": "soft"}, "deletes is for write: upsert and cdc"),
        ({"merge": "merge-on-read"}, "merge is for write: upsert and cdc"),
        (
            {
                "write": "upsert",
                "identifier": ["id"],
                "deletes": "soft",
                "columns": COLUMNS | {"_frazil_deleted": "boolean"},
            },
            "a column has the name _frazil_deleted",
        ),
        (
            {
                "write": "upsert",
                "identifier": ["id"],
                "deletes": "soft",
                "columns": COLUMNS | {"town": {"type": "string", "required": True}},
            },
            "columns.town.required",
        ),
    ],
)
def test_table_that_cannot_be_merged_is_refused(options: dict[str, Any], message: str) -> None:
    """Said when the file is read, not when the first change comes."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        pipeline(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "debezium", "op": "op"}, "op is not for format debezium"),
        ({"format": "op_column"}, "format op_column needs op"),
        ({"format": "op_column", "op": "op"}, "format op_column needs values"),
        ({"format": "op_column", "op": "op", "values": {}}, "values must name some"),
        ({"format": "op_column", "op": "op", "values": {"insert": ["I"], "update": ["I"]}}, "each for one kind"),
        ({"format": "envelope", "values": {"insert": ["i"]}, "row": "after"}, "row is not for format envelope"),
        ({"format": "envelope", "values": {"truncate": ["all"]}}, "values.truncate"),
    ],
)
def test_changes_are_described_in_exactly_one_way(changes: dict[str, Any], message: str) -> None:
    """A format that describes itself takes no words of the file, and one that does not needs them."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        pipeline(write="cdc", identifier=["id"], changes=changes)


def test_soft_deletes_have_a_column() -> None:
    """A table whose deleted rows stay has a mark for them; the others have none."""
    merged = {"write": "cdc", "identifier": ["id"], "changes": DEBEZIUM}
    soft, hard = pipeline(**merged, deletes="soft"), pipeline(**merged)
    assert declared_schema(soft.destinations[0]).column_names[-1] == "_frazil_deleted"
    assert "_frazil_deleted" not in declared_schema(hard.destinations[0]).column_names


DOCS = Path(__file__).resolve().parents[4] / "docs"
BLOCKS = [
    yaml.safe_load(text)
    for page in ("changes.md", "change-events.md", "merged-tables.md")
    for text in re.findall(r"^```yaml\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("parts", BLOCKS, ids=", ".join)
def test_example_of_the_page_is_valid(parts: dict[str, Any]) -> None:
    """What is copied from the docs must be a destination, or a part of one."""
    around = {name: part for name, part in parts.items() if "destinations" in parts and name != "destinations"}
    [shown] = parts.get("destinations", [parts])
    # Where the file declares the fields of values, they are those of its own columns.
    added = {} if "fields" in around.get("value", {}) else COLUMNS
    columns = {"columns": added | shown.get("columns", {})}
    is_changes = shown.get("write", "cdc") == "cdc"
    merged = {"write": "cdc", "identifier": ["id"], "changes": DEBEZIUM} if is_changes else {}
    destination = {"table": "shop.customers"} | merged | shown | columns
    whole = {
        "name": "customers",
        "source": {"topics": ["c"]},
        "engine": "spark",
        **around,
        "destinations": [destination],
    }
    assert record_problems(Pipeline.model_validate(whole)) == ()
