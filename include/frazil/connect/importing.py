"""Connectors become pipelines and entries of the settings: as plain data, and as YAML with a comment at each value that a
person must add.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import yaml

from frazil.connect import source, tables, transforms
from frazil.connect.config import Connector, close_worker
from frazil.connect.control import ConnectorProgress
from frazil.connect.findings import APACHE, TABULAR, ConnectorKeys, Finding, Secrets
from frazil.connect.tables import RouteResult, translate_route
from frazil.pipeline.files.files import references_in

OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "io.confluent.connect.jdbc.JdbcSinkConnector": "writes to databases",
        "io.aiven.connect.jdbc.JdbcSinkConnector": "writes to databases",
        "io.debezium.connector.jdbc.JdbcSinkConnector": "writes to databases",
        "io.confluent.connect.s3.S3SinkConnector": "writes files to S3, no Iceberg table",
        "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": "writes files to S3, no Iceberg table",
        "io.confluent.connect.gcs.GcsSinkConnector": "writes files to Cloud Storage, no Iceberg table",
        "io.confluent.connect.hdfs.HdfsSinkConnector": "writes files to HDFS, no Iceberg table",
        "org.apache.hudi.connect.HoodieSinkConnector": "writes Hudi tables",
        "io.delta.kafka.DeltaSinkConnector": "writes Delta tables",
        "com.getindata.kafka.connect.iceberg.sink.IcebergSink": "is another project's Iceberg sink, for Debezium only",
        "com.snowflake.kafka.connector.SnowflakeSinkConnector": "writes to Snowflake",
    }
)
"""Connectors that are not imported, and what they do."""


@dataclass(frozen=True, slots=True)
class ImportContext:
    """What an import knows besides the configuration of the connector.

    Attributes:
        worker: The worker's properties.
        columns: Columns by table.
        tables: Tables of a connector whose records name them.
        absent: Tables that do not exist yet, so that the first run creates them.
        cluster: Name of a cluster in the existing settings, instead of a new entry.
        catalog: Name of a catalog there, likewise.
        registry: Name of a registry there, likewise.
        is_preview: Whether columns are still to be read from the catalog, so that missing ones are no reason to refuse.
    """

    worker: Mapping[str, str] = field(default_factory=dict, repr=False)
    columns: Mapping[str, tables.Columns] = field(default_factory=dict)
    tables: Sequence[str] = ()
    absent: Collection[str] = ()
    cluster: str | None = None
    catalog: str | None = None
    registry: str | None = None
    is_preview: bool = False


@dataclass(frozen=True, slots=True)
class EntryNames:
    """Names of new entries of the settings file."""

    cluster: str = "kafka"
    registry: str = "registry"
    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedConnector:
    """The result of importing one connector.

    Attributes:
        connector: Its name.
        file: The file that it was read from.
        pipeline: The pipeline file, empty if the connector is refused.
        settings: Entries of the settings file: clusters, catalogs, registries.
        findings: One for each given key, the most serious first.
        notes: Remarks that are not about a single key.
        variables: Environment variable -> what to put there.
        values: Environment variable -> the value that the configuration has. For this process only.
        progress: Where the connector stores its progress; None if it is refused.
    """

    connector: str
    file: str
    pipeline: dict[str, Any]
    settings: dict[str, dict[str, Any]]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    variables: dict[str, str]
    values: dict[str, str] = field(repr=False)
    progress: ConnectorProgress | None

    @property
    def is_refused(self) -> bool:
        """Whether no pipeline file can be written for the connector."""
        return any(finding.outcome == "refused" for finding in self.findings)


def import_connector(
    connector: Connector, context: ImportContext, names: EntryNames = EntryNames()
) -> ImportedConnector:
    """Turn one connector into a pipeline. Reads and writes no file, and never raises."""
    keys, worker = ConnectorKeys(connector.config), ConnectorKeys(context.worker, "worker: ")
    if not _is_sink(keys):
        return _result(connector, (keys, ConnectorKeys({})), {}, {}, ())
    return _import_sink(connector, context, names, keys, worker)


def _import_sink(
    connector: Connector, context: ImportContext, names: EntryNames, keys: ConnectorKeys, worker: ConnectorKeys
) -> ImportedConnector:
    name = pipeline_name(connector.name)
    if "name" in keys:
        keys.report("name", "carried" if name == connector.name else "changed", f"name: {name}")
    secrets = [Secrets(prefix) for prefix in (names.cluster, names.catalog or "catalog", names.registry)]
    cluster = source.cluster(keys, worker, secrets[0])
    catalog_name, catalog_entry = source.catalog(keys, secrets[1])
    decoding = transforms.decoding(keys, worker, context.registry or names.registry, secrets[2])
    key = transforms.key_decoding(keys, worker, decoding, needed=transforms.works_on_keys(keys))
    columns_for_types = None if context.is_preview else context.columns
    chain = transforms.chain(keys, decoding.value.get("format"), has_key=key is not None, columns=columns_for_types)
    merging = tables.merging(keys)
    routes = tables.require_listed_tables(keys, translate_route(keys, context.tables), merging)
    columns = {**{routes.name(table): named for table, named in context.columns.items()}, **context.columns}
    settings: dict[str, dict[str, Any]] = {}
    if context.cluster is None:
        settings["clusters"] = {names.cluster: cluster}
    if context.catalog is None:
        settings["catalogs"] = {names.catalog or catalog_name: catalog_entry}
    if context.registry is None and decoding.registry is not None:
        settings["registries"] = {names.registry: decoding.registry}
    pipeline: dict[str, Any] = {
        "name": name,
        "description": f"Carried over from the connector {connector.name}.",
        **source.schedule(keys),
        "start": source.first_offset(keys, worker),
        "source": {"cluster": context.cluster or names.cluster, **source.source(keys)},
        "value": _value(keys, decoding.value, chain, merging.get("write")),
        **({"key": key} if key else {}),
        **({"transforms": list(chain.steps)} if chain.steps else {}),
        **_route(keys, routes),
        "catalog": context.catalog or names.catalog or catalog_name,
        "destinations": tables.destinations(
            keys, routes.tables, columns, context.absent, merging, is_preview=context.is_preview
        ),
        "dead_letters": source.dead_letters(keys),
    }
    for reference in dict.fromkeys(match[0] for match in references_in(pipeline)):
        keys.note(
            f"{reference}, which a config provider fills in, is refused in a pipeline file unless the settings list it under"
            " references.allow: write the value, or list it there."
        )
    keys.note(source.start_remark(pipeline["start"]))
    source.hadoop(keys)
    source.framework(keys)
    used = [
        entry_secrets
        for entry_secrets, entry in zip(secrets, (context.cluster, context.catalog, context.registry), strict=True)
        if entry is None
    ]
    return _result(connector, (keys, worker), pipeline, settings, used)


def _route(keys: ConnectorKeys, routes: RouteResult) -> dict[str, Any]:
    if routes.route is None or not routes.creates:
        return {"route": routes.route} if routes.route else {}
    return {"route": {**routes.route, "create": tables.template(keys, routes.tables)}}


def pipeline_name(connector: str) -> str:
    """The name of the pipeline that a connector becomes."""
    name = re.sub(r"[^a-z0-9]+", "_", connector.lower()).strip("_")[:90]
    return name if name[:1].isalpha() else f"p_{name}".rstrip("_")


def _is_sink(keys: ConnectorKeys) -> bool:
    connector_class = keys.get("connector.class")
    if connector_class in (APACHE, TABULAR, "IcebergSinkConnector", "IcebergSink"):
        keys.report("connector.class", "carried", "one pipeline file")
        if connector_class == APACHE and (old := keys.deprecated_names):
            keys.note(f"Apache's sink ignores the old names {', '.join(old)}; Frazil imports them as the present ones.")
        return True
    by_hand = f"expected {APACHE} or {TABULAR}"
    if connector_class is None:
        message = "no connector.class, so the kind of connector is unknown"
        keys.report("connector.class", "refused", message, by_hand)
        return False
    description = OTHERS.get(connector_class) or (
        "reads a database's log into Kafka" if ".debezium.connector." in connector_class else "is no Iceberg sink"
    )
    message = f"{connector_class} {description}: only the Iceberg sink is imported"
    keys.report("connector.class", "refused", message, by_hand)
    for name in list(keys.unreported()):
        keys.report(name, "not_supported", "a key of a connector that is not imported")
    return False


def _value(keys: ConnectorKeys, value: dict[str, Any], chain: transforms.Chain, write: str | None) -> dict[str, Any]:
    decoding = {**value, **({"format": "json"} if chain.reads_text else {}), "casts": "text"}
    if decoding.get("format") == "json" and (chain.steps or write == "cdc"):
        decoding["fields"] = "inferred"
    if write == "upsert":
        decoding["null_value"] = "filter"
        keys.note(
            "value.null_value: filter leaves tombstones out, as the sink does. With key, which says how keys are decoded, null_value:"
            " delete lets them delete the row of their key: docs/changes.md."
        )
    name = "iceberg.tables.schema-case-insensitive"
    if keys.is_true(name):
        decoding["field_names"] = "case_insensitive"
        keys.report(name, "carried", "value.field_names: case_insensitive")
    elif name in keys:
        keys.report(name, "carried", "value.field_names: exact, the default")
    return decoding


def _result(
    connector: Connector,
    key_sets: tuple[ConnectorKeys, ConnectorKeys],
    pipeline: dict[str, Any],
    settings: dict[str, dict[str, Any]],
    secrets: Sequence[Secrets],
) -> ImportedConnector:
    keys, worker = key_sets
    refused = keys.is_refused or worker.is_refused
    tables = [destination["table"] for destination in pipeline.get("destinations", ())]
    return ImportedConnector(
        connector=connector.name,
        file=connector.file,
        pipeline={} if refused else pipeline,
        settings={} if refused else settings,
        findings=(*keys.close(tables), *close_worker(worker)),
        notes=(*keys.notes, *worker.notes),
        variables={name: text for entry_secrets in secrets for name, text in entry_secrets.descriptions.items()},
        values={name: value for entry_secrets in secrets for name, value in entry_secrets.values.items()},
        progress=None if refused else _progress(connector, keys, tables),
    )


def _progress(connector: Connector, keys: ConnectorKeys, destinations: Sequence[str]) -> ConnectorProgress:
    connect = keys.get("iceberg.connect.group-id") or f"connect-{connector.name}"
    control = keys.get("iceberg.control.group-id") or f"cg-control-{connector.name}"
    tabular = keys.get("connector.class") == TABULAR
    default = keys.get("iceberg.tables.default-commit-branch") or "main"
    branches = {table: keys.get(f"iceberg.table.{table}.commit-branch") or default for table in destinations}
    return ConnectorProgress(
        groups=(control, connect) if tabular else (connect,),
        connect_group=connect,
        group=control if tabular else connect,
        control_topic=keys.get("iceberg.control.topic") or "control-iceberg",
        branches={"*": default, **branches},
    )


_REFERENCE = re.compile(r"\$\{env:(\w+)\}")

Settings = dict[str, dict[str, Any]]


def import_all(connectors: Iterable[Connector], context: ImportContext) -> tuple[list[ImportedConnector], Settings]:
    """Import connectors that share a settings file.

    Returns:
        The result for each connector, in their order; and the settings of all: clusters, catalogs, registries.
    """
    settings: Settings = {}
    resolved: dict[tuple[str, str], Any] = {}
    pipeline_names: set[str] = set()
    imports = []
    for connector in connectors:
        imported = _import_with_own_entries(connector, context, resolved)
        if imported.pipeline and imported.pipeline["name"] in pipeline_names:
            imported = _refuse_same_name(imported)
        if imported.pipeline:
            pipeline_names.add(imported.pipeline["name"])
        for kind, entries in imported.settings.items():
            settings.setdefault(kind, {}).update(entries)
            resolved |= {(kind, name): with_values(entry, imported.values)[0] for name, entry in entries.items()}
        imports.append(imported)
    return imports, settings


def _import_with_own_entries(
    connector: Connector, context: ImportContext, resolved: Mapping[tuple[str, str], Any]
) -> ImportedConnector:
    """Import one connector. An entry gets another name if an earlier connector has an entry of this name that differs."""
    names = EntryNames()
    imported = import_connector(connector, context, names)
    for kind, attribute in (("clusters", "cluster"), ("registries", "registry"), ("catalogs", "catalog")):
        first = next(iter(imported.settings.get(kind, {})), None)
        number = 1
        while first is not None and _clashes(kind, imported, resolved):
            number += 1
            names = replace(names, **{attribute: f"{first}_{number}"})
            imported = import_connector(connector, context, names)
    return imported


def _clashes(kind: str, imported: ImportedConnector, resolved: Mapping[tuple[str, str], Any]) -> bool:
    return any(
        (kind, name) in resolved and resolved[kind, name] != with_values(entry, imported.values)[0]
        for name, entry in imported.settings.get(kind, {}).items()
    )


def with_values(entry: Any, values: Mapping[str, str]) -> tuple[Any, set[str]]:
    """An entry with values in place of its references to variables, and the names of variables without a value."""
    missing: set[str] = set()

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {name: fill(inner) for name, inner in node.items()}
        return _REFERENCE.sub(value, node) if isinstance(node, str) else node

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            missing.add(match[1])
        return values.get(match[1], match[0])

    return fill(entry), missing


def _refuse_same_name(imported: ImportedConnector) -> ImportedConnector:
    message = f"another connector became the pipeline {imported.pipeline['name']} already"
    refusal = Finding("name", "refused", message, "give the connectors different names")
    findings = tuple(finding for finding in imported.findings if finding.key != "name")
    return replace(imported, findings=(refusal, *findings), pipeline={}, settings={}, progress=None)


_WIDTH = 118
_BLANKS = {
    "  columns: {}": "name the columns: name -> type; the connector takes them from the table",
    "destinations: []": "name every table that the field may name, with its columns",
}
"""Lines of a pipeline file that validation refuses, and what to write there."""


def pipeline_text(imported: ImportedConnector) -> str:
    """The pipeline file: manual steps as comments first, then the keys."""
    lines = _yaml(imported.pipeline).splitlines()
    return "\n".join(
        [*_header(imported), *(f"{line}  # {_BLANKS[line]}" if line in _BLANKS else line for line in lines), ""]
    )


def settings_text(settings: Mapping[str, Any], imported: Sequence[ImportedConnector]) -> str:
    """The settings file, with comments that name the variables which it reads."""
    variables = {name: text for connector in imported for name, text in connector.variables.items()}
    written = _yaml(dict(settings))
    descriptions = [
        f"#   {name}: {_one_line(text)}" for name, text in sorted(variables.items()) if f"${{env:{name}}}" in written
    ]
    head = "# Carried over from Kafka Connect."
    if descriptions:
        head += " Secrets are not in here; set these environment variables:"
    return "\n".join([head, *descriptions, "", written])


def blanks(imported: ImportedConnector) -> list[str]:
    """The values that a person must add before `frazil validate` accepts the file; none if the connector is refused."""
    lines = _yaml(imported.pipeline).splitlines()
    return list(dict.fromkeys(f"{line.strip()}  # {_BLANKS[line]}" for line in lines if line in _BLANKS))


def _header(imported: ImportedConnector) -> Iterator[str]:
    yield f"# Carried over from the connector {_one_line(imported.connector)} of Kafka Connect."
    unsolved = [finding for finding in imported.findings if finding.outcome in ("not_supported", "unknown")]
    changed = [finding for finding in imported.findings if finding.outcome == "changed" and finding.by_hand]
    if unsolved or changed:
        yield "# To do by hand, or to know:"
    for finding in (*unsolved, *changed):
        yield f"# - {_one_line(finding.key)}: {_one_line(finding.message)}"
        if finding.by_hand:
            yield f"#   {_one_line(finding.by_hand)}"
    yield ""


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _yaml(mapping: Mapping[str, Any]) -> str:
    return yaml.dump(dict(mapping), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors: properties that two tables share are written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True
