"""The capture file as a model: which files or rows of a database are read, and the topic that they go to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import PurePath
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.models.alerts import Alerts, unknown_channels
from frazil.pipeline.models.maintenance import Schedule
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, Pipeline
from frazil.pipeline.settings.settings import Settings, missing_setting
from frazil.pipeline.syntax.interval import Interval, parse_duration, parse_interval
from frazil.pipeline.syntax.patterns import compiled
from frazil.pipeline.syntax.strict import InvalidKey, Model, PipelineName, TopicName, readable

_QUOTED: Final = r'"[^"]+"|`[^`]+`|\[[^\]]+\]'
_TABLE: Final = re.compile(rf"([\w$#]+|{_QUOTED})(\.([\w$#]+|{_QUOTED})){{0,3}}")
"""Up to four names with dots between them; anything else would be SQL."""

_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")

_PREFIX: Final = "capture."
"""Prefix of the unique name of a capture: the name of a pipeline has no dot."""


def dag_of(unique_name: str) -> str:
    """Id of the DAG that runs a pipeline or a capture."""
    is_capture = unique_name.startswith(_PREFIX)
    return f"capture__{unique_name.removeprefix(_PREFIX)}" if is_capture else f"ingest__{unique_name}"


JdbcMode = Literal["bulk", "incrementing", "timestamp", "timestamp+incrementing"]


class _Capture(Model):
    """The keys that all captures have."""

    name: PipelineName = Field(description="Name of the capture: of its DAG and its position.")
    description: str = Field("", description="Shown in the Airflow UI.")
    owner: str = Field("frazil", description="Who is responsible for it: a team, a person, a mail address.")
    alerts: Alerts | Literal[False] = Field(
        default_factory=Alerts, description="Which notices are sent about the capture; `false`: none."
    )
    interval: Schedule = Field(
        "5m", description="Time between runs: a duration of a minute or more, or a cron expression, in UTC."
    )
    cluster: str = Field("local", description="Name of a cluster in the settings file.")
    topic: TopicName = Field(description="Topic that the records go to.")
    partitions: int | None = Field(
        None,
        ge=1,
        description="Number of partitions with which a missing topic is created. Without, the topic must exist.",
    )
    start: Literal["beginning", "end"] = Field(
        "beginning",
        description="Whether the first run begins with the oldest lines or rows, or after the present ones. Later runs don't use"
        " it.",
    )
    max_records: int = Field(20_000, ge=1, description="Most records of one transaction.")

    @property
    def unique_name(self) -> str:
        """Its name among pipelines and captures: a pipeline may have the same name."""
        return f"{_PREFIX}{self.name}"

    @property
    def every(self) -> Interval:
        """The interval, parsed."""
        return parse_interval(self.interval)


class FileCapture(_Capture):
    """Each line that is appended to files becomes a record."""

    capture: Literal["file"] = Field(description="What is captured: `file` or `jdbc`.")
    paths: tuple[str, ...] = Field(
        min_length=1,
        description="Absolute paths; `*`, `?` and `[…]` match parts of names, `**` matches folders. Include the names of rotated"
        " files, as in `/var/log/shop/access.log*`: `.gz` files are unpacked.",
    )
    key: Literal["file"] | None = Field(
        None,
        description="`file`: the key of a record is the path under which its file was first seen. Without: no key.",
    )
    key_pattern: str | None = Field(
        None,
        description="Regular expression in RE2's syntax; its first group in a line is the key. A line without a match has no"
        " key.",
    )
    headers: bool = Field(
        True,
        description="Whether records have headers with their origin: `frazil.file`, `frazil.offset` and `frazil.line`.",
    )
    on_data_loss: Literal["fail", "skip"] = Field(
        "fail",
        description="What to do if a file was truncated, or deleted before all its bytes were captured. `fail`: runs are refused"
        " until a person decides where to continue. `skip`: the run logs it and continues with what is left.",
    )

    @field_validator("paths")
    @classmethod
    def _are_absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        if relative := [path for path in paths if not PurePath(path).is_absolute()]:
            raise ValueError(f"{relative[0]!r} is not absolute, and Airflow's tasks run in other folders")
        return paths

    @field_validator("key_pattern")
    @classmethod
    def _has_a_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        if compiled(pattern).groups == 0:
            raise ValueError("has no group: put the part that is the key in parentheses")
        return pattern

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if self.key is not None and self.key_pattern is not None:
            raise InvalidKey("key_pattern", "excludes key: a record has one key")
        return self


class JdbcCapture(_Capture):
    """Rows of a database become records, as JSON objects."""

    capture: Literal["jdbc"] = Field(description="What is captured: `file` or `jdbc`.")
    database: str = Field(description="Name of a database in the settings file.")
    table: str | None = Field(None, min_length=1, description="Table or view, as the database spells it.")
    query: str | None = Field(
        None, min_length=1, description="A SELECT in the database's SQL, in place of `table`; without ORDER BY."
    )
    mode: JdbcMode = Field(
        description="Which rows a run reads. `bulk`: all. `incrementing`: rows with a larger number than in the last run."
        " `timestamp`: rows that changed since then. `timestamp+incrementing`: both; the number orders rows with the same time."
    )
    incrementing_column: str | None = Field(
        None, description="Column with a whole number that increases with each new row and is never null."
    )
    timestamp_column: str | None = Field(
        None, description="Column with the time of a row's last change, never null; in UTC if it has no time zone."
    )
    delay: Annotated[str, readable(parse_duration)] = Field(
        "30s",
        description="Age below which rows are left to the next run, because transactions that began earlier may commit later. It"
        " must exceed the longest transaction, and the difference between clocks.",
    )
    key: tuple[str, ...] = Field((), description="Columns that make the key, a JSON object. Without: no key.")
    engine: str = Field(
        "spark",
        description="Name of an engine in the settings file, of type submit or managed: the job starts a Spark of its own.",
    )

    @property
    def held_back(self) -> timedelta:
        """`delay`, parsed."""
        return parse_duration(self.delay)

    @property
    def order(self) -> tuple[str, ...]:
        """Columns that order the rows; their values are the position."""
        columns = {
            "bulk": (),
            "incrementing": (self.incrementing_column,),
            "timestamp": (self.timestamp_column,),
            "timestamp+incrementing": (self.timestamp_column, self.incrementing_column),
        }[self.mode]
        return tuple(column for column in columns if column is not None)

    @field_validator("table")
    @classmethod
    def _is_a_name(cls, table: str | None) -> str | None:
        if table is not None and not _TABLE.fullmatch(table):
            raise ValueError(f"{table!r} is not the name of a table or view; write SQL under query")
        return table

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise InvalidKey("table", "expected either table or query")
        return self

    @model_validator(mode="after")
    def _has_the_columns_of_its_mode(self) -> Self:
        for name in ("timestamp", "incrementing"):
            column, key = getattr(self, f"{name}_column"), f"{name}_column"
            if (name in self.mode) != (column is not None):
                raise InvalidKey(key, f"is {'required' if column is None else 'not used'} by mode {self.mode}")
            if column is not None and not _COLUMN.fullmatch(column):
                raise InvalidKey(
                    key, f"{column!r} is no plain name of a column; a query can give it one: SELECT … AS changed_at"
                )
        return self


Capture = FileCapture | JdbcCapture

Flow = Pipeline | FileCapture | JdbcCapture
"""A pipeline or a capture: the page in Airflow, the monitor and `frazil status` watch both."""

KINDS: Final[dict[str, type[FileCapture | JdbcCapture]]] = {"file": FileCapture, "jdbc": JdbcCapture}
"""Kind of a capture -> model of its file."""


def unknown_in_capture(capture: Capture, settings: Settings) -> Iterator[str]:
    """One line per key of a capture that names something which the settings don't have, or an engine that can't capture."""
    yield from missing_setting("cluster", capture.cluster, settings.clusters, "clusters")
    yield from unknown_channels(capture.alerts, settings.alerts)
    yield from beyond_reach(capture, settings)
    if isinstance(capture, FileCapture):
        return
    yield from missing_setting("database", capture.database, settings.databases, "databases")
    if capture.engine in (INLINE_ENGINE, AUTO_ENGINE):
        yield f"engine: {capture.engine}: rows of a database are read by Spark: name an engine of the settings"
        return
    yield from missing_setting("engine", capture.engine, settings.engines, "engines")
    engine = settings.engines.get(capture.engine)
    if engine is not None and engine.type != "submit" and not engine.managed:
        yield f"engine: {capture.engine} is of type {engine.type}; a capture starts a Spark of its own, with the driver's jars: type submit, or a managed engine"


def beyond_reach(capture: Capture, settings: Settings) -> Iterator[str]:
    """One line per key of a capture that would read something which the settings don't let captures read."""
    if isinstance(capture, FileCapture):
        folders = settings.captures.folders
        for number, path in enumerate(capture.paths):
            if ".." in PurePath(path).parts or not any(PurePath(path).is_relative_to(folder) for folder in folders):
                yield (
                    f"paths.{number}: {path} is in no folder that the settings list under captures.folders, so no capture reads it;"
                    f" listed: {', '.join(folders) or 'none'}"
                )
    elif capture.query is not None:
        database = settings.databases.get(capture.database)
        if database is not None and not database.queries:
            yield (
                f"query: the settings let captures of {capture.database} read tables and views, not ask queries; they can allow it:"
                f" databases.{capture.database}.queries: true"
            )
