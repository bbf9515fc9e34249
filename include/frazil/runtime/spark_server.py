"""The managed spark connect server: one process of the stack. `frazil up` starts it, a run that finds it dead starts it again."""

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
"""A Spark that is asked to end takes 1-3 s."""

_GATE: Final = f"{NAME}.gate"
"""Lock that a process holds while it starts or stops the server."""

_START_SECONDS: Final = 180.0
"""Bounds the way from the process to its first answer; 8 s on two idle cores."""


@dataclass(frozen=True, slots=True)
class Server:
    """The wanted configuration of a server.

    Attributes:
        release: Identifies code and configuration: a server with another release is restarted.
        properties: Contents of `properties_file` during the start, maybe with secrets; None if the command doesn't name the file.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    release: str
    properties: str | None = field(default=None, repr=False)


def url(home: Home) -> str:
    """Address of the managed server. By this name its client sends a token without TLS: it never leaves the machine."""
    return f"sc://localhost:{home.ports.spark_connect}"


def properties_file(home: Home) -> Path:
    """Path of the private configuration file of a home's server."""
    return home.run / f"{NAME}.properties"


def token(home: Home) -> str:
    """The token of a home's server, generated once: without it, any user of the machine could run code as the server's user."""
    file = private_folder(home.run) / f"{NAME}.token"
    with exclusive(home.run / f"{NAME}.token.lock"):
        if not file.is_file():
            write_atomically(file, secrets.token_urlsafe(32), mode=PRIVATE_FILE)
        return file.read_text(encoding="utf-8")


@contextmanager
def serving(home: Home, server: Server, report: Callable[[str], None], *, if_started: bool = False) -> Iterator[None]:
    """While the block runs, the server stays up and is not restarted for another run.

    A stopped server is started; one of another release is restarted if no run uses it. With `if_started`, only a server that
    was started before is started again, so that no run waits for a second start after a failed one.

    Raises:
        Retryable: It did not start, and the message quotes its log; or runs are on a server of another release; or it is not up.
        Terminal: Its port is taken.
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
    """Whether a server was started and not stopped since. It may have crashed."""
    return Processes(home.run, home.logs, home.root).record(NAME) is not None


def replace_when_idle(home: Home) -> None:
    """Have the next run that finds the server idle restart it, even if its release is right."""
    _release_file(home).unlink(missing_ok=True)


def _release_file(home: Home) -> Path:
    return home.run / f"{NAME}.release"


def stop(processes: Processes) -> None:
    """Stop the server even if it is in use. Does nothing if it does not run; waits for one that is just starting, and stops
    it.
    """
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
    _stop(processes)  # also what a crash left of its session
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
    """Require that the server is idle. No run begins on a server of another release, so it becomes idle eventually."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SPARK_UNAVAILABLE.retryable(
            "the Spark Connect server has another release or configuration, or opened no session, and runs use it",
            next_step="the next run that finds it idle restarts it; or `frazil down`, which ends those runs, and `frazil up`",
        ) from error


def _wait_started(home: Home, processes: Processes) -> None:
    def is_up() -> bool:  # it binds its port when Spark is
        return answers(home.ports.spark_connect)

    try:
        processes.wait_ready(NAME, "spark connect: the server", is_up, _START_SECONDS)
    except Retryable:
        _stop(processes)
        raise


@contextmanager
def _users(home: Home) -> Iterator[IO[str]]:
    """A file that every run on the server holds a shared lock of; the lock ends with the process, however that ends."""
    path: Path = private_folder(home.run) / f"{NAME}.users"
    with path.open("a", encoding="utf-8") as users:
        yield users
