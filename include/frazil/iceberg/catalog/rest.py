"""PyIceberg's REST catalog, with time limits on requests, and a cache of table history.

Rests on private names of PyIceberg 0.12; the tests pin them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import from_json
from pyiceberg.catalog.rest import SIGV4_REGION, RestCatalog, TableResponse
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import Session

from frazil.error_codes import BAD_SETTING
from frazil.iceberg.catalog.table import for_storage, without_code
from frazil.iceberg.patches.metadata import HistoryCache, refuse_skew, with_shared_history

CONNECT = "rest.client.connection-timeout-ms"
"""Catalog property, by the name that Iceberg's Java client has for it: how long a connection may take to open."""

ANSWER = "rest.client.socket-timeout-ms"
"""The same for the wait for an answer, and for each next part of it."""

_DEFAULTS = {CONNECT: 10_000, ANSWER: 60_000}
"""A connection takes milliseconds; a commit on a busy server may wait for others. PyIceberg itself waits forever."""

_SIGNED_RETRIES: Final = "rest.sigv4.max-retries"
"""A request that is signed goes out as often as one that is not: PyIceberg's ten more make eleven waits for a silent server."""


AUTH_TYPE: Final = "rest.auth.type"
_LOGIN: Final = {"username": "rest.auth.basic.username", "password": "rest.auth.basic.password"}


def with_login(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return properties with user and password, which have names in Iceberg's Java client, where PyIceberg looks for them."""
    if properties.get(AUTH_TYPE) != "basic":
        return dict(properties)
    login = {name: properties.get(key, "") for name, key in _LOGIN.items()}
    return {**properties, "auth": {"type": "basic", "basic": login}}


class BoundedRestCatalog(RestCatalog):
    """A REST catalog whose requests end, also those that fetch a token. Copies of its tables' metadata share their past.

    Attributes:
        table_properties: Properties of tables that have a say in how files are read and written, beside what the server says.

    Raises:
        Terminal: A time limit among the properties is no number of milliseconds.
    """

    table_properties: frozenset[str] = frozenset()

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table."""
        table: Table = super().load_table(identifier)
        table.metadata = with_shared_history(table.metadata)
        return table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit changes of a table."""
        refuse_skew(table)
        done: CommitTableResponse = super().commit_table(table, requirements, updates)
        return done.model_copy(update={"metadata": without_code(done.metadata, self.table_properties)})

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        # PyIceberg gives the file-io all properties of the table, and over them what the server says of this table.
        metadata = table_response.metadata
        io_properties = for_storage(metadata.properties, self.table_properties)
        bare = metadata.model_copy(update={"properties": io_properties})
        table = super()._response_to_table(identifier_tuple, table_response.model_copy(update={"metadata": bare}))
        table.metadata = without_code(metadata, self.table_properties)
        return table

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete metadata files that a commit replaced, without a warning for those that the server deleted first."""
        RestCatalog._delete_old_metadata(cast("FileIO", _Forgiving(io)), base, metadata)  # noqa: SLF001 - what it overrides

    def _config_headers(self, session: Session) -> None:
        # The first thing that PyIceberg does to a new session; the first request follows at once, for a token.
        super()._config_headers(session)
        limits = (_seconds(self.properties, CONNECT), _seconds(self.properties, ANSWER))
        session.request = partial(session.request, timeout=limits)  # type: ignore[method-assign]

    def _init_sigv4(self, session: Session) -> None:
        """Sign the requests of a session. PyIceberg looks for key and region at the first request, and fails without a word on them."""
        from botocore.exceptions import NoCredentialsError, NoRegionError

        self.properties.setdefault(_SIGNED_RETRIES, "0")
        super()._init_sigv4(session)
        signer = session.get_adapter(self.uri)._boto_session  # type: ignore[attr-defined]  # noqa: SLF001 - PyIceberg's own class
        if signer.get_credentials() is None:
            raise NoCredentialsError
        if not self.properties.get(SIGV4_REGION, signer.region_name):
            raise NoRegionError


@dataclass(frozen=True, slots=True)
class _Forgiving:
    """A file-io for which deleting a missing file is no error."""

    io: FileIO

    def delete(self, location: str) -> None:
        with suppress(FileNotFoundError):
            self.io.delete(location)


def _seconds(properties: Mapping[str, str], key: str) -> float:
    text = str(properties.get(key, _DEFAULTS[key]))
    if not text.isdecimal() or int(text) == 0:
        raise BAD_SETTING.terminal(
            f"catalog property {key}: expected milliseconds, found {text!r}",
            next_step="correct it among the properties of the catalog in the settings",
        )
    return int(text) / 1000


_KNOWN: Final = HistoryCache()


def _with_known_past(cls: type[BaseModel], text: str) -> Any:
    """An answer of the server, with a table's metadata in it."""
    try:
        body = from_json(text)
        _KNOWN.fill_in(body["metadata"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return cls.__pydantic_validator__.validate_json(text)  # it is said as always what is wrong with it
    return cls.model_validate(body)


for _answer in (TableResponse, CommitTableResponse):
    _answer.model_validate_json = classmethod(_with_known_past)  # type: ignore[method-assign, assignment]
