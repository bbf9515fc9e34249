"""Jobs on a Spark Connect server: what they require of it, the errors of one that is unreachable or unfit, and its
sessions, opened, limited in their waiting, and lent to the next job.
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
"""Bounds the way to the server's port."""

_SESSION: Final = {"spark.sql.session.timeZone": "UTC"}
"""As spark-submit is started; an engine's own take their place."""

_REFUSED: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_SETTABLE: Final = "CANNOT_MODIFY"


def session_settings(engine: EngineSettings) -> Mapping[str, str]:
    """Settings of a new session. A managed server has the engine's own settings since its start."""
    if engine.managed:
        return {key: value for key, value in _SESSION.items() if key not in engine.conf}
    return _SESSION | engine.conf


class _LoopbackChannel(DefaultChannelBuilder):
    """A channel to a server that listens only on IPv4's loopback address.

    Only to a host called `localhost` does Spark's client send a token without TLS. But gRPC looks for that name at [::1] first,
    where any login of the machine may listen, and would hand the token over.
    """

    @property
    def endpoint(self) -> str:
        """Address that the channel is opened to."""
        return f"{LOOPBACK}:{self._port}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its clients see it.

    Attributes:
        address: `sc://host:port`, perhaps with parameters. Spark's client sends those that it does not know as headers: secrets.
        is_managed: Whether Frazil started it, on this machine.
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
        """Check that the server accepts connections: Spark's client would retry for long.

        Raises:
            Unavailable: It does not.
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
        """Check that its Spark is the client's.

        Raises:
            Terminal: It is another one.
        """
        if version != pyspark.__version__:
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place} is of Spark {version}, and pyspark here is {pyspark.__version__}",
                next_step=f"start a server of Spark {pyspark.__version__}, or install pyspark and pyspark-client {version} here",
            )

    def require_sources(self, spark: SparkSession) -> None:
        """Check that its Python workers have this very Frazil: they decode the records.

        Raises:
            Terminal: They have another one, or none.
            Retryable: They have another one, and the server is managed: it was replaced a moment ago.
        """

        def worker_digests(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            from frazil.spark.submit.configuration import digest as here

            for _ in batches:
                yield pa.RecordBatch.from_pydict({"digest": [here()]})

        expected = digest()
        mend = "give the server's workers the same release (image, archive or spark.executorEnv.PYTHONPATH), and start it anew"
        try:
            digests = {
                row["digest"]
                for row in spark.range(1).mapInArrow(worker_digests, "digest string").toArrow().to_pylist()
            }
        except PySparkException as error:
            if "ModuleNotFoundError" not in str(error):
                raise
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place}: its Python workers have no Frazil", next_step=mend
            ) from error
        if digests != {expected}:
            message = (
                f"{self.name} at {self.place}: its Python workers have another Frazil: expected code {expected}, found"
            )
            message += f" {', '.join(sorted(digests))}"
            if self.is_managed:
                raise BAD_SPARK_SERVER.retryable(
                    f"{message}; it was replaced while the run began", next_step="the next try begins with the new one"
                )
            raise BAD_SPARK_SERVER.terminal(message, next_step=mend)

    def require_extensions(self, spark: SparkSession) -> None:
        """Check that its Spark can write the tables that PyIceberg can't.

        Raises:
            Terminal: It has no Iceberg extensions, which can't be had later.
        """
        if EXTENSIONS not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise BAD_SPARK_SERVER.terminal(
                f"{self.name} at {self.place} has no Iceberg extensions, which merges, branches and maintenance need",
                next_step=f"start it with Iceberg's runtime jar and --conf spark.sql.extensions={EXTENSIONS}",
            )

    def configure(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        """Apply the engine's `conf` to the session.

        Raises:
            Terminal: Some of it can't be set in a session, and the server has other values.
        """
        fixed = [key for key, value in settings.items() if not _is_set(spark, key, value)]
        if fixed:
            raise BAD_SPARK_SERVER.terminal(
                f"engine {self.engine}: conf: {', '.join(fixed)} can't be set in a session",
                next_step=f"start the server at {self.place} with them, and remove them from the engine's conf",
            )


def _is_set(spark: SparkSession, key: str, value: str) -> bool:
    if spark.conf.get(key, None) == value:
        return True
    try:
        spark.conf.set(key, value)
    except PySparkException as error:
        if _SETTABLE not in str(error):
            raise
        return False
    return True


_RETRIES: Final = 6
"""Attempts to reach a server that went away, 20 s in all. Spark's own fifteen take ten minutes; Airflow tries again, too."""

_LONGEST_WAIT_MILLISECONDS: Final = 5_000


def limit_waiting(spark: SparkSession) -> None:
    """Limit how long a session waits for answers. A cloned session has its own client, which does not inherit the limit."""
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_WAIT_MILLISECONDS)])
    Answers.shutdown = classmethod(_let_go)  # type: ignore[assignment, method-assign]


def _let_go(answers: Any) -> None:
    """End the threads that acknowledge answers to servers. Called for every session that is closed or garbage-collected.

    Spark 4.1 waits for them with its lock held (SPARK-55362). Such a thread may happen to collect another session, as a clone
    whose merge failed, which wants the lock, too: then neither continues, and no session of the process does.
    """
    with answers._lock:  # noqa: SLF001 - it stands for a method of the class
        threads = answers._release_thread_pool_instance  # noqa: SLF001
        answers._release_thread_pool_instance = None  # noqa: SLF001
    if threads is not None:
        threads.shutdown()


_SUFFIX: Final = ".session"

_FORGOTTEN_SECONDS: Final = 2 * 86_400.0
"""Age from which a session id is of no use: servers end sessions that were idle for about a day, or sooner."""


@dataclass(slots=True)
class KeptSession:
    """A session that this process has for itself.

    Attributes:
        is_kept: Whether another job may take it over at the end: who has it says so once it is fit for that.
    """

    file: Path
    is_kept: bool = False

    @property
    def id(self) -> str:
        """The session's id, a UUID."""
        return self.file.stem


@contextmanager
def lend_session(folder: Path) -> Iterator[KeptSession]:
    """Lend an idle session, or a new one.

    Sessions of one folder are alike: same server, same settings, same code.
    """
    session, lock_file = _take_session(private_folder(folder))
    with lock_file:
        try:
            session.file.touch()
            yield session
        finally:
            if not session.is_kept:
                session.file.unlink(missing_ok=True)


def _take_session(folder: Path) -> tuple[KeptSession, IO[str]]:
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        lock_file = _try_lock(file)
        if lock_file is not None:
            return KeptSession(file), lock_file
    while True:
        file = folder / f"{uuid4()}{_SUFFIX}"
        file.touch(exist_ok=False)
        lock_file = _try_lock(file)
        if lock_file is not None:  # else another job was quicker
            return KeptSession(file), lock_file


def _try_lock(file: Path) -> IO[str] | None:
    """Lock a file and return it; None if it is locked, missing, or has not been used for long."""
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
"""Bounds the first answer, which makes the session: a fraction of a second on an idle server."""

_READY: Final = "frazil.session"
"""Set in a session that was checked and configured: a server that was started anew has none of it under the same id."""

_LEAVE_SECONDS: Final = 5.0
"""Bounds the request that closes a session, since the server may be gone. A running server ends idle sessions by itself."""

_ENDED: Final = ("SESSION_CLOSED", "SESSION_CHANGED")
"""What a server says to the id of a session that it ended."""


@contextmanager
def connected_session(project: Project, engine_name: str, *, writes: bool) -> Iterator[Session]:
    """The session of a job. Another job may have it after the block, unless Spark failed: then the server drops it and its work.

    Raises:
        Unavailable: The server does not answer.
        Terminal: Its Spark or its Frazil is another one, it refuses the token, or lacks what a job needs.
    """
    engine = project.engine(engine_name)
    server = Server(engine_name, address(project, engine), is_managed=engine.managed)
    server.require_listening()
    _end_in_order()
    with _session(server, project, engine) as (spark, spark_session):
        _prepare(spark, server, engine)
        spark_session.is_kept = True
        if writes:
            server.require_extensions(spark)
        yield cast("Session", spark)  # both have what jobs use; Spark's own types don't say so


def _prepare(spark: SparkSession, server: Server, engine: EngineSettings) -> None:
    """Configure a new session, after checking the server."""
    server.require_version(spark.version)
    if spark.conf.get(_READY, None) is not None:
        spark.interruptAll()  # what its last user may have left, if it was killed
        return
    server.require_sources(spark)
    server.configure(spark, session_settings(engine))
    spark.conf.set(_READY, "true")


@contextmanager
def _session(server: Server, project: Project, engine: EngineSettings) -> Iterator[tuple[SparkSession, KeptSession]]:
    folder = project.home.run / "spark-sessions" / _session_key(server, project, engine)
    while True:
        with lend_session(folder) as spark_session:
            spark = _reopen_session(server, spark_session.id)
            if spark is None:
                continue
            with _closing(spark, spark_session):
                yield spark, spark_session
            return


def _reopen_session(server: Server, session_id: str) -> SparkSession | None:
    """The session of an id; None if the server ended it."""
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # Spark's functions are those of spark connect, in the whole process
    spark = SparkSession.builder.channelBuilder(server.channel(session_id)).create()
    limit_waiting(spark)
    try:
        _with_time_limit(_ANSWER_SECONDS, lambda: spark.version, server)
    except PySparkException as error:
        _leave(spark, release=False)
        if any(word in str(error) for word in _ENDED):
            return None
        raise server.refusal(error) from error
    return spark


@contextmanager
def _closing(spark: SparkSession, spark_session: KeptSession) -> Iterator[None]:
    """Close a session at the end of the block. If the block fails, cancel the session's work on the server; drop the session
    unless it is kept.

    An error of Frazil does not make the session unusable. Dropping the session would cost the server a Python daemon, see
    `frazil.spark.connect`.
    """
    try:
        yield
    except SPARK_FAILED:
        spark_session.is_kept = False
        raise
    except BaseException:
        spark_session.is_kept = spark_session.is_kept and _interrupted(spark)
        raise
    finally:
        _leave(spark, release=not spark_session.is_kept)


def _interrupted(spark: SparkSession) -> bool:
    """Whether the server ended the session's work in time."""
    ended = threading.Event()

    def interrupt() -> None:
        with suppress(*SPARK_FAILED, ValueError):  # as below
            spark.interruptAll()
            ended.set()

    _in_thread(interrupt).join(_LEAVE_SECONDS)
    return ended.is_set()


def _leave(spark: SparkSession, *, release: bool) -> None:
    def leave() -> None:
        with suppress(*SPARK_FAILED, ValueError):  # the last: its channel is closed already
            if release:
                spark.interruptAll()
        spark.release_session_on_close = release
        spark.stop()

    _in_thread(leave).join(_LEAVE_SECONDS)


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True, name="spark-connect")
    thread.start()
    return thread


def _with_time_limit(seconds: float, ask: Callable[[], T], server: Server) -> T:
    """Call `ask` in a thread and wait at most so many seconds: Spark's client has no time limit of its own."""
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
    """A digest of the settings that interchangeable sessions share: after a change of a catalog, no old session is reused."""
    parts = [server.address, pyspark.__version__, digest(), engine.conf]
    parts += [{name: catalog.model_dump() for name, catalog in project.settings.catalogs.items()}]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _end_in_order() -> None:
    """Have SIGTERM cancel the work on the server, unless something else handles the signal: the work would continue without
    its client.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
