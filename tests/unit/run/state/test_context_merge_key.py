"""A merged table's key may be left to the table: it is taken from there, or the run is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType

from frazil.batch.manifest import Fit, TablePart
from frazil.batch.position import Position
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
from frazil.iceberg.commit.summary_state import IDENTIFIER_KEY
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.comparison import check_destination
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import operation_of
from frazil.run.staging.record_problems import record_problems
from frazil.run.state.context import identifier_property, lacks_key, refuse_no_key, refuse_other_key, with_merge_keys
from frazil.verify.tables import with_key

TABLE = "shop.customers"
COLUMNS = {"id": {"type": "long", "required": True}, "town": {"type": "string", "required": True}, "name": "string"}


@pytest.fixture
def lake(tmp_path: Path) -> PipelineCatalog:
    """An empty catalog."""
    home = Lake("lake", f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse", {})
    return PipelineCatalog("customers", home, {}, lambda _: home)


def checked(lake: PipelineCatalog, pipeline_file: Pipeline) -> Pipeline:
    """The pipeline with its key, as a run that begins holds it against the table."""
    with_keys = with_merge_keys(lake, pipeline_file)
    refuse_no_key(with_keys, TABLE, lake.find_table(TABLE))
    return with_keys


def pipeline(**options: Any) -> Pipeline:
    destination = {"table": TABLE, "columns": COLUMNS, "write": "upsert"} | options
    return Pipeline.model_validate({"name": "customers", "source": {"topics": ["c"]}, "destinations": [destination]})


def create(lake: PipelineCatalog, *identifier: int, town: IcebergType | None = None) -> None:
    """The table, whose columns are known by the numbers 1, 2 and 3."""
    fields = (
        NestedField(1, "town", town or StringType(), required=True),
        NestedField(2, "id", LongType(), required=True),
        NestedField(3, "name", StringType()),
    )
    lake.create_table(TABLE, Schema(*fields, identifier_field_ids=list(identifier)), UNPARTITIONED, {})


def test_merge_key_comes_from_the_table(lake: PipelineCatalog) -> None:
    """The file names no key: rows are merged, and verified, by the table's; the file stays known as the same one."""
    create(lake, 2, 1)
    pipeline_file = pipeline()
    assert not record_problems(pipeline_file)
    told = checked(lake, pipeline_file)
    assert told.destinations[0].identifier == ("town", "id")
    assert told.outcome_fingerprint == pipeline_file.outcome_fingerprint
    check = with_key(pipeline_file, TABLE, lake.load_table(TABLE))
    assert sorted(check.destinations[0].identifier) == ["id", "town"]
    assert check.outcome_fingerprint == pipeline_file.outcome_fingerprint
    operation = operation_of(told.destinations[0], Position(1, 0, "cluster", {}))
    assert operation is not None
    assert operation.merge is not None
    assert operation.merge.keys == ("town", "id")


def test_different_keys_of_file_and_table_are_refused(lake: PipelineCatalog) -> None:
    """File and table name different ones: both are told."""
    create(lake, 2)
    pipeline_file = checked(lake, pipeline(identifier=["id", "town"]))
    with pytest.raises(Terminal, match="identifier: declared id, town, the table has id"):
        check_destination(lake.load_table(TABLE), pipeline_file.destinations[0])


@pytest.mark.parametrize("is_there", [False, True])
def test_merge_without_a_key_is_refused(lake: PipelineCatalog, is_there: bool) -> None:
    """Neither file nor table names one: that is refused before anything is made."""
    if is_there:
        create(lake)
    with pytest.raises(Terminal, match="has no identifier fields" if is_there else "no such table yet") as refusal:
        checked(lake, pipeline())
    assert "identifier" in str(refusal.value.next_step)
    assert lake.tables() == ([TABLE] if is_there else [])


def test_table_key_that_cannot_merge_is_refused(lake: PipelineCatalog) -> None:
    """The file does not declare it as one: a row might be without it, or could not be told apart by it."""
    create(lake, 1)
    with pytest.raises(Terminal, match="'town', which is not required"):
        checked(lake, pipeline(columns=COLUMNS | {"town": "string"}))


def test_required_column_refuses_soft_deletes_once_the_key_is_known(lake: PipelineCatalog) -> None:
    """What is required beside the key can be told only once the key is known."""
    create(lake, 2)
    with pytest.raises(Terminal, match=r"columns\.town\.required"):
        checked(lake, pipeline(deletes="soft"))
    create_key = pipeline(deletes="soft", columns=COLUMNS | {"town": "string"})
    assert checked(lake, create_key).destinations[0].identifier == ("id",)


def test_verify_without_a_key_says_so(lake: PipelineCatalog) -> None:
    """It finds none: it says so."""
    create(lake, town=DoubleType())
    with pytest.raises(Terminal, match="no identifier fields"):
        with_key(pipeline(), TABLE, lake.load_table(TABLE))


def test_table_with_rows_of_another_key_is_refused(lake: PipelineCatalog) -> None:
    """Appended, merged by another key, or merged and now to be appended: each is refused once the table has rows."""
    create(lake)
    every = [pipeline(write="append"), pipeline(identifier=["id"]), pipeline(identifier=["town", "id"])]
    for pipeline_file in every:
        note = identifier_property("customers", _part(pipeline_file))
        lake.load_table(TABLE).transaction().set_properties(note).commit_transaction()
        assert not [candidate for candidate in every if _is_refused(candidate, lake.load_table(TABLE).metadata)]
    lake.load_table(TABLE).append(pa.table({"town": ["a"], "id": [1], "name": ["b"]}, _rows(lake)))
    for pipeline_file in every:
        note = identifier_property("customers", _part(pipeline_file))
        lake.load_table(TABLE).transaction().set_properties(note).commit_transaction()
        metadata = lake.load_table(TABLE).metadata
        assert [_is_refused(candidate, metadata) for candidate in every] == [
            candidate is not pipeline_file for candidate in every
        ]
    assert identifier_property("customers", TablePart(TABLE, "dead_letters", Fit("u", 0, {}), None, ())) == {}


def test_property_in_the_refusal_confirms_unique_keys(lake: PipelineCatalog) -> None:
    """The refusal says how: the property that it names, with the value that it names, lets the pipeline go on."""
    create(lake)
    lake.load_table(TABLE).append(pa.table({"town": ["a"], "id": [1], "name": ["b"]}, _rows(lake)))
    pipeline_file = pipeline(identifier=["id"])
    table = lake.load_table(TABLE)
    refuse_other_key(pipeline_file, TABLE, table.metadata)  # somebody else's rows
    table.transaction().set_properties({IDENTIFIER_KEY.format("customers"): "[]"}).commit_transaction()
    with pytest.raises(Terminal, match="adds rows in table") as refusal:
        refuse_other_key(pipeline_file, TABLE, lake.load_table(TABLE).metadata)
    name, value = re.findall(r"'([^']+)'", str(refusal.value.next_step))
    lake.load_table(TABLE).transaction().set_properties({name: value}).commit_transaction()
    refuse_other_key(pipeline_file, TABLE, lake.load_table(TABLE).metadata)


@pytest.mark.parametrize("text", ["id", '"id"', '{"id": 1}', "[1]"])
def test_key_property_that_was_mistyped_is_named(lake: PipelineCatalog, text: str) -> None:
    """The refusal of another key tells a person to set it: a slip of the pen is told, too, and not a stack trace."""
    create(lake)
    name = IDENTIFIER_KEY.format("customers")
    lake.load_table(TABLE).transaction().set_properties({name: text}).commit_transaction()
    refuse_other_key(pipeline(identifier=["id"]), TABLE, lake.load_table(TABLE).metadata)  # no rows: any key will do
    lake.load_table(TABLE).append(pa.table({"town": ["a"], "id": [1], "name": ["b"]}, _rows(lake)))
    expected = f"table {TABLE}: property {re.escape(name)} is not readable"
    with pytest.raises(Terminal, match=expected):
        refuse_other_key(pipeline(identifier=["id"]), TABLE, lake.load_table(TABLE).metadata)
    undecided = with_merge_keys(lake, pipeline())
    assert lacks_key(undecided.destinations[0])  # so that a decided batch can still be finished


def _is_refused(pipeline_file: Pipeline, metadata: TableMetadata) -> bool:
    try:
        refuse_other_key(pipeline_file, TABLE, metadata)
    except Terminal:
        return True
    return False


def _part(pipeline_file: Pipeline) -> TablePart:
    operation = operation_of(pipeline_file.destinations[0], Position(1, 0, "cluster", {}))
    return TablePart(TABLE, "destination", Fit("u", 0, {}), None, (), None, operation)


def _rows(lake: PipelineCatalog) -> pa.Schema:
    return schema_to_pyarrow(lake.load_table(TABLE).schema(), include_field_ids=False)
