"""The stack's S3 server in a folder of its own, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyarrow.fs import S3FileSystem

from frazil.devstack import object_store
from frazil.devstack.object_store import BUCKET, REGION, Keys
from frazil.errors import Terminal
from frazil.runtime.home import LOOPBACK, Home
from frazil.runtime.process import Processes

__all__ = ["BUCKET", "S3Server", "s3_server"]

ACCESS_KEY, SECRET_KEY = "frazil-tests", "s3cret/of+tests"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that answers, with one bucket.

    Attributes:
        port: Its port on the loopback interface.
        folder: Where it keeps objects: a folder for each bucket, a file for each object.
    """

    port: int
    folder: Path

    def properties(self, port: int | None = None) -> dict[str, str]:
        """File-io properties as the settings file has them, straight or by way of another port."""
        return {
            "s3.endpoint": f"http://{LOOPBACK}:{port or self.port}",
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
        }

    def files(self) -> S3FileSystem:
        """What is there, by nobody's way but the server's own."""
        return S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=f"{LOOPBACK}:{self.port}",
            scheme="http",
            region=REGION,
            allow_bucket_creation=True,
        )


def built_program(home: Home) -> Path | None:
    """The server's program; None if it is not there and there is no Go to build it."""
    try:
        return object_store.program(home)
    except Terminal:
        return None


@contextmanager
def s3_server(root: Path, port: int) -> Iterator[S3Server]:
    """Start the server in a folder of its own, wait until it answers, make the bucket, stop it in the end."""
    home = Home.resolve({"FRAZIL_HOME": str(root), "FRAZIL_JARS": str(Home.resolve().jars)})
    home = replace(home, ports=replace(home.ports, s3=port))
    processes = Processes(home.run, home.logs, home.root)
    try:
        object_store.start(home, processes, print, Keys(ACCESS_KEY, SECRET_KEY))
        yield S3Server(port, root / "s3" / "objects")
    finally:
        object_store.stop(processes)
