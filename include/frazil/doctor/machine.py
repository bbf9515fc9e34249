"""Checks of this machine: Python, packages, Java, jars, disk."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from frazil.doctor.finding import Check, Finding
from frazil.extras import installed_version
from frazil.runtime.home import Home
from frazil.runtime.jars import first_mismatch, read_lock
from frazil.runtime.java import INSTALL_HINT, NEWEST, OLDEST, find_java

_PACKAGE: Final = "frazil"

_EXTRAS: Final = {
    "airflow": "apache-airflow",
    "avro": "fastavro",
    "glue": "boto3",
    "hive": "thrift",
    "json-schema": "jsonschema-rs",
    "postgres": "psycopg2-binary",
    "protobuf": "grpcio-tools",
    "spark": "pyspark",
    "sql": "duckdb",
}
"""Groups of packages that a machine has or has not, each with the one that tells: a worker needs no Airflow."""

_SETS: Final = ("broker", "spark")
"""Jars that are run here; those of tests and measurements are their own business."""

_GIB: Final = 2**30

_LITTLE_DISK: Final = 5 * _GIB
"""A day of logs, and a Spark that spills: with less, somebody should look."""

_NO_DISK: Final = _GIB // 2
"""Below it Spark's local files of one batch may not fit."""


def machine_checks(home: Home, *, needs_spark: bool) -> list[Check]:
    """The checks of this machine."""
    return [
        python_and_packages,
        lambda: [java_finding(needed=needs_spark)],
        lambda: jar_findings(home, needs_spark=needs_spark),
        lambda: [disk_finding(home.root, free_bytes(home.root))],
    ]


def python_and_packages() -> Iterator[Finding]:
    """Compare this process's Python and packages with the requirements in Frazil's package metadata."""
    try:
        distribution = metadata.metadata(_PACKAGE)
        requirements = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        step = "install Frazil into this environment: `make setup` in a checkout, or pip install the wheel"
        yield Finding("packages", "warning", "Frazil is on the path, and not installed", "its pins in metadata", step)
        return
    yield python_finding(platform.python_version(), distribution["Requires-Python"] or "")
    yield packages_finding(requirements, installed_version)


def python_finding(version: str, specifier: str) -> Finding:
    """Whether a version of Python fits `requires-python`."""
    if SpecifierSet(specifier).contains(version, prereleases=True):
        return Finding("python", "ok", version)
    step = "make the environment anew with such a Python: PYTHON=/path/to/python3 make setup"
    return Finding("python", "failed", version, specifier, step)


def packages_finding(requirements: Iterable[str], version_of: Callable[[str], str | None]) -> Finding:
    """Whether packages are installed in fitting versions. Those of an extra are checked only if its main package is installed.
    Requirements are written as in pyproject.toml.
    """
    parsed_requirements = [Requirement(text) for text in requirements]
    needed = [
        requirement
        for requirement in parsed_requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    for extra, telling in _EXTRAS.items():
        if version_of(telling) is not None:
            needed += [
                requirement
                for requirement in parsed_requirements
                if requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
            ]
    wrong = [
        text for requirement in needed if (text := _mismatch(requirement, version_of(requirement.name))) is not None
    ]
    if not wrong:
        return Finding("packages", "ok", f"{len(needed)} packages in versions that fit")
    step = "make the environment anew from the lock: `make setup` in a checkout, the image elsewhere"
    return Finding("packages", "failed", "; ".join(wrong), "the versions that pyproject.toml pins", step)


def _mismatch(requirement: Requirement, version: str | None) -> str | None:
    if version is None:
        return f"{requirement.name} is missing ({requirement.specifier or 'any version'})"
    return (
        None
        if requirement.specifier.contains(version, prereleases=True)
        else f"{requirement.name} is {version}, not {requirement.specifier}"
    )


def java_finding(*, needed: bool) -> Finding:
    """Whether there is a Java that Spark runs on."""
    java = find_java()
    if java is not None:
        return Finding("java", "ok", f"{java.major} in {java.home}")
    expected = f"Java {OLDEST} to {NEWEST}"
    return Finding("java", "failed" if needed else "warning", "no suitable one", expected, INSTALL_HINT)


def jar_findings(home: Home, *, needs_spark: bool) -> Iterator[Finding]:
    """Whether the jars that were fetched are those of the lock, byte by byte."""
    lock = read_lock()
    for name in _SETS:
        check, folder = f"jars {name}", home.jars / name
        is_needed = needs_spark and name == "spark"
        step = f"python -m frazil.runtime.jars fetch {name}"
        if not folder.is_dir():
            if is_needed:
                state = f"nothing in {folder}"
                yield Finding(check, "warning", state, f"{len(lock.artifacts(name))} jars, which a run fetches", step)
            continue
        wrong = first_mismatch(folder, lock.artifacts(name))
        if wrong is None:
            yield Finding(check, "ok", f"{len(lock.artifacts(name))} in {folder}")
        else:
            step = f"rm -r {folder} && {step}"
            yield Finding(check, "failed" if is_needed else "warning", wrong, "the files of jars.lock.json", step)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which may not exist yet."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def disk_finding(folder: Path, free: int) -> Finding:
    """Whether there is room for logs, plans and what Spark spills."""
    state = f"{free / _GIB:,.1f} GiB free for {folder}"
    if free >= _LITTLE_DISK:
        return Finding("disk", "ok", state)
    step = f"make room, or set FRAZIL_HOME to a larger disk; logs are in {folder / 'logs'}"
    return Finding("disk", "warning" if free >= _NO_DISK else "failed", state, f"{_LITTLE_DISK // _GIB} GiB", step)
