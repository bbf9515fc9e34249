"""A Hive Metastore of the jars that PySpark brings, over Derby in memory, for tests.

Hive's own main program listens on all interfaces. So its server is put together here, as that program does it, on the loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError

from frazil.runtime.home import LOOPBACK, answers
from frazil.runtime.process import until
from tests.java_gateway import java_gateway

_OPENED = ("java.lang", "java.lang.reflect", "java.net", "java.nio", "java.util", "java.util.concurrent")
"""Packages of Java that Hive looks into, which needs a word since Java 17."""

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "datanucleus.connectionPoolingType": "HikariCP",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.hmshandler.retry.attempts": "1",  # it would try for 20 seconds what its database refuses
}


@contextmanager
def hive_metastore(root: Path, port: int) -> Iterator[dict[str, Any]]:
    """Start the server in a folder of its own, wait until it answers, stop it in the end.

    Yields:
        Its entry of a settings file, less a warehouse.
    """
    options = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    with java_gateway(root / "metastore.log", [f"-Dderby.stream.error.file={root}/derby.log", *options]) as gateway:
        server = _server(gateway.jvm, root, port)
        Thread(target=_serve, args=(server,), daemon=True).start()
        assert until(lambda: answers(port), 60)
        properties = {"hive.hive2-compatible": "true"}  # else it gets a type that Hive 2 does not know
        yield {"type": "hive", "uri": f"thrift://{LOOPBACK}:{port}", "properties": properties}
        server.stop()


def _serve(server: Any) -> None:
    """Serve until it is stopped, which may take the answer to this call along."""
    with suppress(Py4JError):
        server.serve()


def _server(java: Any, root: Path, port: int) -> Any:
    metastore, thrift = java.org.apache.hadoop.hive.metastore, java.org.apache.thrift
    conf = java.org.apache.hadoop.hive.conf.HiveConf()
    for name, value in {**_SETTINGS, "hive.metastore.warehouse.dir": f"file://{root}/hive"}.items():
        conf.set(name, value)
    metastore.txn.TxnDbUtil.prepDb(conf)  # the tables of locks
    handler = getattr(metastore, "HiveMetaStore$HMSHandler")("metastore", conf, False)  # noqa: FBT003 - Java
    shared = metastore.RetryingHMSHandler.getProxy(conf, handler, False)  # noqa: FBT003 - Java
    processor = metastore.TSetIpAddressProcessor(shared)
    socket = thrift.transport.TServerSocket(java.java.net.InetSocketAddress(LOOPBACK, port))
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(socket).processor(processor)
    return thrift.server.TThreadPoolServer(arguments)
