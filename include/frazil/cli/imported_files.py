"""Reads what `frazil import-connector` is given, asks where it must, and writes the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from frazil.connect.config import Connector, UnreadableConfig, read_connectors, read_properties
from frazil.connect.findings import Finding
from frazil.connect.importing import Imported, Known, Settings, import_all
from frazil.connect.written import holes, pipeline_text, settings_text
from frazil.errors import Terminal

if TYPE_CHECKING:
    from frazil.connect.tables import Columns


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command was asked for; its options, by their names."""

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
class Written:
    """What the command left: connectors with their pipeline files (None if refused), and the settings."""

    pipelines: tuple[tuple[Imported, Path | None], ...]
    settings_file: Path | None
    variables: Mapping[str, str]

    @property
    def is_refused(self) -> bool:
        """Whether one of the connectors was refused."""
        return any(imported.is_refused for imported, _ in self.pipelines)

    @staticmethod
    def holes(imported: Imported) -> list[str]:
        """What has to be filled in."""
        return holes(imported) if imported.pipeline else []

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        connectors = [
            {
                "connector": imported.connector,
                "file": imported.file,
                "pipeline": str(file) if file else None,
                "findings": [
                    {"key": of.key, "outcome": of.outcome, "message": of.message, "by_hand": of.by_hand}
                    for of in imported.findings
                ],
                "notes": imported.notes,
                "to_fill_in": self.holes(imported),
            }
            for imported, file in self.pipelines
        ]
        settings = str(self.settings_file) if self.settings_file else None
        return {"ok": not self.is_refused, "connectors": connectors, "settings": settings, "variables": self.variables}


def import_files(wish: Wish, env: Mapping[str, str]) -> Written:
    """Import connectors and write their files.

    Raises:
        Terminal: A file can't be read, or is there already; or what must be asked refuses.
        Retryable: A broker or catalog that must be asked does not answer.
    """
    connectors = [connector for file in wish.files for connector in _connectors(file)]
    known = Known(
        worker=_worker(wish.worker),
        columns=_declared(wish, connectors),
        tables=wish.tables,
        cluster=wish.cluster,
        catalog=wish.catalog,
        registry=wish.registry,
    )
    done, settings = import_all(connectors, known)
    if wish.positions or wish.catalog is not None:
        done, settings = _asked(wish, known, connectors, done, settings, env)
    return _write(wish, done, settings)


def _asked(
    wish: Wish,
    known: Known,
    connectors: Sequence[Connector],
    done: list[Imported],
    settings: Settings,
    env: Mapping[str, str],
) -> tuple[list[Imported], Settings]:
    """The same with what catalog and cluster tell: columns of tables, and where the connectors stopped."""
    from frazil.cli.connector_standing import Doors, column_facts, positioned

    doors = Doors.open(wish.cluster, wish.catalog, settings, {**_values(done), **env})
    tables = list(dict.fromkeys(of["table"] for one in done for of in one.pipeline.get("destinations", ())))
    columns, absent = column_facts(doors, done, [table for table in tables if table not in known.columns])
    done, settings = import_all(connectors, replace(known, columns={**columns, **known.columns}, absent=absent))
    return ([positioned(doors, one) for one in done] if wish.positions else done), settings


def _values(done: Sequence[Imported]) -> dict[str, str]:
    return {name: value for one in done for name, value in one.values.items()}


def _connectors(file: Path) -> Iterator[Connector]:
    try:
        found = read_connectors(_text(file), str(file))
    except UnreadableConfig as error:
        raise Terminal(f"{file}: {error}", next_step="give connectors as .json or .properties") from error
    if not found:
        raise Terminal(f"{file} holds no connector", next_step="give connectors as .json or .properties")
    yield from found


def _worker(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        return read_properties(_text(file))
    except UnreadableConfig as error:
        raise Terminal(f"{file}: {error}", next_step="give the worker's .properties") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Terminal(f"{file} can't be read: {reason}", next_step="look at its name and permissions") from error


def _declared(wish: Wish, connectors: Sequence[Connector]) -> dict[str, Columns]:
    """Columns by table, from `{table: {column: type}}`; or `{column: type}` for the one table there is."""
    file = wish.columns
    if file is None:
        return {}
    try:
        given = yaml.safe_load(_text(file))
    except yaml.YAMLError as error:
        raise Terminal(f"{file} is no YAML", next_step="write {table: {column: type}}") from error
    if not isinstance(given, dict):
        raise Terminal(f"{file} has no columns", next_step="write {table: {column: type}}")
    named = {table.strip() for one in connectors for table in one.config.get("iceberg.tables", "").split(",")}
    named = {table for table in (*named, *wish.tables) if table}
    # A table may have a column that is called type.
    if not given.keys() & named and all(isinstance(of, str) or "type" in _mapping(file, of) for of in given.values()):
        given = dict.fromkeys(named, given)
    return {
        str(table): {str(name): _column(file, of) for name, of in _mapping(file, each).items()}
        for table, each in given.items()
    }


def _mapping(file: Path, of: Any) -> Mapping[Any, Any]:
    if of is not None and not isinstance(of, dict):
        raise Terminal(f"{file}: columns of a table are no mapping", next_step="write {table: {column: type}}")
    return of or {}


def _column(file: Path, of: Any) -> Mapping[str, Any]:
    if isinstance(of, str):
        return {"type": of}
    if isinstance(of, dict) and "type" in of:
        return of
    raise Terminal(f"{file}: a column is neither a type nor a mapping with one", next_step="write column: type")


def _write(wish: Wish, done: Sequence[Imported], settings: Settings) -> Written:
    files = [wish.folder / "pipelines" / f"{one.pipeline['name']}.yaml" if one.pipeline else None for one in done]
    accepted = [one for one in done if one.pipeline]
    settings_file = wish.folder / "settings.yaml" if settings and accepted else None
    there = [file for file in (*files, settings_file) if file is not None and file.exists()]
    if there and not wish.force:
        raise Terminal(
            f"{there[0]} is there already", next_step="choose another folder (--out), or replace it (--force)"
        )
    for one, file in zip(done, files, strict=True):
        if file is not None:
            _put(file, pipeline_text(one))
    if settings_file is not None:
        _put(settings_file, settings_text(settings, accepted))
    variables = {name: what for one in accepted for name, what in one.variables.items()}
    return Written(tuple(zip(done, files, strict=True)), settings_file, variables)


def _put(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Terminal(
            f"{file} can't be written: {error.strerror}", next_step="choose another folder (--out)"
        ) from error


def refused(imported: Imported, reasons: Sequence[str], next_step: str) -> Imported:
    """The connector as one that can't be imported, for reasons that are not in its keys."""
    told = tuple(Finding("--positions connect", "refused", reason, next_step) for reason in reasons)
    return replace(imported, findings=(*told, *imported.findings), pipeline={}, settings={})
