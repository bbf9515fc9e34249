"""Turns a connector's configuration into a pipeline file, and a pipeline file into a connector's configuration."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import yaml
from fastapi import HTTPException

from frazil.connect.config import Connector
from frazil.connect.findings import CANONICAL, Finding, is_secret
from frazil.connect.importing import (
    ImportContext,
    ImportedConnector,
    blanks,
    import_connector,
    pipeline_name,
    pipeline_text,
    with_values,
)
from frazil.connect.tables import Columns
from frazil.iceberg.schema.sink_tables import columns_of
from frazil.pipeline.files.change import ChangeRefused, read_content
from frazil.pipeline.files.files import REFERENCE, References, UnreadableFileError, parse_yaml
from frazil.pipeline.files.folder import file_of
from frazil.project import Project

PIPELINE: Final = "frazil.Pipeline"
"""`connector.class` of a configuration that has the keys of a pipeline file."""

CLASS, NAME = "connector.class", "name"

ENGINE: Final = "frazil.engine"
"""Key of a sink's configuration that names the pipeline's engine, in place of the default."""

ENTRIES: Final = {"clusters": "frazil.cluster", "catalogs": "frazil.catalog", "registries": "frazil.registry"}
"""Kind of an entry of the settings -> key that names one, for a sink's configuration whose other keys fit several entries."""

HIDDEN: Final = "${hidden:secret}"
"""Replaces, in answers, a secret that somebody wrote into a pipeline file. A client that sends it back is refused: the settings
don't allow this reference."""

_CONNECTOR: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,89}")
_RECORD: Final = re.compile(r"# connect: (\{.*\})")
_PROVIDED: Final = re.compile(r"\$\{[^}:$]+:(?:(?!:-)[^}$])+\}")
"""A reference without a default. With a default, the secret itself would be in the file."""

_NAMES_OF_RECORDS: Final = ("columns", "fields", "partition_by", "sort_by", "identifier")
"""Keys whose values have names of columns and fields as keys: a column named `token` is no secret of the file."""


def refused(problems: list[str], status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> HTTPException:
    """The error for a configuration that is not valid, in Kafka Connect's words."""
    lines = "\n".join(problems)
    return HTTPException(
        status, f"Connector configuration is invalid and contains the following {len(problems)} error(s):\n{lines}"
    )


def checked_name(connector: str) -> str:
    """The name of a connector's pipeline. This check lets no name of a request leave the folder of pipeline files.

    Raises:
        HTTPException: 400, the name is not valid.
    """
    if not _CONNECTOR.fullmatch(connector):
        raise refused([f"name: expected letters, digits, '.', '_' and '-', 90 at most, found {connector[:100]!a}"])
    return pipeline_name(connector)


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration as a pipeline file that is not checked yet.

    Attributes:
        text: The file's text; empty if there are problems.
        problems: Why the configuration can't become a file, each beginning with its key.
        findings: What the import made of each key of a sink.
    """

    text: str
    problems: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def draft(connector: str, config: Mapping[str, Any], project: Project) -> Draft:
    """Turn a configuration into a pipeline file, without writing it. Columns of a sink's tables come from the catalog.

    Raises:
        HTTPException: 400, the connector's name is not valid, or the configuration states another one.
        Terminal, Retryable: The catalog refuses, or does not answer.
    """
    pipeline = checked_name(connector)
    stated = config.get(NAME, connector)
    if stated != connector:
        message = f"Connector name configuration ({str(stated)[:100]!a}) doesn't match connector name ({connector})"
        raise HTTPException(HTTPStatus.BAD_REQUEST, message)
    try:
        return _draft(connector, pipeline, {**config, NAME: connector}, project)
    except RecursionError:
        return Draft("", ("file: values lie too deep within each other",))


def _draft(connector: str, pipeline: str, config: Mapping[str, Any], project: Project) -> Draft:
    is_own = config.get(CLASS, PIPELINE) == PIPELINE
    literal_secrets: list[str] = []
    moved = _with_references(config, project.pipelines.references, literal_secrets, ())
    if literal_secrets:
        problems = tuple(
            f"{key}: a secret is not written into a file: name a reference, such as ${{env:NAME}}, that the settings list"
            " under references.allow" + ("" if is_own else "; or leave it out: the settings have the catalog's own")
            for key in literal_secrets
        )
        return Draft("", problems)
    if is_own:
        document = {NAME: pipeline, **{key: _value(value) for key, value in moved.items() if key not in (CLASS, NAME)}}
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=118)
        return Draft(_with_record(text, connector, None))
    return _sink_draft(connector, moved, project)


def _sink_draft(connector: str, config: Mapping[str, Any], project: Project) -> Draft:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    own_keys = {key: value for key, value in texts.items() if key not in (*ENTRIES.values(), ENGINE)}
    sink = Connector(f"{connector}.json", own_keys)
    alone = import_connector(sink, ImportContext())
    problems = [f"{finding.key}: {finding.message}" for finding in alone.findings if finding.outcome == "refused"]
    entries = {kind: _entry(kind, texts.get(key), alone, project, problems) for kind, key in ENTRIES.items()}
    if problems:
        return Draft("", tuple(problems), alone.findings)
    columns, absent = _tables(alone, entries["catalogs"] or "", project)
    imported = import_connector(
        sink,
        ImportContext(
            columns=columns,
            absent=absent,
            cluster=entries["clusters"],
            catalog=entries["catalogs"],
            registry=entries["registries"],
        ),
    )
    if ENGINE in texts:
        imported = replace(imported, pipeline={**imported.pipeline, "engine": texts[ENGINE]})
    problems = [f"{finding.key}: {finding.message}" for finding in imported.findings if finding.outcome == "refused"]
    problems += [f"iceberg.tables: the pipeline file would lack {blank}" for blank in blanks(imported)]
    text = "" if problems else _with_record(pipeline_text(imported), connector, config)
    return Draft(text, tuple(problems), imported.findings)


def _entry(
    kind: str, chosen: str | None, imported: ImportedConnector, project: Project, problems: list[str]
) -> str | None:
    """Name of the entry of the settings that a sink means: `chosen`, the one with the sink's address, or the only cluster. Without
    exactly one, a problem is added to `problems`.
    """
    entries: Mapping[str, Any] = getattr(project.settings, kind)
    imported_entry = next(iter(imported.settings.get(kind, {}).values()), None)
    if chosen is not None and chosen not in entries:
        problems.append(f"{ENTRIES[kind]}: the settings have no {chosen[:100]!a} under {kind}")
        return None
    if chosen is not None or imported_entry is None:
        return chosen
    filled, _ = with_values(imported_entry, imported.values)
    if kind == "clusters":  # a connector has no address of its cluster: its worker does
        fitting = list(entries)
    else:
        fitting = [name for name, entry in entries.items() if _is_same_place(filled, entry)]
    if len(fitting) == 1:
        return fitting[0]
    problems.append(
        f"{ENTRIES[kind]}: the settings have {'none' if not fitting else 'several'} that this configuration may mean under"
        f" {kind}: name one of them by this key, known are {', '.join(sorted(entries)) or 'none'}"
    )
    return None


def _is_same_place(imported_entry: Mapping[str, Any], entry: Any) -> bool:
    address = str(imported_entry.get("uri", imported_entry.get("url"))).rstrip("/")
    present = str(getattr(entry, "uri", None) or getattr(entry, "url", None)).rstrip("/")
    return address == present and imported_entry.get("warehouse") in (None, getattr(entry, "warehouse", None))


def _tables(imported: ImportedConnector, catalog: str, project: Project) -> tuple[dict[str, Columns], frozenset[str]]:
    """Columns of the sink's tables that exist, and names of those that don't."""
    lake = project.lake(catalog)
    names = dict.fromkeys(destination["table"] for destination in imported.pipeline["destinations"])
    tables = {name: lake.find_table(name) for name in names}
    columns: dict[str, Columns] = {name: columns_of(table, name) for name, table in tables.items() if table is not None}
    return columns, frozenset(tables.keys() - columns.keys())


def _with_references(value: Any, references: References, literal_secrets: list[str], path: tuple[str, ...]) -> Any:
    """A value with allowed references in place of secrets. Paths of other secrets are added to `literal_secrets`."""
    if isinstance(value, dict):
        return {
            key: _with_references(inner, references, literal_secrets, (*path, str(key))) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_references(inner, references, literal_secrets, path) for inner in value]
    if not isinstance(value, str):
        return _reference(str(value), references, literal_secrets, path) if _is_secret(path, value) else value
    nested = _value(value)
    if isinstance(nested, dict | list):  # Terraform sends objects and lists as text
        moved = _with_references(nested, references, literal_secrets, path)
        return value if moved == nested else json.dumps(moved)
    return _reference(value, references, literal_secrets, path) if _is_secret(path, value) else value


def _reference(secret: str, references: References, literal_secrets: list[str], path: tuple[str, ...]) -> str:
    """The allowed reference whose value is this secret; without one, empty, and the path is added to `literal_secrets`."""
    for allowed in sorted(references.allow):
        match = REFERENCE.fullmatch(f"${{{allowed}}}")
        with suppress(KeyError):
            if match is not None and references.resolve(match) == secret:
                return match[0]
    literal_secrets.append(".".join(path))
    return ""


def _is_secret(path: tuple[str, ...], value: Any) -> bool:
    """Whether a value is a secret: by its own key, by its outermost key, or because it is an address with a password."""
    text = "" if value is None or isinstance(value, bool) else str(value)
    if any(part in _NAMES_OF_RECORDS for part in path[:-1]) or not text or _PROVIDED.fullmatch(text):
        return False
    is_named = any(key not in CANONICAL and is_secret(key) for key in (path[0], path[-1]))
    return is_named or ("://" in text and is_secret("", text))


def _value(value: Any) -> Any:
    """A value of a pipeline file. Some clients can only send texts: they send objects, lists, booleans and null as JSON."""
    if isinstance(value, str) and (value[:1] in ("{", "[") or value in ("true", "false", "null")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _with_record(text: str, connector: str, config: Mapping[str, Any] | None) -> str:
    """A pipeline file with the configuration it was made from in a comment at its end, so that a client can read that back."""
    record = {"name": connector, "digest": _digest(text), "config": config}
    is_plain = config is None and connector == pipeline_name(connector)
    return text if is_plain else f"{text}# connect: {json.dumps(record)}\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StoredConnector:
    """A pipeline file as a connector.

    Attributes:
        name: Name of the connector, as the client wrote it.
        pipeline: Name of the pipeline.
        file: Path of the pipeline file.
        content: The file's content; None if it does not exist.
        config: The connector's configuration, all values as texts.
    """

    name: str
    pipeline: str
    file: Path
    content: bytes | None
    config: Mapping[str, str]

    def answers_to(self, name: str) -> bool:
        """Whether a request for `name` means this connector."""
        return name in (self.name, self.pipeline)


def stored_connector(folder: Path, pipeline: str) -> StoredConnector:
    """A pipeline's file as a connector, as it is now. A file that can't be read counts as empty."""
    file = file_of(folder, pipeline)
    try:
        content = read_content(file)
    except ChangeRefused:
        content = b""
    text = (content or b"").decode()
    body, _, last = text.rstrip("\n").rpartition("\n")
    record = _record(last)
    name = str(record.get("name", pipeline))
    config = record.get("config") if record.get("digest") == _digest(f"{body}\n") else None
    if not isinstance(config, dict):
        config = {CLASS: PIPELINE, **_document(text), NAME: name}
    return StoredConnector(name, pipeline, file, content, {_shown(key): _shown(value) for key, value in config.items()})


def _record(line: str) -> dict[str, Any]:
    match = _RECORD.fullmatch(line)
    try:
        record = json.loads(match[1]) if match is not None else {}
    except (ValueError, RecursionError):
        return {}
    is_name = isinstance(record.get("name", ""), str) and bool(_CONNECTOR.fullmatch(record.get("name", "a")))
    return record if is_name else {}


def _document(text: str) -> dict[str, Any]:
    try:
        document = parse_yaml(text)
    except (yaml.YAMLError, UnreadableFileError):
        return {}
    return _masked(document, ()) if isinstance(document, dict) else {}


def _masked(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {str(key): _masked(inner, (*path, str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner, path) for inner in value]
    return HIDDEN if path and _is_secret(path, value) else value


def visible_value(key: str, value: Any) -> str:
    """A value of a configuration as text, without secrets, for an answer."""
    return _shown(_masked(_value(value), (key,)))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode(
        errors="backslashreplace"
    ).decode()  # half of a surrogate pair is valid JSON, but no answer could repeat it
