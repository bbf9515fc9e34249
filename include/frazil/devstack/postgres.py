"""A PostgreSQL server with its data in the home, run by the system's programs: loopback only, always with a password."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from frazil.error_codes import PROGRAM_MISSING, STACK_FAILED
from frazil.runtime.home import (
    LOOPBACK,
    PORT_VARIABLES,
    PRIVATE_FILE,
    Home,
    inherited_environment,
    require_free,
    write_atomically,
)
from frazil.runtime.process import Processes, Spec

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

NAME: Final = "postgres"
INIT: Final = "postgres-init"
USER: Final = "frazil"
"""The only login, which owns all databases."""

GRACE_SECONDS: Final = 30.0
"""Time to end: a fast stop writes a checkpoint, which takes less than a second for a stack's data."""

_NOBODY: Final = "nobody"
"""The user that runs the server if this process is root: PostgreSQL refuses to run as root."""

_DEBIAN: Final = Path("/usr/lib/postgresql")
"""Debian's folder of PostgreSQL, which has a folder for each version."""

_START_SECONDS: Final = 60.0
"""Bounds the time until the server answers: less than a second, after a kill longer."""

_INIT_SECONDS: Final = 120.0
"""Bounds the creation of the data folder: 2 s on an idle machine."""

_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({"shared_buffers": "64MB", "log_min_messages": "warning"})


def start(
    home: Home,
    processes: Processes,
    report: Callable[[str], None],
    password: str,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Start the server unless it runs, and wait until it answers.

    The first start creates the data folder, `postgres` below the home, and the login with its password.

    Raises:
        Terminal: This machine has no PostgreSQL, the port is taken, or the server's user can't reach the folder.
        Retryable: The server ended or did not answer in time; the end of its log is quoted.
    """
    if processes.running(NAME) is None:
        programs_folder = require_programs(home)
        processes.stop((NAME, GRACE_SECONDS))
        require_free(home.ports.postgres, PORT_VARIABLES["postgres"], "PostgreSQL")
        _create_data(home, processes, programs_folder, password, report)
        listening = {"listen_addresses": LOOPBACK, "port": str(home.ports.postgres), "unix_socket_directories": ""}
        options = [
            part for setting in ({**_SETTINGS, **settings} | listening).items() for part in ("-c", "=".join(setting))
        ]
        command = [*_user_prefix(), str(programs_folder / "postgres"), "-D", str(_data(home)), *options]
        processes.start(Spec(NAME, command, inherited_environment(), address(home), GRACE_SECONDS))
    _wait(home, processes, password)


def stop(processes: Processes) -> None:
    """Stop the server if it runs, and end its connections."""
    record = processes.running(NAME)
    if record is not None:
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(record.pid, signal.SIGINT)  # after SIGTERM it would wait until its clients disconnect
    processes.stop((INIT, GRACE_SECONDS), (NAME, GRACE_SECONDS))


def address(home: Home) -> str:
    """Host and port of the server."""
    return f"{LOOPBACK}:{home.ports.postgres}"


def url(home: Home, database: str, password: str) -> str:
    """SQLAlchemy address of a database, with the password."""
    from sqlalchemy import URL

    database_url = URL.create("postgresql+psycopg2", USER, password, LOOPBACK, home.ports.postgres, database)
    return database_url.render_as_string(hide_password=False)


def jdbc_url(home: Home, database: str) -> str:
    """JDBC address of a database, without login and password, which JDBC has as properties."""
    return f"jdbc:postgresql://{address(home)}/{database}"


def ensure_database(home: Home, database: str, password: str) -> None:
    """Create a database unless it exists."""
    from sqlalchemy import text

    with _engine(home, "postgres", password).connect() as connection:
        rows = connection.execute(text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": database})
        if rows.first() is None:
            connection.execute(text(f"CREATE DATABASE {database}"))


def require_programs(home: Home) -> Path:
    """Folder of the programs that fit the home's data.

    Raises:
        Terminal: This machine has no PostgreSQL, or not the version of the data.
    """
    file = _data(home) / "PG_VERSION"
    version = file.read_text(encoding="ascii").strip() if file.is_file() else None
    folder = programs(version)
    if folder is not None:
        return folder
    if version is not None and programs() is not None:
        raise PROGRAM_MISSING.terminal(
            f"the data at {_data(home)} are of PostgreSQL {version}, and this machine has no such server",
            next_step=f"install PostgreSQL {version} beside the other one, or move the data with pg_upgrade",
        )
    raise PROGRAM_MISSING.terminal(
        "no PostgreSQL: neither on PATH nor below /usr/lib/postgresql",
        next_step="install it, such as by `apt-get install postgresql`; no server of its own needs to run",
    )


def programs(version: str | None = None) -> Path | None:
    """Folder of `initdb` and `postgres`, on PATH or below Debian's folder, of this major version or any; None if there is none."""
    initdb = shutil.which("initdb")
    folders = [Path(initdb).resolve().parent] if initdb else []
    folders += sorted(_DEBIAN.glob("*/bin"), key=_version_of, reverse=True)
    if version is not None:
        folders = [folder for folder in folders if _version_of(folder) == int(version)]
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _version_of(folder: Path) -> int:
    """Major version of a folder's programs; -1 if that is unknown."""
    if folder.parent.parent == _DEBIAN and folder.parent.name.isdecimal():
        return int(folder.parent.name)
    try:
        command_line = [str(folder / "postgres"), "--version"]
        output = subprocess.run(command_line, capture_output=True, text=True, check=False, timeout=_INIT_SECONDS).stdout
    except OSError:
        return -1
    match = re.search(r"(\d+)", output)
    return int(match[1]) if match else -1


def _data(home: Home) -> Path:
    return home.root / "postgres" / "data"


def _create_data(
    home: Home, processes: Processes, programs_folder: Path, password: str, report: Callable[[str], None]
) -> None:
    """Create the data folder unless it exists. It gets its name only when it is complete."""
    data = _data(home)
    if (data / "PG_VERSION").is_file():
        return
    report("postgres: preparing the data folder")
    folder, unfinished, password_file = data.parent, data.with_name("data.new"), data.with_name("password")
    shutil.rmtree(unfinished, ignore_errors=True)
    write_atomically(password_file, password, mode=PRIVATE_FILE)
    _give_to_user(folder, password_file)
    access = ("--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password_file}")
    command = (str(programs_folder / "initdb"), "--pgdata", str(unfinished), "--locale=C", "--encoding=UTF8", *access)
    status = processes.finish(Spec(INIT, (*_user_prefix(), *command), inherited_environment()), _INIT_SECONDS)
    password_file.unlink()
    if status != 0:
        raise STACK_FAILED.retryable(f"postgres: initdb ended with {status}:\n{processes.last_lines(INIT, [password])}")
    unfinished.rename(data)


def _user_prefix() -> tuple[str, ...]:
    """The beginning of a command that runs as user `nobody`; empty unless this process is root."""
    if os.geteuid() != 0:
        return ()
    group = pwd.getpwnam(_NOBODY).pw_gid
    return ("setpriv", f"--reuid={_NOBODY}", f"--regid={group}", "--clear-groups")


def _give_to_user(folder: Path, file: Path) -> None:
    """Give folder and file to the server's user, if this process is root."""
    if os.geteuid() != 0:
        return
    for path in (folder, file):
        shutil.chown(path, _NOBODY, pwd.getpwnam(_NOBODY).pw_gid)
    test = subprocess.run([*_user_prefix(), "test", "-w", str(folder)], check=False)
    if test.returncode != 0:
        raise STACK_FAILED.terminal(
            f"PostgreSQL does not run as root, and the user {_NOBODY}, who runs it instead, can't reach {folder}",
            next_step="set FRAZIL_HOME to a folder that this user can reach, or run Frazil as another user than root",
        )


def _wait(home: Home, processes: Processes, password: str) -> None:
    from sqlalchemy.exc import OperationalError

    def answers() -> bool:
        try:
            _engine(home, "postgres", password).connect().close()
        except OperationalError:
            return False
        return True

    processes.wait_ready(NAME, f"postgres: the server at {address(home)}", answers, _START_SECONDS)


def _engine(home: Home, database: str, password: str) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    return create_engine(url(home, database, password), isolation_level="AUTOCOMMIT", poolclass=NullPool)
