"""The topics that a run read and the tables that it wrote, under the names that other lineage tools use.

Names follow OpenLineage's specification: a topic's namespace is a broker's address. A table's name is the location of its
data, which is the same for all catalogs and engines; its name in the catalog is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from frazil.batch.plan import RunPlan
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, FileCapture
from frazil.project import Project

if TYPE_CHECKING:
    from pyiceberg.types import NestedField

    from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog

_KAFKA_PORT = 9092
_LANDED_ROLES = ("destination", "dead_letters")
"""Roles, in the ledger, of tables that get records."""

_JDBC = re.compile(r"jdbc:(?P<scheme>\w+)://(?P<host>[\w.-]+(:\d+)?)/(?P<database>[\w-]+)")

_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "wasbs": "wasbs"}
"""Scheme of a location -> scheme in the dataset's name."""


@dataclass(frozen=True, slots=True)
class Name:
    """Name of a dataset: its namespace, and its name in it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A topic that a run read. Records and bytes are known only if it was the only topic, and the run landed something."""

    name: Name
    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TableWritten:
    """A table that a run wrote, with counts, or will write, without counts.

    Attributes:
        name: Location of its data.
        known_as: Its name in its catalog.
        snapshot_id: The run's last snapshot in it; None if there is none.
        rows, files, bytes: What it got; None before the run landed.
    """

    name: Name
    known_as: Name
    columns: tuple[NestedField, ...]
    snapshot_id: int | None = None
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """Datasets that a run reads and writes."""

    topics: tuple[TopicRead, ...]
    tables: tuple[TableWritten, ...]


def run_lineage(project: Project, pipeline: Pipeline, plan: RunPlan, *, has_landed: bool) -> Lineage:
    """Topics that a run reads and tables that it writes. A dry run writes none.

    Before the run landed, these are the existing destinations. Afterwards the ledger has what the plan read and wrote,
    including the dead-letter table if it got rows.

    Raises:
        Retryable: The catalog can't be read now.
    """
    from frazil.iceberg.ledger.ledger import first_rows, read_ledger

    names = _topics(project, pipeline, plan)
    if plan.mode == "dry_run":
        return Lineage(tuple(TopicRead(name) for name in names), ())
    pipeline = project.with_auto_created(pipeline)
    lake = project.lake_of(pipeline)
    if not has_landed:
        tables = tuple(_tables(lake, dict.fromkeys(pipeline.tables, ())))
        return Lineage(tuple(TopicRead(name) for name in names), tables)
    planned_at = datetime.fromisoformat(plan.planned_at)
    ledger = read_ledger(lake, pipeline.ledger_table, pipeline.name, plan.run)
    rows = [row for row in ledger if row["planned_at"] >= planned_at]
    batches = list(first_rows(rows))
    counts = _sum(batches, "records_read"), _sum(batches, "bytes_read")
    records, size = counts if batches and len(names) == 1 else (None, None)
    by_table: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["role"] in _LANDED_ROLES and (row["role"] == "destination" or row["rows"]):
            by_table.setdefault(row["table"], []).append(row)
    return Lineage(tuple(TopicRead(name, records, size) for name in names), tuple(_tables(lake, by_table)))


def capture_names(project: Project, capture: Capture) -> tuple[tuple[Name, ...], Name]:
    """Names of the files, or of the table, that a capture reads, and of its topic. A query has the name of its database."""
    topic = Name(cluster_namespace(project.settings.clusters[capture.cluster].bootstrap_servers), capture.topic)
    if isinstance(capture, FileCapture):
        return tuple(Name("file", path) for path in capture.paths), topic
    return (database_name(project.database(capture.database).url, capture.database, capture.table),), topic


def database_name(url: str, database: str, table: str | None) -> Name:
    """Name of a table from its database's address: ``postgres://host:port`` and ``database.table``.

    Addresses of some drivers contain users or passwords. So an address of any other form is replaced by the database's name in the
    settings.
    """
    address = _JDBC.fullmatch(url.partition("?")[0])
    names = (address["database"] if address else database, *([table] if table else []))
    scheme = f"{address['scheme']}://{address['host']}" if address else "jdbc"
    return Name(scheme.replace("postgresql:", "postgres:"), ".".join(names))


def _topics(project: Project, pipeline: Pipeline, plan: RunPlan) -> list[Name]:
    servers = project.settings.clusters[pipeline.source.cluster].bootstrap_servers
    # The plan of a session has no ranges: the session plans its batches itself.
    read = {offsets.topic for offsets in plan.ranges} if plan.until is None else set(pipeline.source.topics)
    return [Name(cluster_namespace(servers), topic) for topic in sorted(read)]


def _tables(lake: PipelineCatalog, by_table: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[TableWritten]:
    """Existing tables, with counts from the run's rows in the ledger."""
    for name, table_rows in by_table.items():
        table, rows = lake.find_table(name), list(table_rows)
        if table is None:
            continue
        snapshots = [row["snapshot_id"] for row in rows if row["snapshot_id"] is not None]
        yield TableWritten(
            name=location_name(table.location()),
            known_as=Name(without_secrets(lake.catalog_of(name).uri), name),
            columns=table.schema().fields,
            snapshot_id=snapshots[-1] if snapshots else None,
            rows=_sum(rows, "rows") if rows else None,
            files=_sum(rows, "files") if rows else None,
            bytes=_sum(rows, "bytes") if rows else None,
        )


def cluster_namespace(bootstrap_servers: str) -> str:
    """Namespace of a cluster's topics: its first bootstrap server, ``kafka://host:port``."""
    first = bootstrap_servers.split(",", maxsplit=1)[0].strip().rpartition("://")[2]
    host, _, port = first.rpartition(":")
    return f"kafka://{first}" if host and port.isdecimal() else f"kafka://{first}:{_KAFKA_PORT}"


def location_name(location: str) -> Name:
    """Name of a table from its location: ``s3://bucket`` and ``path/of/table``, or ``file`` and ``/path/of/table``."""
    parts = urlsplit(location)
    path = parts.path.rstrip("/")
    if parts.scheme in ("", "file"):
        return Name("file", path)
    if parts.scheme in _OBJECT_STORES:
        return Name(f"{_OBJECT_STORES[parts.scheme]}://{parts.netloc}", path.lstrip("/"))
    return Name(f"{parts.scheme}://{parts.netloc}", path)


def without_secrets(uri: str) -> str:
    """An address without user, password, options (which may contain a token), and the name of a database driver."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    bare = parts._replace(scheme=scheme, netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    return urlunsplit(bare) if parts.netloc else f"{scheme}://{parts.path}"


def _sum(rows: Iterable[Mapping[str, Any]], column: str) -> int:
    return sum(row[column] or 0 for row in rows)
