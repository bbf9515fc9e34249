"""Moto's Glue on the loopback interface, for tests. It takes any version of a table; here it compares them, as Glue does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

from frazil.runtime.home import LOOPBACK

KEYS = {"glue.region": "eu-central-1", "glue.access-key-id": "tests", "glue.secret-access-key": "tests"}

_UPDATES = Lock()


class _ComparingGlue(GlueResponse):
    """Refuses an update whose version is not the table's, in Glue's words."""

    def update_table(self) -> Any:
        """Update a table."""
        with _UPDATES:
            name, version = self._get_param("TableInput")["Name"], self._get_param("VersionId")
            table = self.glue_backend.get_table(self._get_param("DatabaseName"), name)
            if version is not None and version != table.as_dict()["VersionId"]:
                raise JsonRESTError(
                    "ConcurrentModificationException", "Update table failed due to concurrent modifications."
                )
            return super().update_table()


@contextmanager
def glue_server(port: int) -> Iterator[str]:
    """Start the server, stop it in the end. Its address."""
    from moto.glue import urls

    urls.url_paths = dict.fromkeys(urls.url_paths, _ComparingGlue.dispatch)
    server = ThreadedMotoServer(ip_address=LOOPBACK, port=port, verbose=False)
    server.start()
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.stop()
