"""Asks a stopped connector's cluster and catalog: what columns its tables have, and where exactly it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from frazil.connect.control import Bounds, ControlFacts, Standing, concerned_tables, reasons_against, start_offsets
from frazil.connect.importing import Imported, Settings, with_values
from frazil.errors import Terminal
from frazil.pipeline.catalogs import CatalogSettings
from frazil.pipeline.settings import ClusterSettings
from frazil.project import Project, catalog_of

if TYPE_CHECKING:
    from frazil.connect.tables import Columns
    from frazil.iceberg.catalog import Lake
    from frazil.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Doors:
    """Clusters and catalogs by the names that imported pipelines have for them: the project's, or just imported ones."""

    project: Project | None
    settings: Settings
    values: Mapping[str, str]

    @classmethod
    def open(cls, cluster: str | None, catalog: str | None, settings: Settings, values: Mapping[str, str]) -> Doors:
        """The project's settings are read only if one of them is named."""
        return cls(Project.load() if cluster or catalog else None, settings, values)

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name.

        Raises:
            Terminal: There is none, or a variable that it needs is not set.
        """
        from frazil.kafka.cluster import Cluster

        entry = self._entry("clusters", name)
        if entry is None:
            return self._project().cluster(name)
        found = _model(ClusterSettings, entry, name)
        return Cluster(name, {"bootstrap.servers": found.bootstrap_servers, **found.properties})

    def lake(self, name: str) -> Lake:
        """The catalog of that name.

        Raises:
            Terminal: There is none, or a variable that it needs is not set.
        """
        entry = self._entry("catalogs", name)
        if entry is None:
            return self._project().lake(name)
        return catalog_of(name, _model(CatalogSettings, entry, name))

    def _project(self) -> Project:
        return self.project or Project.load()

    def _entry(self, kind: str, name: str) -> Any:
        entry = self.settings.get(kind, {}).get(name)
        filled, missing = with_values(entry, self.values)
        if missing:
            raise Terminal(
                f"{kind}.{name} can't be reached: {', '.join(sorted(missing))} not set",
                next_step="set these environment variables, or name an entry of your settings (--cluster, --catalog)",
            )
        return filled


def column_facts(
    doors: Doors, done: Sequence[Imported], tables: Sequence[str]
) -> tuple[dict[str, Columns], frozenset[str]]:
    """Columns of the tables that are there, and the names of those that are not.

    Raises:
        Terminal: A column has a type that can't be declared.
        Retryable: The catalog can't be reached.
    """
    from frazil.iceberg.sink_tables import columns_of

    columns: dict[str, Columns] = {}
    absent = set()
    for one in done:
        for destination in one.pipeline.get("destinations", ()):
            name = destination["table"]
            if name not in tables or name in columns or name in absent:
                continue
            table = doors.lake(one.pipeline["catalog"]).find_table(name)
            if table is None:
                absent.add(name)
            else:
                columns[name] = columns_of(table, name)
    return columns, frozenset(absent)


def positioned(doors: Doors, imported: Imported) -> Imported:
    """The connector with the offsets where it stopped, or refused with the reason.

    Raises:
        Terminal: The control topic or a topic is missing, or access is refused.
        Retryable: A broker or the catalog can't be reached.
    """
    from frazil.cli.imported_files import refused

    standing = imported.positions
    if standing is None:
        return imported
    cluster = doors.cluster(imported.pipeline["source"]["cluster"])
    lake = doors.lake(imported.pipeline["catalog"])
    if reasons := _running(cluster, standing):
        return refused(imported, reasons, "stop it: PUT /connectors/<name>/stop; then run this again")
    if reasons := reasons_against(standing, _control_facts(cluster, lake, standing)):
        step = "start the connector until it has committed everything, stop it, and run this again"
        return refused(imported, reasons, step)
    return _started(cluster, standing, imported)


def _running(cluster: Cluster, standing: Standing) -> list[str]:
    from frazil.kafka.group_members import count_members

    members = count_members(cluster, standing.connect_group)
    return [f"the connector is running: its group {standing.connect_group} has {members} members"] if members else []


def _control_facts(cluster: Cluster, lake: Lake, standing: Standing) -> ControlFacts:
    from frazil.iceberg.sink_tables import committed_control_offsets
    from frazil.kafka.control_topic import announced_files
    from frazil.kafka.group import group_offsets

    topic = standing.control_topic
    log, events = announced_files(cluster, topic)
    recorded = {
        table: committed_control_offsets(
            lake, table, standing.branches.get(table, standing.branches["*"]), topic, standing.group
        )
        for table in concerned_tables(standing, events)
    }
    asked = group_offsets(cluster, f"{standing.group}-coord", [(topic, partition) for partition in log])
    return ControlFacts(log, events, recorded, {partition: offset for (_, partition), offset in asked.items()})


def _started(cluster: Cluster, standing: Standing, imported: Imported) -> Imported:
    from frazil.cli.imported_files import refused
    from frazil.kafka.group import group_offsets
    from frazil.kafka.observe import matching_topics, observe

    source = imported.pipeline["source"]
    topics = source.get("topics") or matching_topics(cluster, source["topics_pattern"])
    facts = observe(cluster, topics)
    bounds = {
        (topic, number): Bounds(partition.log_start, partition.high_watermark)
        for topic, of in facts.topics.items()
        for number, partition in enumerate(of.partitions)
    }
    groups = [(name, group_offsets(cluster, name, list(bounds))) for name in standing.groups]
    start = start_offsets(bounds, groups, imported.pipeline["start"])
    if start.against:
        return refused(imported, start.against, "choose a start by hand: frazil import-connector without --positions")
    pipeline = {**imported.pipeline, "start": {"offsets": start.offsets}}
    notes = tuple(note for note in imported.notes if not note.startswith("start: "))
    return replace(imported, pipeline=pipeline, notes=(*notes, *start.notes))


def _model(model: Any, entry: Any, name: str) -> Any:
    try:
        return model.model_validate(entry)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
        said = "; ".join(f"{'.'.join(map(str, of['loc']))}: {of['msg']}" for of in problems)
        raise Terminal(f"{name} can't be reached: {said}", next_step="name an entry of your settings") from error
