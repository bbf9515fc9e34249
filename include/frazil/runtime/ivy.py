"""Run Ivy, which ships inside PySpark, with its default resolver: no registry is named here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from frazil.error_codes import PROGRAM_MISSING
from frazil.runtime.java import ensure_java

PATTERN = "[conf]/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
"""Where retrieved files go below the target: the folders are the coordinates."""

_MAVEN = "http://ant.apache.org/ivy/maven"
"""Name space of Maven's classifier in Ivy's files; not an address that anybody calls."""

_SECONDS = 900
"""Bounds one Ivy run: about 165 MB; 40 s were measured on a good line, so this is a line of 0.15
MB/s."""


@dataclass(frozen=True, slots=True)
class Request:
    """One Ivy configuration: name, coordinates, whether runtime dependencies come along.

    A fourth part of the coordinates is a classifier, `organisation:module:revision:tests`, and what is no jar says so
    behind an `@`: `organisation:module:revision:all@tar.gz`.
    """

    name: str
    coordinates: tuple[str, ...]
    transitive: bool


def retrieve(requests: Sequence[Request], target: Path, cache: Path, log: Path) -> None:
    """Resolve and copy the requested artifacts to `target`, laid out by `PATTERN`.

    There is one request per set, each resolved on its own: versions of one set do not evict those of another. Ivy's own
    folder, the cache, is kept after a failure so that the next run continues.

    Raises:
        Retryable: Ivy failed; its last lines are quoted.
        Terminal: PySpark with its Ivy jar is not installed, or there is no fitting Java.
    """
    cache.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    module = cache / "ivy.xml"
    module.write_text(ivy_module(requests), encoding="utf-8")
    command = [
        str(ensure_java().command),
        "-jar",
        str(ivy_jar()),
        "-ivy",
        str(module),
        "-cache",
        str(cache),
    ]
    command += [
        "-confs",
        *(request.name for request in requests),
        "-retrieve",
        f"{target}/{PATTERN}",
    ]
    with log.open("w", encoding="utf-8") as output:
        _run(command, output.fileno(), log)


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
    """Return what is asked of each module, empty for its plain jar: Ivy asks once for a module, or drops a jar."""
    modules: dict[str, list[str]] = {}
    for coordinate in coordinates:
        organisation, name, revision, *classifier = coordinate.split(":")
        modules.setdefault(f"{organisation}:{name}:{revision}", []).extend(classifier or [""])
    return modules


def _dependency(module: str, classifiers: Sequence[str], request: Request) -> str:
    organisation, name, revision = module.split(":")
    # Ivy reads a POM as a module whose `default` is its jar plus the runtime closure and whose
    # `master` is the jar.
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


def _run(command: list[str], output: int, log: Path) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise PROGRAM_MISSING.retryable(
            f"Ivy took over {_SECONDS} s; its output is in {log}", next_step="run it again"
        ) from error
    if done.returncode != 0:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise PROGRAM_MISSING.retryable(
            f"Ivy ended with {done.returncode}:\n{last}",
            next_step="check the network, then run it again",
        )
