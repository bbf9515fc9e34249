"""Requirements of a job on a Spark Connect server, and the errors for a server that is unreachable or unfit."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

from frazil.error_codes import BAD_SPARK_SERVER, SPARK_UNAVAILABLE
from frazil.errors import Terminal, Unavailable
from frazil.pipeline.settings.settings import EngineSettings
from frazil.runtime.home import LOOPBACK
from frazil.spark.submit.configuration import EXTENSIONS
from frazil.spark.submit.shipped import digest

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
            from frazil.spark.submit.shipped import digest as here

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
