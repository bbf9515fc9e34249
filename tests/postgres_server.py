"""The stack's PostgreSQL in a folder of its own, for tests; it forgets everything."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from frazil.devstack import postgres
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from tests.servers import with_ports

PASSWORD = "s3cret $HOME@/%of:airflow"

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Settings of a server whose data nobody needs after a crash."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that answers.

    Attributes:
        home: Whose it is.
    """

    home: Home

    @property
    def port(self) -> int:
        """Its port on the loopback interface."""
        return self.home.ports.postgres

    def url(self, database: str) -> str:
        """SQLAlchemy address of one of its databases, password included."""
        return postgres.url(self.home, database, PASSWORD)

    def make(self, database: str) -> str:
        """Create a database; return its address."""
        postgres.ensure_database(self.home, database, PASSWORD)
        return self.url(database)


@contextmanager
def postgres_server(port: int) -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, stop it in the end and remove its data.

    Not below pytest's folders: those of root are closed to others, and root's PostgreSQL runs as somebody else.
    """
    root = Path(tempfile.mkdtemp(prefix="frazil-postgres-"))
    root.chmod(0o755)
    home = with_ports(replace(Home.resolve(), root=root), postgres=port)
    processes = Processes(home.run, home.logs, home.root)
    try:
        postgres.start(home, processes, print, PASSWORD, _FAST)
        yield PostgresServer(home)
    finally:
        postgres.stop(processes)
        shutil.rmtree(root)
