"""Input and output of `frazil import-connector`: reads files, asks the cluster and the catalog of a stopped connector where
needed, and writes pipeline files and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from frazil.connect.config import Connector, read_connectors
from frazil.connect.control import (
    ConnectorProgress,
    ControlFacts,
    OffsetBounds,
    concerned_tables,
    start_offsets,
    takeover_obstacles,
)
from frazil.connect.findings import Finding
from frazil.connect.importing import (
    ImportContext,
    ImportedConnector,
    Settings,
    blanks,
    import_all,
    pipeline_text,
    settings_text,
    with_values,
)
from frazil.error_codes import BAD_FILE, BAD_SETTING
from frazil.extras import require
from frazil.pipeline.files.files import UnreadableProperties, read
from frazil.pipeline.files.load import problems
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.pipeline.settings.settings import ClusterSettings
from frazil.project import Project, catalog_of

if TYPE_CHECKING:
    from frazil.connect.tables import Columns
    from frazil.iceberg.catalog.catalog import Lake
    from frazil.kafka.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ImportTargets:
    """The clusters and catalogs that imported pipelines name: imported entries, or else those of the project's settings."""

    load_project: Callable[[], Project]
    settings: Settings
    values: Mapping[str, str]

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name.

        Raises:
            Terminal: It does not exist, or a variable that it needs is not set.
        """
        from frazil.kafka.client.cluster import Cluster

        entry = self._entry("clusters", name)
        if entry is None:
            return self.load_project().cluster(name)
        settings = _model(ClusterSettings, entry, name)
        return Cluster(name, settings.client_properties)

    def lake(self, name: str) -> Lake:
        """The catalog of that name.

        Raises:
            Terminal: It does not exist, or a variable that it needs is not set.
        """
        entry = self._entry("catalogs", name)
        if entry is None:
            return self.load_project().lake(name)
        return catalog_of(name, _model(CatalogSettings, entry, name))

    def _entry(self, kind: str, name: str) -> Any:
        entry = self.settings.get(kind, {}).get(name)
        filled, missing = with_values(entry, self.values)
        if missing:
            raise BAD_SETTING.terminal(
                f"{kind}.{name} can't be reached: {', '.join(sorted(missing))} not set",
                next_step="set these environment variables, or name an entry of your settings (--cluster, --catalog)",
            )
        return filled


def read_columns(
    targets: ImportTargets, imports: Sequence[ImportedConnector], declared: Collection[str]
) -> tuple[dict[str, Columns], frozenset[str]]:
    """The columns of destinations that exist, except those in `declared`; and the names of destinations that don't exist.

    Raises:
        Terminal: A column has a type that can't be declared.
        Retryable: The catalog can't be reached.
    """
    from frazil.iceberg.schema.sink_tables import columns_of

    columns: dict[str, Columns] = {}
    absent = set()
    for connector in imports:
        for destination in connector.pipeline.get("destinations", ()):
            name = destination["table"]
            if name in declared or name in columns or name in absent:
                continue
            table = targets.lake(connector.pipeline["catalog"]).find_table(name)
            if table is None:
                absent.add(name)
            else:
                columns[name] = columns_of(table, name)
    return columns, frozenset(absent)


def with_start_offsets(targets: ImportTargets, imported: ImportedConnector) -> ImportedConnector:
    """The connector with the offsets at which it stopped; refused if they can't be taken over.

    Raises:
        Terminal: The control topic or a topic is missing, or access is refused.
        Retryable: A broker or the catalog can't be reached.
    """
    progress = imported.progress
    if progress is None:
        return imported
    cluster = targets.cluster(imported.pipeline["source"]["cluster"])
    lake = targets.lake(imported.pipeline["catalog"])
    if reasons := _running(cluster, progress):
        return as_refused(imported, reasons, "stop it: PUT /connectors/<name>/stop; then run this again")
    if reasons := takeover_obstacles(progress, _control_facts(cluster, lake, progress)):
        step = "start the connector until it has committed everything, stop it, and run this again"
        return as_refused(imported, reasons, step)
    return _with_offsets(cluster, progress, imported)


def _running(cluster: Cluster, progress: ConnectorProgress) -> list[str]:
    from frazil.kafka.admin.consumer_group import count_members

    members = count_members(cluster, progress.connect_group)
    return [f"the connector is running: its group {progress.connect_group} has {members} members"] if members else []


def _control_facts(cluster: Cluster, lake: Lake, progress: ConnectorProgress) -> ControlFacts:
    from frazil.iceberg.schema.sink_tables import committed_control_offsets
    from frazil.kafka.admin.consumer_group import group_offsets

    require("avro", "the connector's control topic")
    from frazil.kafka.read.control_topic import announced_files

    topic = progress.control_topic
    log, events = announced_files(cluster, topic)
    recorded = {
        table: committed_control_offsets(
            lake, table, progress.branches.get(table, progress.branches["*"]), topic, progress.group
        )
        for table in concerned_tables(progress, events)
    }
    committed = group_offsets(cluster, f"{progress.group}-coord", [(topic, partition) for partition in log])
    return ControlFacts(log, events, recorded, {partition: offset for (_, partition), offset in committed.items()})


def _with_offsets(cluster: Cluster, progress: ConnectorProgress, imported: ImportedConnector) -> ImportedConnector:
    from frazil.kafka.admin.consumer_group import group_offsets
    from frazil.kafka.admin.observe import matching_topics, observe

    source = imported.pipeline["source"]
    topics = source.get("topics") or matching_topics(cluster, source["topics_pattern"])
    facts = observe(cluster, topics)
    bounds = {
        (topic, number): OffsetBounds(partition.log_start, partition.high_watermark)
        for topic, topic_facts in facts.topics.items()
        for number, partition in enumerate(topic_facts.partitions)
    }
    groups = [(name, group_offsets(cluster, name, list(bounds))) for name in progress.groups]
    start = start_offsets(bounds, groups, imported.pipeline["start"])
    if start.obstacles:
        step = "choose a start by hand: frazil import-connector without --positions"
        return as_refused(imported, start.obstacles, step)
    pipeline = {**imported.pipeline, "start": {"offsets": start.offsets}}
    notes = tuple(note for note in imported.notes if not note.startswith("start: "))
    return replace(imported, pipeline=pipeline, notes=(*notes, *start.notes))


def _model(model: Any, entry: Any, name: str) -> Any:
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        details = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in problems)
        raise BAD_SETTING.terminal(
            f"{name} can't be reached: {details}", next_step="name an entry of your settings"
        ) from error


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of the command."""

    files: tuple[Path, ...]
    worker: Path | None
    folder: Path
    columns: Path | None
    tables: tuple[str, ...]
    cluster: str | None
    catalog: str | None
    registry: str | None
    positions: bool
    force: bool


@dataclass(frozen=True, slots=True)
class ImportFiles:
    """The result of the command.

    Attributes:
        pipelines: The connectors with their pipeline files; None if a connector is refused.
        settings_file: The settings file; None if none was written.
        variables: Environment variable -> what to put there.
    """

    pipelines: tuple[tuple[ImportedConnector, Path | None], ...]
    settings_file: Path | None
    variables: Mapping[str, str]

    @property
    def is_refused(self) -> bool:
        """Whether one of the connectors was refused."""
        return any(imported.is_refused for imported, _ in self.pipelines)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        connectors = [
            {
                "connector": imported.connector,
                "file": imported.file,
                "pipeline": str(file) if file else None,
                "findings": [
                    {
                        "key": finding.key,
                        "outcome": finding.outcome,
                        "message": finding.message,
                        "by_hand": finding.by_hand,
                    }
                    for finding in imported.findings
                ],
                "notes": imported.notes,
                "to_fill_in": blanks(imported),
            }
            for imported, file in self.pipelines
        ]
        settings = str(self.settings_file) if self.settings_file else None
        return {"ok": not self.is_refused, "connectors": connectors, "settings": settings, "variables": self.variables}


def import_files(options: ImportOptions, env: Mapping[str, str]) -> ImportFiles:
    """Import connectors and write their files.

    Raises:
        Terminal: A file can't be read or written, or exists already; or a cluster or catalog refuses.
        Retryable: A cluster or catalog does not answer.
    """
    connectors = [connector for file in options.files for connector in _connectors(file)]
    context = ImportContext(
        worker=_worker(options.worker),
        columns=_declared(options, connectors),
        tables=options.tables,
        cluster=options.cluster,
        catalog=options.catalog,
        registry=options.registry,
        is_preview=options.positions or options.catalog is not None,
    )
    imports, settings = import_all(connectors, context)
    if context.is_preview:
        values = {name: value for imported in imports for name, value in imported.values.items()}
        targets = ImportTargets(cache(Project.load), settings, {**values, **env})
        columns, absent = read_columns(targets, imports, context.columns)
        context = replace(context, columns={**columns, **context.columns}, absent=absent, is_preview=False)
        imports, settings = import_all(connectors, context)
        if options.positions:
            imports = [with_start_offsets(targets, imported) for imported in imports]
    return _write(options, [_refuse_invalid(imported) for imported in imports], settings)


def _refuse_invalid(imported: ImportedConnector) -> ImportedConnector:
    """Refuse a connector if validation would refuse its file, unless it has blanks that a person must fill in first."""
    from frazil.run.staging.record_problems import record_problems

    if not imported.pipeline or blanks(imported):
        return imported
    try:
        reasons: Sequence[str] = record_problems(Pipeline.model_validate(imported.pipeline))
    except ValidationError as error:
        reasons = problems(Pipeline, error, imported.pipeline, {})
    if not reasons:
        return imported
    return as_refused(imported, reasons, "change the connector's keys, or its columns (--columns)", "the pipeline file")


def _connectors(file: Path) -> Iterator[Connector]:
    try:
        connectors = read_connectors(_text(file), str(file))
    except UnreadableProperties as error:
        raise BAD_FILE.terminal(f"{file}: {error}", next_step="give connectors as .json or .properties") from error
    if not connectors:
        raise BAD_FILE.terminal(f"{file} has no connector", next_step="give connectors as .json or .properties")
    yield from connectors


def _worker(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        return read(_text(file))
    except UnreadableProperties as error:
        raise BAD_FILE.terminal(f"{file}: {error}", next_step="give the worker's .properties") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise BAD_FILE.terminal(
            f"{file} can't be read: {reason}", next_step="check its name and permissions"
        ) from error


def _declared(options: ImportOptions, connectors: Sequence[Connector]) -> dict[str, Columns]:
    """Columns by table, from a file with `{table: {column: type}}`, or `{column: type}` for all tables of the connectors."""
    file = options.columns
    if file is None:
        return {}
    try:
        document = yaml.safe_load(_text(file))
    except yaml.YAMLError as error:
        raise BAD_FILE.terminal(f"{file} is not YAML", next_step="write {table: {column: type}}") from error
    if not isinstance(document, dict):
        raise BAD_FILE.terminal(f"{file} has no columns", next_step="write {table: {column: type}}")
    named = {
        table.strip() for connector in connectors for table in connector.config.get("iceberg.tables", "").split(",")
    }
    named = {table for table in (*named, *options.tables) if table}
    # Looking for the key `type` is not enough: a table may have a column of this name.
    if not document.keys() & named and all(
        isinstance(columns, str) or "type" in _mapping(file, columns) for columns in document.values()
    ):
        document = dict.fromkeys(named, document)
    return {
        str(table): {str(name): _column(file, declared) for name, declared in _mapping(file, columns_of_table).items()}
        for table, columns_of_table in document.items()
    }


def _mapping(file: Path, mapping: Any) -> Mapping[Any, Any]:
    if mapping is not None and not isinstance(mapping, dict):
        raise BAD_FILE.terminal(
            f"{file}: the columns of a table are not a mapping", next_step="write {table: {column: type}}"
        )
    return mapping or {}


def _column(file: Path, column: Any) -> Mapping[str, Any]:
    if isinstance(column, str):
        return {"type": column}
    if isinstance(column, dict) and "type" in column:
        return column
    raise BAD_FILE.terminal(
        f"{file}: a column is neither a type nor a mapping with one", next_step="write column: type"
    )


def _write(options: ImportOptions, imports: Sequence[ImportedConnector], settings: Settings) -> ImportFiles:
    files = [
        options.folder / "pipelines" / f"{connector.pipeline['name']}.yaml" if connector.pipeline else None
        for connector in imports
    ]
    accepted = [connector for connector in imports if connector.pipeline]
    settings_file = options.folder / "settings.yaml" if settings and accepted else None
    existing = [file for file in (*files, settings_file) if file is not None and file.exists()]
    if existing and not options.force:
        raise BAD_FILE.terminal(
            f"{existing[0]} exists already", next_step="choose another folder (--out), or replace it (--force)"
        )
    for connector, file in zip(imports, files, strict=True):
        if file is not None:
            _write_file(file, pipeline_text(connector))
    if settings_file is not None:
        _write_file(settings_file, settings_text(settings, accepted))
    variables = {name: text for connector in accepted for name, text in connector.variables.items()}
    return ImportFiles(tuple(zip(imports, files, strict=True)), settings_file, variables)


def _write_file(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BAD_FILE.terminal(
            f"{file} can't be written: {error.strerror}", next_step="choose another folder (--out)"
        ) from error


def as_refused(
    imported: ImportedConnector, reasons: Sequence[str], next_step: str, key: str = "--positions connect"
) -> ImportedConnector:
    """The connector, refused for reasons that are not about one of its keys."""
    findings = tuple(Finding(key, "refused", reason, next_step) for reason in reasons)
    return replace(imported, findings=(*findings, *imported.findings), pipeline={}, settings={})
