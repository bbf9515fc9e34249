"""Opens PyIceberg's catalogs with timeouts and restricted properties, and turns errors of PyIceberg and Kafka's client into Frazil's.

PyIceberg itself waits forever, and lets a table's properties choose the class that reads it, and the object store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pydantic import ValidationError
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session

from frazil.error_codes import (
    CATALOG_REFUSED,
    CATALOG_UNREACHABLE,
    KAFKA_DENIED,
    KAFKA_FAILED,
    NEVER_RAN,
    TABLE_LOST,
    TABLE_MISSING,
)
from frazil.errors import FrazilError, Terminal, safe_cause, without_values
from frazil.extras import require, require_database
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import SIGNING, CatalogSettings

_REFUSED = (
    ForbiddenError,
    ImportError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    PermissionError,
    UnauthorizedError,
)
_UNAVAILABLE = (OSError, RESTError)
_WRAPPED = (*_REFUSED, *_UNAVAILABLE, ValidationError, ValidationException, ValueError, pa.ArrowException)
_UNAVAILABLE_CATALOGS = (
    "sqlalchemy.exc.DBAPIError",
    "thrift.Thrift.TException",
    "botocore.exceptions.BotoCoreError",
    "botocore.exceptions.ClientError",
)

_ACCESS_DENIED = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._INVALID_ARG,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
_SECRET_MARKS = ("password", "secret", "token", "jaas", "key", "oauthbearer.config")


class FileGone(Terminal):
    """A file that a snapshot names no longer exists."""


@contextmanager
def reading_tables(action: str) -> Iterator[None]:
    """Run a block that reads tables; its errors become Retryable or Terminal, with the action as their coordinates."""
    try:
        yield
    except FrazilError:
        raise
    except _wrapped() as error:
        lines = str(error).splitlines() or ["no message"]
        message = f"{action}: {type(error).__name__}: {without_values(lines[0])}"
        if isinstance(error, FileNotFoundError):
            raise FileGone(
                message,
                code=TABLE_MISSING,
                next_step="restore it from a backup of the storage; it may have been deleted by hand or by an orphan removal",
            ) from safe_cause(error)
        is_refused = isinstance(error, _REFUSED) or "ACCESS_DENIED" in lines[0]  # S3's answer in an error of PyArrow
        if isinstance(error, (*_UNAVAILABLE, *_loaded(_UNAVAILABLE_CATALOGS))) and not is_refused:
            raise CATALOG_UNREACHABLE.retryable(
                message, next_step="try again; if it persists, check the catalog and the storage"
            ) from safe_cause(error)
        raise CATALOG_REFUSED.terminal(
            message, next_step="check the catalog's entry in the settings file and its permissions"
        ) from safe_cause(error)


def _wrapped() -> tuple[type[Exception], ...]:
    return (*_WRAPPED, *_loaded(("sqlalchemy.exc.SQLAlchemyError", *_UNAVAILABLE_CATALOGS)))


def _loaded(names: Iterable[str]) -> tuple[type[Exception], ...]:
    """The exceptions with these names, of libraries that are loaded: a library that is not loaded raises none."""
    parts = (name.rpartition(".") for name in names)
    return tuple(getattr(sys.modules[module], name) for module, _, name in parts if module in sys.modules)


def kafka_error(
    error: KafkaException | KafkaError, action: str, properties: Mapping[str, str], details: str
) -> FrazilError:
    """The Frazil error for an error of the Kafka client. Secrets among the cluster's properties are masked."""
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    message = f"{action}: {cause.str()} ({cause.name()}){details}"
    for key, value in properties.items():
        if value and any(mark in key.lower() for mark in _SECRET_MARKS):
            message = message.replace(value, "***")
    if cause.code() in _ACCESS_DENIED:
        return KAFKA_DENIED.terminal(
            message, next_step="check the cluster's entry in the settings file; verify needs Describe and Read"
        )
    return KAFKA_FAILED.retryable(message, next_step="try again; if it persists, check the brokers")


_CONNECT_SECONDS = 10.0
"""Timeout of opening a connection, if the catalog has no `rest.client.connection-timeout-ms`."""

_ANSWER_SECONDS = 60.0
"""Timeout of waiting for the next part of an answer, if the catalog has no `rest.client.socket-timeout-ms`."""


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests, including those for a token, have a timeout.

    Raises:
        ValueError: A timeout among the properties is no number.
    """

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        # The server may set properties of the file-io, a table may not.
        metadata = table_response.metadata
        bare = table_response.model_copy(update={"metadata": metadata.model_copy(update={"properties": {}})})
        table = super()._response_to_table(identifier_tuple, bare)
        table.metadata = metadata
        return table

    def _config_headers(self, session: Session) -> None:
        # Called for each new session, before its first request.
        super()._config_headers(session)
        self.properties.setdefault("rest.sigv4.max-retries", "0")
        connect = float(self.properties.get("rest.client.connection-timeout-ms", _CONNECT_SECONDS * 1000)) / 1000
        answer = float(self.properties.get("rest.client.socket-timeout-ms", _ANSWER_SECONDS * 1000)) / 1000
        session.request = partial(session.request, timeout=(connect, answer))  # type: ignore[method-assign]


class Catalogs:
    """The catalogs of a pipeline, each opened at the first access to one of its tables."""

    def __init__(self, pipeline: Pipeline, settings: Mapping[str, CatalogSettings]) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._opened: dict[str, Catalog] = {}

    def table(self, name: str) -> Table:
        """The present table, on the branch that the pipeline writes to.

        Raises:
            Terminal: There is no such table, or no such branch.
            Retryable: The catalog is not available now.
        """
        declared = {destination.table: destination for destination in self._pipeline.destinations}.get(name)
        home = self._pipeline.home_catalog
        catalog = home if declared is None else declared.catalog or self._pipeline.catalog
        with reading_tables(f"loading table {name}"):
            try:
                table = self._catalog(catalog).load_table(name)
            except (NoSuchTableError, NoSuchNamespaceError) as error:
                raise TABLE_MISSING.terminal(
                    f"pipeline {self._pipeline.name}: there is no table {name} in catalog {catalog}",
                    next_step=f"run it first: frazil run {self._pipeline.name}. If it ran before, the table was dropped:"
                    " restore it",
                ) from error
        if declared is not None and declared.branch is not None:
            _read_branch(table, name, declared.branch)
        return table

    def _catalog(self, name: str) -> Catalog:
        if name not in self._opened:
            _require_database(self._pipeline, name, self._settings[name])
            with reading_tables(f"opening catalog {name}"):
                self._opened[name] = _open_catalog(name, self._settings[name])
        return self._opened[name]


def _read_branch(table: Table, name: str, branch: str) -> None:
    """Let scans of a table read a branch instead of main."""
    ref = table.metadata.refs.get(branch)
    if ref is None:
        raise TABLE_LOST.terminal(
            f"table {name} has no branch {branch}, which the pipeline file names",
            next_step="somebody dropped it: run the pipeline (frazil run), and its error has the steps",
        )
    table.metadata = table.metadata.model_copy(update={"current_snapshot_id": ref.snapshot_id})


def _require_database(pipeline: Pipeline, name: str, settings: CatalogSettings) -> None:
    """Refuse a SQLite file that does not exist, because opening it would create it."""
    file = settings.uri.removeprefix("sqlite:///")
    if file != settings.uri and not Path(file).is_file():
        raise NEVER_RAN.terminal(
            f"catalog {name} is empty: there is no database {file}, so there is no table of {pipeline.name}",
            next_step=f"run the pipeline first: frazil run {pipeline.name}",
        )


def _open_catalog(name: str, settings: CatalogSettings) -> Catalog:
    addresses = {"uri": settings.address, "warehouse": settings.warehouse}
    connection = {key: value for key, value in addresses.items() if value is not None}
    if settings.type == "rest":
        if settings.properties.get(SIGNING, "").lower() == "true":
            require("glue", f"catalog {name}, whose requests are signed,")
        rest: dict[str, Any] = {**settings.properties, **connection}
        if rest.get("rest.auth.type") == "basic":
            login = {key: settings.properties.get(f"rest.auth.basic.{key}", "") for key in ("username", "password")}
            rest["auth"] = {"type": "basic", "basic": login}
        return TimedRestCatalog(name, **rest)
    properties = {**settings.properties, **connection}
    if settings.type == "jdbc":
        return _open_database(name, properties)
    require(settings.type, f"catalog {name}")
    if settings.type == "hive":
        from pyiceberg.catalog.hive import HiveCatalog

        class BoundHiveCatalog(_BoundStorage, HiveCatalog):
            """A metastore."""

        return BoundHiveCatalog(name, **properties)
    from pyiceberg.catalog.glue import GlueCatalog

    class BoundGlueCatalog(_BoundStorage, GlueCatalog):
        """Glue."""

    return BoundGlueCatalog(name, **properties, **({"glue.endpoint": settings.uri} if settings.uri else {}))


class _BoundStorage(MetastoreCatalog):
    """A catalog whose file-io gets the properties of the settings, and none of a table."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002 - PyIceberg's signature
        return super()._load_file_io(EMPTY_DICT, location)


def _open_database(name: str, properties: Mapping[str, str]) -> Catalog:
    require_database(properties["uri"], f"catalog {name}")
    from pyiceberg.catalog.sql import SqlCatalog

    class BoundSqlCatalog(_BoundStorage, SqlCatalog):
        """A SQL database."""

    return BoundSqlCatalog(name, **properties)
