"""One way to start a JVM beside a test, of the jars that PySpark brings, and to speak with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from frazil.runtime.java import ensure_java


def spark_jars() -> Path:
    """The folder of PySpark's jars."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


@contextmanager
def java_gateway(log: Path, options: Iterable[str], jars: Iterable[Path] = ()) -> Iterator[JavaGateway]:
    """Start a JVM with these jars before PySpark's; it ends with the block."""
    with log.open("w") as lines:
        port, token = launch_gateway(
            jarpath=str(next(spark_jars().glob("py4j-*.jar"))),
            classpath=":".join([*map(str, jars), f"{spark_jars()}/*"]),
            javaopts=["-Xmx512m", *options],
            java_path=str(ensure_java().command),
            redirect_stdout=lines,
            redirect_stderr=lines,
            die_on_exit=True,
            enable_auth=True,
            use_shell=False,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield gateway
        finally:
            gateway.shutdown()
