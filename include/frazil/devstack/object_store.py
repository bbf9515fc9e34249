"""An S3 server for a folder of the home: Versity's gateway, one program that Go builds, loopback only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frazil.error_codes import PROGRAM_MISSING, STACK_FAILED
from frazil.runtime.home import (
    LOOPBACK,
    PORT_VARIABLES,
    Home,
    answers,
    exclusive,
    inherited_environment,
    private_folder,
    require_free,
)
from frazil.runtime.process import Processes, Spec

NAME: Final = "s3"
BUCKET: Final = "lake"
REGION: Final = "us-east-1"
GRACE_SECONDS: Final = 15.0

PROGRAM: Final = "versitygw"
VERSION: Final = "v1.8.0"
_MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
"""Go checks what it downloads against its public checksum database: the version pins the content."""

_GO: Final = Path("/usr/local/go/bin/go")
"""Where Go's own archive installs it, which is often not on PATH."""

_GO_NEEDED: Final = (1, 26)
"""Version of Go that builds the server."""

_GO_DOWNLOADS: Final = (1, 21)
"""From this version on, Go downloads a newer Go if a program needs it (https://go.dev/doc/toolchain)."""

_ASK_SECONDS: Final = 60.0
_BUILD_SECONDS: Final = 1200
"""Bounds download and build: 2 minutes on two cores, once."""

_START_SECONDS: Final = 60.0
"""Bounds the time until the server answers: 0.2 s on an idle machine."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The one login of the server."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)

    def properties(self, home: Home) -> dict[str, str]:
        """Properties for PyIceberg and Iceberg's S3FileIO, with the keys."""
        return {
            "s3.endpoint": url(home),
            "s3.path-style-access": "true",
            "s3.region": REGION,
            "client.region": REGION,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
        }


def start(home: Home, processes: Processes, report: Callable[[str], None], keys: Keys) -> None:
    """Start the server unless it runs, wait until it answers, and create the bucket. Objects are in `s3` below the home.

    Raises:
        Terminal: The program does not exist and there is no Go to build it; or the port is taken.
        Retryable: The build failed, or the server ended or did not answer in time; its log is quoted.
    """
    if processes.running(NAME) is None:
        built = program(home, report)
        processes.stop((NAME, GRACE_SECONDS))
        require_free(home.ports.s3, PORT_VARIABLES["s3"], "the S3 server")
        objects, attributes = (private_folder(home.root / "s3" / name) for name in ("objects", "attributes"))
        listening = ("--port", f"{LOOPBACK}:{home.ports.s3}", "--region", REGION, "--quiet")
        # Attributes are files of their own, because not every file system has extended attributes.
        command = (str(built), *listening, "posix", "--sidecar", str(attributes), str(objects))
        processes.start(Spec(NAME, command, _environment(keys), url(home), GRACE_SECONDS))
    processes.wait_ready(NAME, f"s3: the server at {url(home)}", lambda: answers(home.ports.s3), _START_SECONDS)
    _ensure_bucket(home, keys)


def stop(processes: Processes) -> None:
    """Stop the server if it runs."""
    processes.stop((NAME, GRACE_SECONDS))


def url(home: Home) -> str:
    """The server's address."""
    return f"http://{LOOPBACK}:{home.ports.s3}"


def program(home: Home, report: Callable[[str], None] = lambda _: None) -> Path:
    """The server's program in the pinned version, which is built once into the folder `tools` of the jars.

    Raises:
        Terminal: It does not exist, and there is no Go that builds it.
        Retryable: Download or build failed; the end of Go's output is quoted.
    """
    built = _program_file(home)
    if built.is_file():
        return built
    require_program(home)
    with exclusive(home.jars / ".tools.lock", lambda: report("s3: waiting for another build")):
        if not built.is_file():
            report(f"s3: building {PROGRAM} {VERSION}")
            _build(built)
    return built


def go() -> str | None:
    """The command of a Go that can build the server, maybe after it downloads a newer Go; None if there is none."""
    command = shutil.which("go") or (str(_GO) if _GO.is_file() else None)
    if command is None:
        return None
    command_line = [command, "env", "GOVERSION", "GOTOOLCHAIN"]
    output = subprocess.run(command_line, capture_output=True, text=True, check=False, timeout=_ASK_SECONDS).stdout
    return command if is_fit(*[*output.splitlines(), "", ""][:2]) else None


def is_fit(version: str, toolchain: str) -> bool:
    """Whether a Go can build the server, by its `GOVERSION`, such as ``go1.26.8``, and its `GOTOOLCHAIN`: ``local`` downloads no Go."""
    match = re.match(r"go(\d+)\.(\d+)", version)
    oldest = _GO_NEEDED if toolchain == "local" else _GO_DOWNLOADS
    return match is not None and (int(match[1]), int(match[2])) >= oldest


def require_program(home: Home) -> None:
    """Check that the server's program is built, or can be.

    Raises:
        Terminal: There is neither the program nor a Go that can build it.
    """
    built = _program_file(home)
    if not built.is_file() and go() is None:
        raise PROGRAM_MISSING.terminal(
            f"the S3 server, {PROGRAM} {VERSION}, must be built with Go, and this machine has no suitable Go",
            next_step=f"install Go 1.26 or newer (https://go.dev/dl), or put the program, built elsewhere, at {built}",
        )


def _program_file(home: Home) -> Path:
    return home.jars / "tools" / f"{PROGRAM}-{VERSION}"


def _build(built: Path) -> None:
    command = go() or "go"  # `require_program` has checked that there is one
    staging = built.parent / ".staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    env = inherited_environment() | {"GOBIN": str(staging)}
    command_line = [command, "install", "-ldflags", "-s -w", _MODULE]
    try:
        done = subprocess.run(
            command_line, env=env, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise PROGRAM_MISSING.retryable(
            f"s3: `go install {_MODULE}` took over {_BUILD_SECONDS} s", next_step="run it again"
        ) from error
    if done.returncode != 0:
        last = "\n".join(done.stderr.splitlines()[-10:])
        raise PROGRAM_MISSING.retryable(f"s3: `go install {_MODULE}` ended with {done.returncode}:\n{last}")
    (staging / PROGRAM).replace(built)
    staging.rmdir()


def _environment(keys: Keys) -> Mapping[str, str]:
    # Keys are not in the arguments, which everybody on the machine can read. Variables VGW_… are meant for another gateway.
    inherited = {key: setting for key, setting in inherited_environment().items() if not key.startswith("VGW_")}
    return inherited | {
        "ROOT_ACCESS_KEY": keys.access_key,
        "ROOT_SECRET_KEY": keys.secret_key,
        "GOMEMLIMIT": "256MiB",
        "NO_PROXY": ",".join(filter(None, [LOOPBACK, os.environ.get("NO_PROXY", "")])),
    }


def _ensure_bucket(home: Home, keys: Keys) -> None:
    from pyarrow.fs import S3FileSystem

    files = S3FileSystem(
        access_key=keys.access_key,
        secret_key=keys.secret_key,
        endpoint_override=f"{LOOPBACK}:{home.ports.s3}",
        scheme="http",
        region=REGION,
        allow_bucket_creation=True,
    )
    try:
        files.create_dir(BUCKET)
    except OSError as error:
        raise STACK_FAILED.retryable(f"s3: bucket {BUCKET} can't be created: {error}") from error
