"""Questions to tables are answered as the tables are, whoever asks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.models.pipeline_file import Destination
from frazil.project import Project
from frazil.report.sql import query


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose catalog has a table in a namespace called like a word of SQL."""
    env = {"FRAZIL_HOME": str(tmp_path / "home")}
    lake = Project.load(env).lake("lake")
    declared = {"table": "default.t", "columns": {"id": "long", "r": "list<struct<b: long>>"}, "kafka_columns": False}
    schema = declared_schema(Destination.model_validate(declared))
    table = lake.create_table("default.t", schema, UNPARTITIONED, {})
    rows = [{"id": 1, "r": None}, {"id": 2, "r": []}, {"id": 3, "r": [{"b": None}]}]
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    (file,) = write_rows(staging_table("default.t", table), pa.Table.from_pylist(rows, arrow))
    table.add_files([file.path])
    return env


@pytest.mark.parametrize(
    "sql",
    [
        "FROM default.t SELECT id",
        "SELECT id FROM default . t -- default.t",
        "SELECT 'default.é' AS n, t.id FROM lake.default.t",
        'SELECT t.id FROM default.t JOIN "default".t AS o USING (id)',
    ],
)
def test_namespace_named_like_an_sql_word_is_readable(home: dict[str, str], sql: str) -> None:
    """`default` is the namespace of many catalogs, and `FROM default.t` what people write."""
    assert sorted(query(Project.load(home), sql)["id"].to_pylist()) == [1, 2, 3]


def test_null_list_of_structs_is_null_in_a_reading_process(home: dict[str, str]) -> None:
    """Null, empty and full are three things; nothing that writes has been imported there."""
    code = (
        "import json, sys; from frazil.project import Project; from frazil.report.sql import query;"
        "found = query(Project.load(json.loads(sys.argv[1])), 'SELECT id, r, r IS NULL AS n FROM default.t ORDER BY id');"
        "print(json.dumps(found.to_pylist()))"
    )
    ran = subprocess.run([sys.executable, "-c", code, json.dumps(home)], capture_output=True, check=True, text=True)
    assert json.loads(ran.stdout) == [
        {"id": 1, "r": None, "n": True},
        {"id": 2, "r": [], "n": False},
        {"id": 3, "r": [{"b": None}], "n": False},
    ]


def test_every_reader_of_tables_keeps_nulls() -> None:
    """The ledger's reader, reports and verify open tables by a catalog: that alone mends the projection."""
    code = "import frazil.iceberg.catalog.catalog, pyiceberg.io.pyarrow as reader;print(reader.ArrowProjectionVisitor.__module__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.strip() == "frazil.iceberg.patches.files"
