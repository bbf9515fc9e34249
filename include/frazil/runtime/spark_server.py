"""The managed Spark Connect server: a process of the stack. `frazil up` starts it; a run that finds it dead starts it again."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from frazil.error_codes import SPARK_UNAVAILABLE
from frazil.errors import Retryable
from frazil.runtime.home import (
    PORT_VARIABLES,
    PRIVATE_FILE,
    Home,
    answers,
    exclusive,
    private_folder,
    require_free,
    write_atomically,
)
from frazil.runtime.process import Processes, Spec

NAME: Final = "spark-connect"
GRACE_SECONDS: Final = 15.0
"""Bounds how long Spark may take to end, usually 1 to 3 s."""

_GATE: Final = f"{NAME}.gate"
"""Lock that a process holds while it starts or stops the server."""

_START_SECONDS: Final = 180.0
"""Bounds the start until the first answer; 8 s on two idle cores."""


@dataclass(frozen=True, slots=True)
class Server:
    """How a server is to be started.

    Attributes:
        release: Digest of code and configuration: a server of another release is restarted.
        properties: Contents of `properties_file` during the start, maybe with secrets; None if the command doesn't name the file.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    release: str
    properties: str | None = field(default=None, repr=False)


def url(home: Home) -> str:
    """Address of the managed server. Spark's client sends a token without TLS only to `localhost`, which stays on this machine."""
    return f"sc://localhost:{home.ports.spark_connect}"


def properties_file(home: Home) -> Path:
    """Path of the private configuration file of a home's server, which exists while the server starts."""
    return home.run / f"{NAME}.properties"


def token(home: Home) -> str:
    """The token of a home's server, generated once. Without it, any user of the machine could run code as the server's user."""
    file = private_folder(home.run) / f"{NAME}.token"
    with exclusive(home.run / f"{NAME}.token.lock"):
        if not file.is_file():
            write_atomically(file, secrets.token_urlsafe(32), mode=PRIVATE_FILE)
        return file.read_text(encoding="utf-8")


@contextmanager
def serving(home: Home, server: Server, report: Callable[[str], None], *, if_started: bool = False) -> Iterator[None]:
    """While the block runs, the server stays up and is not restarted for another run.

    A stopped server is started; a server of another release is restarted if no run uses it. With `if_started`, a server that
    nobody started is not started either, so that no run waits for a second start after a failed one.

    Raises:
        Retryable: The server did not start (the message quotes its log), runs use another release of it, or it is not started.
        Terminal: Another process has its port.
    """
    with _users(home) as users:
        with exclusive(
            home.run / _GATE, lambda: report("spark connect: waiting for another run, which starts or stops the server")
        ):
            if if_started and not is_started(home):
                raise SPARK_UNAVAILABLE.retryable(
                    "the spark connect server was stopped, or did not start, while this run waited for it"
                )
            _ensure(home, server, users, report)
            fcntl.flock(users, fcntl.LOCK_SH)
        yield


def is_started(home: Home) -> bool:
    """Whether a server was started and not stopped since; it may have crashed."""
    return Processes(home.run, home.logs, home.root).record(NAME) is not None


def replace_when_idle(home: Home) -> None:
    """Let the next run that finds the server idle restart it, even if its release fits."""
    _release_file(home).unlink(missing_ok=True)


def _release_file(home: Home) -> Path:
    return home.run / f"{NAME}.release"


def stop(processes: Processes) -> None:
    """Stop the server, even if runs use it. A server that is just starting is stopped once it is up."""
    with exclusive(processes.run / _GATE):
        _stop(processes)


def _stop(processes: Processes) -> None:
    processes.stop((NAME, GRACE_SECONDS))


def _ensure(home: Home, server: Server, users: IO[str], report: Callable[[str], None]) -> None:
    processes, release = Processes(home.run, home.logs, home.root), _release_file(home)
    if processes.running(NAME) is not None:
        if release.is_file() and release.read_text(encoding="utf-8") == server.release:
            return
        _require_idle(users)
    release.unlink(missing_ok=True)
    _stop(processes)  # also the processes that a crash left
    require_free(home.ports.spark_connect, PORT_VARIABLES["spark_connect"], "the spark connect server")
    if server.properties is not None:
        write_atomically(properties_file(home), server.properties, mode=PRIVATE_FILE)
    try:
        processes.start(Spec(NAME, server.command, server.env, url(home), GRACE_SECONDS))
        _wait_started(home, processes)
    finally:
        properties_file(home).unlink(missing_ok=True)
    write_atomically(release, server.release)
    report(f"spark connect: ready at {url(home)}")


def _require_idle(users: IO[str]) -> None:
    """Refuse a server that runs use. No new run begins on another release, so the server becomes idle at some time."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SPARK_UNAVAILABLE.retryable(
            "the Spark Connect server has another release or configuration, or opened no session, and runs use it",
            next_step="the next run that finds it idle restarts it; or `frazil down`, which ends those runs, and `frazil up`",
        ) from error


def _wait_started(home: Home, processes: Processes) -> None:
    def is_up() -> bool:  # the server binds its port once Spark is up
        return answers(home.ports.spark_connect)

    try:
        processes.wait_ready(NAME, "spark connect: the server", is_up, _START_SECONDS)
    except Retryable:
        _stop(processes)
        raise


@contextmanager
def _users(home: Home) -> Iterator[IO[str]]:
    """A file on which every run that uses the server holds a shared lock; the lock ends with the process, however that ends."""
    with (private_folder(home.run) / f"{NAME}.users").open("a", encoding="utf-8") as users:
        yield users
