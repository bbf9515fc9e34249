"""PyIceberg's catalogs, as a check needs them: they end, and a table has no say in how its files are read.

By itself PyIceberg waits forever, and takes from the properties of a table what class reads it, and where its store is.
"""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session

CONNECT_SECONDS = 10.0
"""How long a connection may take to open, unless the catalog's `rest.client.connection-timeout-ms` says otherwise."""

ANSWER_SECONDS = 60.0
"""The same for each next part of an answer, and `rest.client.socket-timeout-ms`."""


class BoundSqlCatalog(SqlCatalog):
    """A SQL catalog whose file-io is the settings' alone."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002 - PyIceberg's signature
        return super()._load_file_io(EMPTY_DICT, location)


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end, those for a token included.

    Raises:
        ValueError: A time limit among the properties is no number.
    """

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        # Of the file-io, the server has a say, the table none.
        metadata = table_response.metadata
        bare = table_response.model_copy(update={"metadata": metadata.model_copy(update={"properties": {}})})
        table = super()._response_to_table(identifier_tuple, bare)
        table.metadata = metadata
        return table

    def _config_headers(self, session: Session) -> None:
        # Called for each new session, before its first request.
        super()._config_headers(session)
        limits = (
            self._seconds("rest.client.connection-timeout-ms", CONNECT_SECONDS),
            self._seconds("rest.client.socket-timeout-ms", ANSWER_SECONDS),
        )
        session.request = partial(session.request, timeout=limits)  # type: ignore[method-assign]

    def _seconds(self, key: str, default: float) -> float:
        text = self.properties.get(key)
        return default if text is None else float(text) / 1000
