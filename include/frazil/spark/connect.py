"""Sessions of jobs on a Spark Connect server: checks of the server, its sessions, and a pool that lends them to the next job.

A session costs the server a Python daemon, whose start takes seconds, so a session is kept for the next job where possible.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator as Answers
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession

from frazil.error_codes import BAD_SPARK_SERVER, SPARK_UNAVAILABLE
from frazil.errors import Terminal, Unavailable
from frazil.pipeline.settings.settings import EngineSettings
from frazil.project import Project
from frazil.runtime.home import LOOPBACK, private_folder
from frazil.spark.errors import SPARK_FAILED
from frazil.spark.submit.configuration import EXTENSIONS, digest
from frazil.spark.submit.server import address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as Session


_REACH_SECONDS: Final = 5.0
"""Bounds the connection to the server's port."""

_SESSION: Final = {"spark.sql.session.timeZone": "UTC"}
"""Settings of a session, as with spark-submit; an engine's `conf` overrides them."""

_REFUSED: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_NOT_SETTABLE: Final = "CANNOT_MODIFY"
"""Error condition of a setting that can't be changed in a session."""


def session_settings(engine: EngineSettings) -> Mapping[str, str]:
    """Settings of a new session. A managed server was started with those of the engine's `conf`."""
    if engine.managed:
        return {key: value for key, value in _SESSION.items() if key not in engine.conf}
    return _SESSION | engine.conf


class _LoopbackChannel(DefaultChannelBuilder):
    """A channel to a server that listens only on IPv4's loopback address.

    Spark's client sends a token without TLS only to the host `localhost`. But gRPC tries [::1] for that name first, where any user
    of the machine may listen, and would send the token there.
    """

    @property
    def endpoint(self) -> str:
        """Address of the server, for gRPC."""
        return f"{LOOPBACK}:{self._port}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its clients see it.

    Attributes:
        address: `sc://host:port`, perhaps with parameters, which may be secrets: Spark's client sends unknown ones as headers.
        is_managed: Whether Frazil started the server, on this machine.
    """

    engine: str
    address: str = field(repr=False)
    is_managed: bool = False

    @property
    def place(self) -> str:
        """Its address without parameters, for messages."""
        return self.address.partition("/;")[0]

    @property
    def name(self) -> str:
        """Its coordinates, for messages."""
        return f"engine {self.engine}: the spark connect server"

    def channel(self, session_id: str) -> DefaultChannelBuilder:
        """A channel to one session."""
        _, _, parameters = self.address.partition("/;")
        url = ";".join([f"{self.place.rstrip('/')}/", *filter(None, parameters.split(";")), f"session_id={session_id}"])
        return _LoopbackChannel(url) if self.is_managed else DefaultChannelBuilder(url)

    def require_listening(self) -> None:
        """Check that the server accepts connections: Spark's client would retry for minutes.

        Raises:
            Unavailable: It does not accept them.
        """
        url = urlsplit(self.address)
        try:
            socket.create_connection((url.hostname or "", url.port or 0), timeout=_REACH_SECONDS).close()
        except OSError as error:
            raise Unavailable(
                f"{self.name} at {self.place} does not answer: {error}",
                code=SPARK_UNAVAILABLE,
                next_step="start it, or correct the engine's url; the next run starts a managed server by itself",
            ) from error

    def refusal(self, error: PySparkException) -> Unavailable | Terminal:
        """The error for a session that can't be opened."""
        detail = " ".join(str(error).split())[:500]
        if any(word in detail for word in _REFUSED):
            return BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place} refuses this client: {detail}",
                next_step="the engine's token must be the server's spark.connect.authenticate.token",
            )
        return Unavailable(f"{self.name} at {self.place} opened no session: {detail}", code=SPARK_UNAVAILABLE)

    def require_version(self, version: str) -> None:
        """Check that the server has the client's version of Spark.

        Raises:
            Terminal: It has another version.
        """
        if version != pyspark.__version__:
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place} is of Spark {version}, and pyspark here is {pyspark.__version__}",
                next_step=f"start a server of Spark {pyspark.__version__}, or install pyspark and pyspark-client {version} here",
            )

    def require_sources(self, spark: SparkSession) -> None:
        """Check that the server's Python workers, which decode records, have the same code of Frazil.

        Raises:
            Terminal: They have other code, or none.
            Retryable: They have other code, and the server is managed: it was replaced a moment ago.
        """

        def worker_digests(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            from frazil.spark.submit.configuration import digest as here

            for _ in batches:
                yield pa.RecordBatch.from_pydict({"digest": [here()]})

        expected = digest()
        next_step = "give the server's workers the same release (image, archive or spark.executorEnv.PYTHONPATH), and start it anew"
        try:
            digests = {
                row["digest"]
                for row in spark.range(1).mapInArrow(worker_digests, "digest string").toArrow().to_pylist()
            }
        except PySparkException as error:
            if "ModuleNotFoundError" not in str(error):
                raise
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place}: its Python workers have no Frazil", next_step=next_step
            ) from error
        if digests != {expected}:
            message = (
                f"{self.name} at {self.place}: its Python workers have another Frazil: expected code {expected},"
                f" found {', '.join(sorted(digests))}"
            )
            if self.is_managed:
                raise BAD_SPARK_SERVER.retryable(
                    f"{message}; it was replaced while the run began", next_step="the next try begins with the new one"
                )
            raise BAD_SPARK_SERVER.terminal(message, next_step=next_step)

    def require_extensions(self, spark: SparkSession) -> None:
        """Check that the server's Spark can write tables that PyIceberg can't.

        Raises:
            Terminal: It has no Iceberg extensions, which a session can't add.
        """
        if EXTENSIONS not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place} has no Iceberg extensions, which merges, branches and maintenance need",
                next_step=f"start it with Iceberg's runtime jar and --conf spark.sql.extensions={EXTENSIONS}",
            )

    def configure(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        """Apply the engine's `conf` to the session.

        Raises:
            Terminal: Some settings can't be changed in a session, and the server has other values.
        """
        fixed = [key for key, value in settings.items() if not _applies(spark, key, value)]
        if fixed:
            raise BAD_SPARK_SERVER.terminal(
                f"engine {self.engine}: conf: {', '.join(fixed)} can't be set in a session",
                next_step=f"start the server at {self.place} with them, and remove them from the engine's conf",
            )


def _applies(spark: SparkSession, key: str, value: str) -> bool:
    """Set a session's setting, and return whether it has the value."""
    if spark.conf.get(key, None) == value:
        return True
    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        if _NOT_SETTABLE not in str(error):
            raise
        return False
    return True


_RETRIES: Final = 6
"""Attempts to reach a lost server, 20 s in all. Spark's default, fifteen, takes ten minutes, and Airflow retries anyway."""

_LONGEST_WAIT_MILLISECONDS: Final = 5_000


def limit_waiting(spark: SparkSession) -> None:
    """Limit how long a session waits for answers. A cloned session has its own client, without the limit of the original."""
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MILLISECONDS)])
    Answers.shutdown = classmethod(_end_release_threads)  # type: ignore[assignment, method-assign]


def _end_release_threads(answers: Any) -> None:
    """End the threads that acknowledge answers to servers. Spark calls it for each session that is closed or garbage-collected.

    Spark 4.1's own method waits for the threads while it holds its lock (SPARK-55362). If such a thread happens to collect
    another session, such as a clone whose merge failed, that waits for the lock, too: a deadlock of all sessions of the process.
    """
    with answers._lock:  # noqa: SLF001 - it replaces a method of the class
        threads = answers._release_thread_pool_instance  # noqa: SLF001
        answers._release_thread_pool_instance = None  # noqa: SLF001
    if threads is not None:
        threads.shutdown()


_SUFFIX: Final = ".session"

_FORGOTTEN_SECONDS: Final = 2 * 86_400.0
"""Idle time from which a session id is useless: servers end sessions that were idle for about a day, or less."""


@dataclass(slots=True)
class LentSession:
    """A session that only this process uses now.

    Attributes:
        is_reusable: Whether another job may use the session afterwards. The borrower sets it once the session is configured.
    """

    file: Path
    is_reusable: bool = False

    @property
    def id(self) -> str:
        """The session's id, a UUID."""
        return self.file.stem


@contextmanager
def lend_session(folder: Path) -> Iterator[LentSession]:
    """Lend an idle session of a folder, or a new one. All sessions of a folder have the same server, settings and code."""
    session, lock_file = _take_session(private_folder(folder))
    with lock_file:
        try:
            session.file.touch()
            yield session
        finally:
            if not session.is_reusable:
                session.file.unlink(missing_ok=True)


def _take_session(folder: Path) -> tuple[LentSession, IO[str]]:
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        lock_file = _try_lock(file)
        if lock_file is not None:
            return LentSession(file), lock_file
    while True:
        file = folder / f"{uuid4()}{_SUFFIX}"
        file.touch(exist_ok=False)
        lock_file = _try_lock(file)
        if lock_file is not None:  # else another job was quicker
            return LentSession(file), lock_file


def _try_lock(file: Path) -> IO[str] | None:
    """Lock a file and return it; None if it is locked, missing or too old."""
    try:
        lock_file = file.open("r+", encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - file.stat().st_mtime < _FORGOTTEN_SECONDS:
            return lock_file
        file.unlink()
    except (BlockingIOError, FileNotFoundError):
        pass
    lock_file.close()
    return None


T = TypeVar("T")

_ANSWER_SECONDS: Final = 60.0
"""Bounds the first answer, which opens the session: a fraction of a second on an idle server."""

_READY: Final = "frazil.session"
"""Set in a session that was checked and configured. After a restart the server's session of the same id does not have it."""

_CLOSE_SECONDS: Final = 5.0
"""Bounds the request that closes a session, because the server may be gone. A running server ends idle sessions by itself."""

_ENDED: Final = ("SESSION_CLOSED", "SESSION_CHANGED")
"""Error conditions for the id of a session that the server ended."""


@contextmanager
def connected_session(project: Project, engine_name: str, *, writes: bool) -> Iterator[Session]:
    """The session of a job. Another job may use it after the block, unless Spark failed: then the server drops it with its work.

    Raises:
        Unavailable: The server does not answer.
        Terminal: The server has another Spark or Frazil, refuses the token, or lacks what the job needs.
    """
    engine = project.engine(engine_name)
    server = Server(engine_name, address(project, engine), is_managed=engine.managed)
    server.require_listening()
    _end_in_order()
    with _session(server, project, engine) as (spark, lent):
        _prepare(spark, server, engine)
        lent.is_reusable = True
        if writes:
            server.require_extensions(spark)
        yield cast("Session", spark)  # it has all methods that jobs use, but Spark types it apart


def _prepare(spark: SparkSession, server: Server, engine: EngineSettings) -> None:
    """Check the server and configure a new session; cancel leftover work in a reused one."""
    server.require_version(spark.version)
    if spark.conf.get(_READY, None) is not None:
        spark.interruptAll()  # work of its last user, which may have been killed
        return
    server.require_sources(spark)
    server.configure(spark, session_settings(engine))
    spark.conf.set(_READY, "true")


@contextmanager
def _session(server: Server, project: Project, engine: EngineSettings) -> Iterator[tuple[SparkSession, LentSession]]:
    folder = project.home.run / "spark-sessions" / _session_key(server, project, engine)
    while True:
        with lend_session(folder) as lent:
            spark = _open_session(server, lent.id)
            if spark is None:
                continue
            with _closing(spark, lent):
                yield spark, lent
            return


def _open_session(server: Server, session_id: str) -> SparkSession | None:
    """The server's session of an id, which is new or idle; None if the server ended it."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = (
        "1"  # makes Spark's functions those of Spark Connect, in the whole process
    )
    spark = SparkSession.builder.channelBuilder(server.channel(session_id)).create()
    limit_waiting(spark)
    try:
        _with_time_limit(_ANSWER_SECONDS, lambda: spark.version, server)
    except PySparkException as error:
        _close(spark, release=False)
        if any(word in str(error) for word in _ENDED):
            return None
        raise server.refusal(error) from error
    return spark


@contextmanager
def _closing(spark: SparkSession, lent: LentSession) -> Iterator[None]:
    """Close a session at the end of the block, and let the server drop it unless it is reusable.

    After an error of Spark it is not. After another error it is reusable if the server cancels its work.
    """
    try:
        yield
    except SPARK_FAILED:
        lent.is_reusable = False
        raise
    except BaseException:
        lent.is_reusable = lent.is_reusable and _cancel_work(spark)
        raise
    finally:
        _close(spark, release=not lent.is_reusable)


def _cancel_work(spark: SparkSession) -> bool:
    """Cancel the session's work, and return whether the server did so in time."""
    ended = threading.Event()

    def interrupt() -> None:
        with suppress(*SPARK_FAILED, ValueError):  # as below
            spark.interruptAll()
            ended.set()

    _in_thread(interrupt).join(_CLOSE_SECONDS)
    return ended.is_set()


def _close(spark: SparkSession, *, release: bool) -> None:
    def close() -> None:
        with suppress(*SPARK_FAILED, ValueError):  # the last: the channel is closed already
            if release:
                spark.interruptAll()
        spark.release_session_on_close = release
        spark.stop()

    _in_thread(close).join(_CLOSE_SECONDS)


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True, name="spark-connect")
    thread.start()
    return thread


def _with_time_limit(seconds: float, ask: Callable[[], T], server: Server) -> T:
    """Call `ask` in a thread and wait so many seconds at most: Spark's client has no time limit of its own."""
    answers: list[T] = []
    failures: list[PySparkException] = []

    def work() -> None:
        try:
            answers.append(ask())
        except PySparkException as error:
            failures.append(error)

    _in_thread(work).join(seconds)
    if failures:
        raise failures[0]
    if not answers:
        raise Unavailable(
            f"{server.name}: {server.place} takes connections and gave no answer in {seconds:.0f} s",
            code=SPARK_UNAVAILABLE,
            next_step="check that it is a Spark Connect server, and read its log",
        )
    return answers[0]


def _session_key(server: Server, project: Project, engine: EngineSettings) -> str:
    """A digest of all settings that sessions must share to be reused: so no session survives a change of a catalog."""
    parts = [server.address, pyspark.__version__, digest(), engine.conf]
    parts += [{name: catalog.model_dump() for name, catalog in project.settings.catalogs.items()}]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _end_in_order() -> None:
    """Let SIGTERM end this process in order, unless something else handles it: the work on the server would continue alone."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
