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
"""Catalog property, named as in Iceberg's Java client: how long a connection may take to open."""

ANSWER = "rest.client.socket-timeout-ms"
"""Catalog property: how long an answer, or each next part of it, may take."""

_DEFAULTS = {CONNECT: 10_000, ANSWER: 60_000}
"""A connection takes milliseconds; a commit on a busy server may wait for others. PyIceberg's default is to wait forever."""

_SIGNED_RETRIES: Final = "rest.sigv4.max-retries"
"""Retries of a signed request: none, as for others. PyIceberg's default of ten makes eleven waits for a silent server."""

AUTH_TYPE: Final = "rest.auth.type"
_LOGIN: Final = {"username": "rest.auth.basic.username", "password": "rest.auth.basic.password"}


def with_login(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties, with user and password where PyIceberg reads them; settings name them as Iceberg's Java client does."""
    if properties.get(AUTH_TYPE) != "basic":
        return dict(properties)
    login = {name: properties.get(key, "") for name, key in _LOGIN.items()}
    return {**properties, "auth": {"type": "basic", "basic": login}}


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with time limits on all requests, also those for a token. Copies of its tables' metadata share their history.

    Attributes:
        table_properties: Table properties that the settings let change how files are read and written, besides what the server sets.

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
        # PyIceberg gives the file-io all properties of the table, and the server's configuration of the table, which comes first.
        metadata = table_response.metadata
        io_properties = for_storage(metadata.properties, self.table_properties)
        bare = metadata.model_copy(update={"properties": io_properties})
        table = super()._response_to_table(identifier_tuple, table_response.model_copy(update={"metadata": bare}))
        table.metadata = without_code(metadata, self.table_properties)
        return table

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete metadata files that a commit replaced. Those that the server has deleted cause no warning."""
        RestCatalog._delete_old_metadata(cast("FileIO", _Forgiving(io)), base, metadata)  # noqa: SLF001 - what it overrides

    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first for a new session, before it requests a token.
        super()._config_headers(session)
        limits = (_seconds(self.properties, CONNECT), _seconds(self.properties, ANSWER))
        session.request = partial(session.request, timeout=limits)  # type: ignore[method-assign]

    def _init_sigv4(self, session: Session) -> None:
        """Sign the requests of a session. Checks key and region first: PyIceberg's error for a missing one does not name it."""
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


_HISTORY: Final = HistoryCache()


def _parse_answer(cls: type[BaseModel], text: str) -> Any:
    """Parse an answer with a table's metadata. Snapshots that were parsed before are reused."""
    try:
        body = from_json(text)
        _HISTORY.fill_in(body["metadata"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return cls.__pydantic_validator__.validate_json(text)  # PyIceberg's own way names what is wrong
    return cls.model_validate(body)


for _answer in (TableResponse, CommitTableResponse):
    _answer.model_validate_json = classmethod(_parse_answer)  # type: ignore[method-assign, assignment]
