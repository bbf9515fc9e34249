"""A real S3 server in a folder of its own, for tests: Versity's gateway, built by Go once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from pyarrow.fs import S3FileSystem

from frazil.local.files import exclusive
from frazil.local.home import LOOPBACK, Home, inherited_environment
from frazil.local.process import Processes, Spec
from frazil.local.waiting import until

PROGRAM, VERSION = "versitygw", "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
"""Go checks what it downloads against its public checksum database: the version pins the content."""

BUCKET, REGION = "lake", "us-east-1"
ACCESS_KEY, SECRET_KEY = "frazil-tests", "s3cret/of+tests"
_GO = Path("/usr/local/go/bin/go")
"""Where Go's own archive puts it, often not on PATH."""

_BUILD_SECONDS = 1200
"""Bounds download and build: 2 minutes on two cores, once."""

_START_SECONDS = 60.0
"""Bounds the way from the process to its first answer, 0.2 s on an idle machine."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that answers, with one bucket.

    Attributes:
        port: Its port on the loopback interface.
    """

    port: int

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


def go() -> str | None:
    """Go's command, if there is one."""
    return shutil.which("go") or (str(_GO) if _GO.is_file() else None)


def built_program(home: Home) -> Path | None:
    """The server's program, kept beside the jars; None if it is not there and there is no Go to build it."""
    built = home.jars / "tools" / f"{PROGRAM}-{VERSION}"
    with exclusive(home.jars / ".tools.lock", lambda: None):
        command = go()
        if not built.is_file() and command is not None:
            staging = built.parent / ".staging"
            env = inherited_environment() | {"GOBIN": str(staging)}
            asked = [command, "install", "-ldflags", "-s -w", MODULE]
            done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS)
            assert done.returncode == 0, done.stderr[-2000:]
            (staging / PROGRAM).replace(built)
            staging.rmdir()
    return built if built.is_file() else None


@contextmanager
def s3_server(program: Path, root: Path, port: int) -> Iterator[S3Server]:
    """Start the server in a folder of its own, wait until it answers, make the bucket, stop it in the end."""
    home = Home.resolve({"FRAZIL_HOME": str(root)})
    objects, beside = root / "objects", root / "attributes"
    for folder in (objects, beside):
        folder.mkdir(parents=True)
    # Beside, since not every file system keeps extended attributes.
    command = [str(program), "--port", f"{LOOPBACK}:{port}", "--region", REGION, "--quiet"]
    command += ["posix", "--sidecar", str(beside), str(objects)]
    env = inherited_environment() | {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY, "NO_PROXY": "*"}
    processes = Processes(home.run, home.logs, home.root)
    try:
        processes.start(Spec("s3", tuple(command), env, f"http://{LOOPBACK}:{port}"))
        running = until(lambda: _answers(port) or processes.running("s3") is None, _START_SECONDS)
        assert running and _answers(port), processes.last_lines("s3")  # noqa: PT018
        server = S3Server(port)
        server.files().create_dir(BUCKET)
        yield server
    finally:
        processes.stop(("s3", 10.0))


def _answers(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status in {200, 403}
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
