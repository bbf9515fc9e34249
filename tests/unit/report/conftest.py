"""A project with a lake of its own, whose dead-letter table tests fill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA, UNPARTITIONED
from frazil.project import Project
from tests.unit.report.letters import LEDGER, NAME, ORDERS, SETTINGS

Append = Callable[..., None]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "home").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "pipelines" / "orders.yaml").write_text(ORDERS)
    places = {"HOME": "home", "SETTINGS": "settings.yaml", "PIPELINES": "pipelines"}
    return Project.load({f"FRAZIL_{name}": str(tmp_path / folder) for name, folder in places.items()})


@pytest.fixture
def append(project: Project) -> Append:
    """Make the table and put rows into it, each call a file: `append(letter(0), letter(1))`."""

    def do(*rows: dict[str, Any]) -> None:
        schema = DEAD_LETTER_SCHEMA
        lake = project.lake("lake")
        table = lake.find_table(NAME) or lake.create_table(NAME, schema, UNPARTITIONED, {})
        records = [{name: row[name] for name in schema.column_names if name in row} for row in rows]
        table.append(pa.Table.from_pylist(records, schema_to_pyarrow(schema, include_field_ids=False)))

    return do


@pytest.fixture
def finish(project: Project) -> Callable[..., None]:
    """Have the ledger say that batches finished: `finish(batch(1), batch(2, kind="repair"))`."""

    def do(*rows: dict[str, Any]) -> None:
        lake, schema = project.lake("lake"), schema_to_pyarrow(LEDGER_SCHEMA, include_field_ids=False)
        table = lake.find_table(LEDGER) or lake.create_table(LEDGER, LEDGER_SCHEMA, UNPARTITIONED, {})
        table.append(pa.Table.from_pylist(list(rows), schema))

    return do
