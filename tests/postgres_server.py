"""A real PostgreSQL server in a folder of its own, for tests; it forgets everything."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from frazil.local.home import LOOPBACK
from frazil.local.waiting import until

USER = "airflow"
PASSWORD = "s3cret $HOME@/%of:airflow"
_NOBODY = "nobody"
"""PostgreSQL refuses to run as root; root's tests run it as this user."""

_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}
"""Settings of a server whose data nobody needs after a crash."""

_START_SECONDS = 60.0
"""Bounds the way from the process to its first answer, under a second on an idle machine."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A server that answers.

    Attributes:
        port: Its port on the loopback interface.
    """

    port: int

    def url(self, database: str) -> str:
        """SQLAlchemy address of one of its databases, password included."""
        address = URL.create("postgresql+psycopg2", USER, PASSWORD, LOOPBACK, self.port, database)
        return address.render_as_string(hide_password=False)

    def make(self, database: str) -> str:
        """Create a database; return its address."""
        with _engine(self.url("postgres")).connect() as connection:
            connection.execute(text(f"CREATE DATABASE {database}"))
        return self.url(database)


def programs() -> Path | None:
    """Folder of `initdb` and `postgres`: of PATH, or where Debian keeps them; None if there is none."""
    named = shutil.which("initdb")
    folders = [Path(named).resolve().parent] if named else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()), None)


@contextmanager
def postgres_server(port: int) -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, stop it in the end and remove its data.

    Not below pytest's folders: those of root are closed to others.
    """
    found = programs()
    assert found is not None, "no PostgreSQL on this machine"
    root = Path(tempfile.mkdtemp(prefix="frazil-postgres-"))
    try:
        with _running(found, root, port) as child:
            server = PostgresServer(port)
            answering = until(lambda: _answers(server) or child.poll() is not None, _START_SECONDS)
            assert answering and child.poll() is None, (root / "log").read_text()  # noqa: PT018
            yield server
    finally:
        shutil.rmtree(root)


@contextmanager
def _running(found: Path, root: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    data, password, log = root / "data", root / "password", root / "log"
    password.write_text(PASSWORD)
    who = _someone_else(root, password)
    access = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}"]
    made = [found / "initdb", "--pgdata", data, "--no-sync", "--locale=C", "--encoding=UTF8", *access]
    subprocess.run(made, check=True, capture_output=True, cwd=root, **who)
    settings = {**_FAST, "listen_addresses": LOOPBACK, "port": str(port), "unix_socket_directories": ""}
    command = [found / "postgres", "-D", data, *(part for each in settings.items() for part in ("-c", "=".join(each)))]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, cwd=root, **who) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGINT)  # ends its connections, too


def _someone_else(*places: Path) -> dict[str, Any]:
    """Who the server runs as, in words of `subprocess`; nobody in particular unless we are root."""
    if os.geteuid() != 0:
        return {}
    for place in places:
        shutil.chown(place, _NOBODY)
    return {"user": _NOBODY, "group": pwd.getpwnam(_NOBODY).pw_gid, "extra_groups": ()}


def _answers(server: PostgresServer) -> bool:
    try:
        _engine(server.url("postgres")).connect().close()
    except OperationalError:
        return False
    return True


def _engine(url: str) -> Any:
    return create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
