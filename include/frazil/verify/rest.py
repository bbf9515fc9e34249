"""PyIceberg's REST catalog with time limits: by itself it waits forever."""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

CONNECT_SECONDS = 10.0
"""How long a connection may take to open, unless the catalog's `rest.client.connection-timeout-ms` says otherwise."""

ANSWER_SECONDS = 60.0
"""The same for each next part of an answer, and `rest.client.socket-timeout-ms`."""


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests end, those for a token included.

    Raises:
        ValueError: A time limit among the properties is no number.
    """

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
