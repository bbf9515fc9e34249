"""Find a Java runtime for Spark and the broker, or install one where possible; and run Ivy with it, which PySpark brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from frazil.error_codes import PROGRAM_MISSING
from frazil.runtime.home import inherited_environment

OLDEST, NEWEST = 17, 21
"""Spark 4.1 and Iceberg 1.12 need Java 17, are built and tested on 17 and 21, and fail on 25."""

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
"""Packages of Debian and Ubuntu, in the order of preference: no release offers both."""

INSTALL_HINT = f"install a Java {OLDEST} or {NEWEST} runtime and set JAVA_HOME, or put its java on PATH"

_VERSION_SECONDS = 30
"""Bounds `java -version`, which takes 0.1 s on an idle machine; a slower runtime counts as broken."""

_APT_SECONDS = 600
"""Bounds each call of apt-get, which fetches about 60 MB."""


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
    """Return a suitable Java. Without one, install it, as root on Debian or Ubuntu.

    Raises:
        Terminal: There is no suitable Java, and none can be installed here.
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
    """Return the first suitable Java of JAVA_HOME, PATH and the system's folder; None if there is none."""
    return next((java for java in _installed_javas(environ, installed) if OLDEST <= java.major <= NEWEST), None)


def parse_major(text: str) -> int | None:
    """Read the major version from a `release` file or the output of `java -version`; None if there is none.

    `17.0.15` is 17, `21` is 21, and `1.8.0_402`, in the scheme before Java 9, is 8.
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
    yield from _inspect([*named, *linked])
    yield from sorted(_inspect(installed.glob("*")), key=lambda java: (java.major, str(java.home)))


def _inspect(homes: Iterable[Path]) -> Iterator[Java]:
    for home in homes:
        if (home / "bin" / "java").is_file() and (major := _major(home)) is not None:
            yield Java(home, major)


def _major(home: Path) -> int | None:
    """The major version of a runtime, by its `release` file if it has one, which needs no process."""
    release = home / "release"
    if release.is_file():
        return parse_major(release.read_text(encoding="utf-8", errors="replace"))
    command = [str(home / "bin" / "java"), "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None  # a broken runtime: the search goes on
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
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=_APT_SECONDS
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


PATTERN = "[conf]/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
"""Paths of retrieved files below the target folder: its subfolders are the coordinates."""

_MAVEN = "http://ant.apache.org/ivy/maven"
"""XML name space of Maven's classifier in Ivy's files, which is no address to fetch."""

_IVY_SECONDS = 900
"""Bounds one run of Ivy, which fetches about 165 MB: 40 s on a good line, and this long at 0.15 MB/s."""


@dataclass(frozen=True, slots=True)
class Request:
    """One Ivy configuration: its name, its coordinates, and whether they bring their runtime dependencies.

    Coordinates are `organisation:module:revision`. A fourth part is a classifier, as in `…:tests`; a file that is no jar has
    its extension behind `@`, as in `…:all@tar.gz`.
    """

    name: str
    coordinates: tuple[str, ...]
    transitive: bool


def retrieve(requests: Sequence[Request], target: Path, cache: Path, log: Path) -> None:
    """Resolve the requested artifacts and copy them to `target`, laid out by `PATTERN`.

    Each request is resolved on its own, so that versions of one set do not evict those of another. Ivy's cache is kept after a
    failure, so that the next run continues.

    Raises:
        Retryable: Ivy failed; its last lines are quoted.
        Terminal: PySpark with its Ivy jar is not installed, or there is no suitable Java.
    """
    cache.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    module = cache / "ivy.xml"
    module.write_text(ivy_module(requests), encoding="utf-8")
    command = [str(ensure_java().command), "-jar", str(ivy_jar()), "-ivy", str(module), "-cache", str(cache)]
    command += ["-confs", *(request.name for request in requests), "-retrieve", f"{target}/{PATTERN}"]
    with log.open("w", encoding="utf-8") as output:
        _run_ivy(command, output.fileno(), log)


def ivy_module(requests: Sequence[Request]) -> str:
    """Return the ivy.xml that asks for these artifacts, one configuration per request."""
    confs = "".join(f"<conf name={quoteattr(request.name)}/>" for request in requests)
    dependencies = "".join(
        _dependency(module, classifiers, request)
        for request in requests
        for module, classifiers in _modules(request.coordinates).items()
    )
    return (
        f'<ivy-module version="2.0" xmlns:m="{_MAVEN}"><info organisation="frazil" module="local"/>'
        f"<configurations>{confs}</configurations>"
        f"<dependencies>{dependencies}</dependencies></ivy-module>\n"
    )


def ivy_jar() -> Path:
    """Return PySpark's Ivy jar, without importing PySpark.

    Raises:
        Terminal: It does not exist.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PROGRAM_MISSING.terminal(
            "PySpark is not installed: Spark's jobs need it, and its Ivy fetches the jars",
            next_step="pip install 'frazil[spark]'",
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise PROGRAM_MISSING.terminal(
            f"no ivy-*.jar in {Path(spec.origin).parent / 'jars'}",
            next_step="install the full pyspark distribution: pyspark-client has no jars",
        )
    return jars[-1]


def _modules(coordinates: Iterable[str]) -> dict[str, list[str]]:
    """Return module -> classifiers, an empty one for the plain jar: of two requests for one module Ivy drops a jar."""
    modules: dict[str, list[str]] = {}
    for coordinate in coordinates:
        organisation, name, revision, *classifier = coordinate.split(":")
        modules.setdefault(f"{organisation}:{name}:{revision}", []).extend(classifier or [""])
    return modules


def _dependency(module: str, classifiers: Sequence[str], request: Request) -> str:
    organisation, name, revision = module.split(":")
    # Of a POM's module, Ivy's `default` is the jar with all runtime dependencies, and `master` the jar alone.
    conf = f"{request.name}->{'default' if request.transitive else 'master'}"
    names = f"org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    if not any(classifiers):
        return f"<dependency {names} conf={quoteattr(conf)}/>"
    jars = "".join(_artifact(name, classifier) for classifier in classifiers)
    return f"<dependency {names} conf={quoteattr(conf)}>{jars}</dependency>"


def _artifact(name: str, classifier_and_extension: str) -> str:
    classifier, _, extension = classifier_and_extension.partition("@")
    ext = quoteattr(extension or "jar")
    kind = f" m:classifier={quoteattr(classifier)}" if classifier else ""
    return f"<artifact name={quoteattr(name)} type={ext} ext={ext}{kind}/>"


def _run_ivy(command: list[str], output: int, log: Path) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_IVY_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise PROGRAM_MISSING.retryable(
            f"Ivy took over {_IVY_SECONDS} s; its output is in {log}", next_step="run it again"
        ) from error
    if done.returncode != 0:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise PROGRAM_MISSING.retryable(
            f"Ivy ended with {done.returncode}:\n{last}",
            next_step="check the network, then run it again",
        )
