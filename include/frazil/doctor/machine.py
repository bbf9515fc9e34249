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
"""Extra -> its main package. Only extras of which a machine has the main package are checked: a worker needs no Airflow."""

_SETS: Final = ("broker", "spark")
"""Sets of jars that are checked: not those of tests and measurements."""

_GIB: Final = 2**30

_LITTLE_DISK: Final = 5 * _GIB
"""Free bytes below which a finding warns: logs of a day and files that Spark spills may need as much."""

_NO_DISK: Final = _GIB // 2
"""Free bytes below which a check fails: Spark's local files of one batch may not fit."""


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
        observed = "Frazil is on Python's path, but not installed as a package"
        yield Finding("packages", "warning", observed, "its metadata, with the versions to compare", step)
        return
    yield python_finding(platform.python_version(), distribution["Requires-Python"] or "")
    yield packages_finding(requirements, installed_version)


def python_finding(version: str, specifier: str) -> Finding:
    """Whether a version of Python fits `requires-python`."""
    if SpecifierSet(specifier).contains(version, prereleases=True):
        return Finding("python", "ok", version)
    step = "create the environment again with such a Python: PYTHON=/path/to/python3 make setup"
    return Finding("python", "failed", version, specifier, step)


def packages_finding(requirements: Iterable[str], version_of: Callable[[str], str | None]) -> Finding:
    """Whether packages are installed in fitting versions. Those of an extra are checked only if its main package is installed.

    Requirements have the form of pyproject.toml.
    """
    parsed_requirements = [Requirement(text) for text in requirements]
    needed = [
        requirement
        for requirement in parsed_requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    for extra, main_package in _EXTRAS.items():
        if version_of(main_package) is not None:
            needed += [
                requirement
                for requirement in parsed_requirements
                if requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
            ]
    mismatches = [
        text for requirement in needed if (text := _mismatch(requirement, version_of(requirement.name))) is not None
    ]
    if not mismatches:
        return Finding("packages", "ok", f"{len(needed)} packages in versions that fit")
    step = "create the environment again from the lock: `make setup` in a checkout, the image elsewhere"
    return Finding("packages", "failed", "; ".join(mismatches), "the versions that pyproject.toml pins", step)


def _mismatch(requirement: Requirement, version: str | None) -> str | None:
    if version is None:
        return f"{requirement.name} is missing ({requirement.specifier or 'any version'})"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{requirement.name} is {version}, not {requirement.specifier}"


def java_finding(*, needed: bool) -> Finding:
    """Whether this machine has a Java that Spark runs on."""
    java = find_java()
    if java is not None:
        return Finding("java", "ok", f"{java.major} in {java.home}")
    expected = f"Java {OLDEST} to {NEWEST}"
    return Finding("java", "failed" if needed else "warning", "no suitable Java", expected, INSTALL_HINT)


def jar_findings(home: Home, *, needs_spark: bool) -> Iterator[Finding]:
    """Whether the jars of this machine are those of the lock, byte by byte."""
    lock = read_lock()
    for name in _SETS:
        check, folder = f"jars {name}", home.jars / name
        is_needed = needs_spark and name == "spark"
        step = f"python -m frazil.runtime.jars fetch {name}"
        if not folder.is_dir():
            if is_needed:
                expected = f"{len(lock.artifacts(name))} jars, which a run fetches"
                yield Finding(check, "warning", f"nothing in {folder}", expected, step)
            continue
        mismatch = first_mismatch(folder, lock.artifacts(name))
        if mismatch is None:
            yield Finding(check, "ok", f"{len(lock.artifacts(name))} in {folder}")
        else:
            step = f"rm -r {folder} && {step}"
            yield Finding(check, "failed" if is_needed else "warning", mismatch, "the files of jars.lock.json", step)


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which may not exist yet."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return shutil.disk_usage(existing).free


def disk_finding(folder: Path, free: int) -> Finding:
    """Whether the disk has room for logs, plans and the files that Spark spills."""
    observed = f"{free / _GIB:,.1f} GiB free for {folder}"
    if free >= _LITTLE_DISK:
        return Finding("disk", "ok", observed)
    step = f"free some space, or set FRAZIL_HOME to a larger disk; logs are in {folder / 'logs'}"
    return Finding("disk", "warning" if free >= _NO_DISK else "failed", observed, f"{_LITTLE_DISK // _GIB} GiB", step)
