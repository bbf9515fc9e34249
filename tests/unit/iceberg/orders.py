"""A table of orders, batches for it, rivals, and a catalog that loses answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

from frazil.batch.position import BatchMark
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.sql import SharedSqlCatalog
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.commit.commit import Change, Refused, commit, fit_of
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog, TablePlace
from frazil.iceberg.commit.summary_state import BATCH_KEY, landed_snapshot, summary_value_or_refuse
from frazil.iceberg.files.data_files import write_rows
from frazil.pipeline.models.pipeline_file import Destination

TABLE = "shop.orders"
KEY = BATCH_KEY.format("orders")
ROWS = pa.schema([("id", pa.int32()), ("day", pa.string())])

Step = Callable[[Callable[[], CommitTableResponse]], CommitTableResponse]


def destination(**changes: Any) -> Destination:
    """The declared table."""
    return Destination.model_validate(
        {"table": TABLE, "columns": {"id": "int", "day": "string"}, "partition_by": ["day"], "kafka_columns": False}
        | changes
    )


class UnreliableCatalog(SharedSqlCatalog):
    """The real catalog. Its next commits go through the steps of `script`, one each; later ones go as ever."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.script: list[Step] = []

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        """Commit as the script says."""

        def really() -> CommitTableResponse:
            return SharedSqlCatalog.commit_table(self, table, requirements, updates)

        return self.script.pop(0)(really) if self.script else really()


def follow(lake: Lake, *steps: Step) -> None:
    """Let the next commits go through these steps."""
    catalog = lake._catalog
    assert isinstance(catalog, UnreliableCatalog)
    catalog.script = list(steps)


def answer_lost(error: Exception, *actions: Callable[[], object]) -> Step:
    """The commit lands, other things happen, and the writer hears an error."""

    def step(really: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        really()
        for action in actions:
            action()
        raise error

    return step


def never_arrived(error: Exception) -> Step:
    """The commit does not land, and the writer hears an error."""

    def step(_: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        raise error

    return step


def overtaken(*actions: Callable[[], object]) -> Step:
    """Other things happen after the writer looked and before its commit arrives."""

    def step(really: Callable[[], CommitTableResponse]) -> CommitTableResponse:
        for action in actions:
            action()
        return really()

    return step


def mark(n: int, batch: str | None = None) -> BatchMark:
    """The mark of batch `n`."""
    return BatchMark(n, batch or f"batch-{n}", 0)


def rows(*ids: int, day: str | None = "mon") -> pa.Table:
    """Orders of one day."""
    return pa.table([pa.array(ids, pa.int32()), pa.array([day] * len(ids), pa.string())], schema=ROWS)


def batch(lake: Lake, mark: BatchMark, after: BatchMark | None, data: pa.Table) -> Change:
    """A staged batch, planned on a table that holds `after` last."""
    table = lake.load_table(TABLE)

    def check(metadata: TableMetadata) -> None:
        value = summary_value_or_refuse(metadata, KEY, TABLE)
        last = BatchMark.from_json(value.value) if value else None
        if last != after:
            raise Refused(f"holds {last}, expected {after}")

    return Change(
        step="follow",
        table=TABLE,
        files=write_rows(staging_table(TABLE, table), data),
        summary={KEY: mark.to_json(), "frazil.rows.written": str(data.num_rows)},
        mirrored=(KEY,),
        fit=fit_of(table.metadata),
        landed=lambda metadata: landed_snapshot(metadata, KEY, mark, TABLE),
        check=check,
    )


def commit_batches(lake: Lake, *numbers: int) -> list[int]:
    """Commit these batches in order, each with one order of its number. Ids of their snapshots."""
    return [commit(lake, batch(lake, mark(n), mark(n - 1) if n > 1 else None, rows(n))) for n in numbers]


def foreign_append(lake: Lake, *ids: int) -> Callable[[], None]:
    """Another engine that appends, through a catalog of its own, when called."""

    def append() -> None:
        elsewhere(lake).load_table(TABLE).append(rows(*ids))

    return append


def elsewhere(lake: Lake) -> Lake:
    """The same catalog, opened by somebody else, who looks at the same branch."""
    plain = Lake(lake.name, lake.uri, lake.warehouse, {})
    branch = lake.branch_of(TABLE)
    return plain if branch is None else on_branch(plain, branch)


def on_branch(plain: Lake, branch: str) -> PipelineCatalog:
    """A catalog whose table of orders is seen on a branch."""
    return PipelineCatalog("nobody", plain, {TABLE: TablePlace(plain, branch)}, lambda _: plain)


def ids(lake: Lake, where: str | None = None) -> list[int]:
    """Every order in the table, read through its manifests and data files."""
    scan = lake.load_table(TABLE).scan(**({"row_filter": where} if where else {}))
    return sorted(scan.to_arrow()["id"].to_pylist())
