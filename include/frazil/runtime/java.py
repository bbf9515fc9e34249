"""Find a Java runtime that Spark and the broker run on, or install one where that can be done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from frazil.error_codes import PROGRAM_MISSING
from frazil.runtime.home import inherited_environment

OLDEST, NEWEST = 17, 21
"""Spark 4.1 and Iceberg 1.12 need Java 17, are built and tested on 17 and 21, and fail on 25."""

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
"""Debian and Ubuntu packages in the order tried: no release offers both everywhere."""

INSTALL_HINT = f"install a Java {OLDEST} or {NEWEST} runtime and set JAVA_HOME, or put its java on PATH"

_VERSION_SECONDS = 30
"""Bounds `java -version` (0.1 s when idle); beyond it the runtime is broken."""

_APT_SECONDS = 600
"""Bounds each apt-get call; about 60 MB over a slow line."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its JAVA_HOME and its major version."""

    home: Path
    major: int

    @property
    def command(self) -> Path:
        """The `java` executable."""
        return self.home / "bin" / "java"


def ensure_java(report: Callable[[str], None] = lambda _: None) -> Java:
    """Return a fitting Java; as root on Debian or Ubuntu install one when there is none.

    Raises:
        Terminal: No fitting Java, and this is not the place to install one; the message says what
            to install.
        Retryable: The installation failed.
    """
    java = find_java()
    if java is not None:
        return java
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise PROGRAM_MISSING.terminal(f"no Java {OLDEST} to {NEWEST} found{_unfit_versions()}", next_step=INSTALL_HINT)
    report("java: installing with apt-get")
    _install()
    java = find_java()
    if java is None:
        raise PROGRAM_MISSING.terminal("apt-get installed Java, but none is found", next_step=INSTALL_HINT)
    return java


def find_java(environ: Mapping[str, str] | None = None, installed: Path = Path("/usr/lib/jvm")) -> Java | None:
    """Return the first fitting Java of JAVA_HOME, PATH and the system's folder, or None."""
    return next((java for java in _installed_javas(environ, installed) if OLDEST <= java.major <= NEWEST), None)


def parse_major(text: str) -> int | None:
    """Read the major version from a `release` file or the output of `java -version`, or None.

    `17.0.15` is 17, `21` is 21, and the scheme before Java 9, `1.8.0_402`, is 8.
    """
    match = re.search(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)


def _installed_javas(environ: Mapping[str, str] | None, installed: Path) -> Iterator[Java]:
    env = inherited_environment() if environ is None else environ
    named = [Path(env["JAVA_HOME"])] if env.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=env.get("PATH", ""))
    linked = [Path(on_path).resolve().parent.parent] if on_path else []
    yield from _inspected([*named, *linked])
    yield from sorted(_inspected(installed.glob("*")), key=lambda java: (java.major, str(java.home)))


def _inspected(homes: Iterable[Path]) -> Iterator[Java]:
    for home in homes:
        if (home / "bin" / "java").is_file() and (major := _major(home)) is not None:
            yield Java(home, major)


def _major(home: Path) -> int | None:
    """Ask the `release` file first: it costs no process."""
    release = home / "release"
    if release.is_file():
        return parse_major(release.read_text(encoding="utf-8", errors="replace"))
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None  # not a working java: the search goes on
    return parse_major(done.stderr + done.stdout)


def _unfit_versions() -> str:
    unfit = [f"{java.major} in {java.home}" for java in _installed_javas(None, Path("/usr/lib/jvm"))]
    return f" (only {', '.join(unfit)})" if unfit else ""


def _install() -> None:
    _apt("update")
    available = [name for name in PACKAGES if _is_in_apt(name)]
    if not available:
        raise PROGRAM_MISSING.terminal(f"apt offers none of {', '.join(PACKAGES)}", next_step=INSTALL_HINT)
    _apt("install", "-y", "--no-install-recommends", available[0])


def _is_in_apt(package: str) -> bool:
    command = ["apt-cache", "show", "--no-all-versions", package]
    return subprocess.run(command, capture_output=True, check=False, timeout=_APT_SECONDS).returncode == 0


def _apt(*arguments: str) -> None:
    env = {**inherited_environment(), "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *arguments]
    try:
        subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_APT_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:]
        raise PROGRAM_MISSING.retryable(
            f"`{' '.join(command)}` ended with {error.returncode}: {''.join(last)}",
            next_step=INSTALL_HINT,
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PROGRAM_MISSING.retryable(
            f"`{' '.join(command)}` took over {_APT_SECONDS} s", next_step=INSTALL_HINT
        ) from error
