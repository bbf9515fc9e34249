"""Facts about an executor, reported by a task on it: its Python, its packages, and what it can reach.

The functions here travel to the executor as they are (`pyspark.cloudpickle.register_pickle_by_value`): it may be Frazil itself
that is missing there. So nothing but the standard library is imported at the top.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module, metadata
from platform import python_version
from typing import Any, Final

PACKAGES: Final = ("pyspark", "pyarrow", "confluent-kafka", "pyiceberg", "frazil")
"""Whose versions are told."""

CLUSTER, STORAGE = "cluster", "storage"
"""What is reached for."""


def facts(work: str, clusters: Iterable[tuple[str, Any, Any]], storages: Iterable[tuple[str, Any, Any]]) -> str:
    """Return facts about this process as JSON."""
    report: dict[str, Any] = {
        "executor": f"{socket.gethostname()}:{os.getcwd()}",  # noqa: PTH109 - a text
        "time": time.time(),
        "python": python_version(),
        "versions": dict(_versions()),
        "lacks": _lacking(work),
        "sources": None,
        "problems": [],
    }
    if report["lacks"] is None:
        report["sources"] = import_module("frazil.spark.submit.configuration").digest()
        report["problems"] = [*_problems(CLUSTER, _reach, clusters), *_problems(STORAGE, _write, storages)]
    return json.dumps(report)


def _versions() -> Iterator[tuple[str, str | None]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:  # a zip or a folder on the path has no metadata
            yield name, None


def _lacking(work: str) -> str | None:
    try:
        import_module(work)
    except ImportError as error:  # a library of the system that is missing is one, too
        return f"{type(error).__name__}: {error}"
    return None


def _problems(
    what: str, ask: Callable[[str, Any, Any], None], targets: Iterable[tuple[str, Any, Any]]
) -> Iterator[tuple[str, str, str | None]]:
    from frazil.errors import FrazilError

    for name, first, second in targets:
        try:
            ask(name, first, second)
        except FrazilError as error:
            yield f"{what} {name}", error.message_with_code, error.next_step


def _reach(name: str, properties: Any, topics: Any) -> None:
    from frazil.kafka.admin.observe import observe
    from frazil.kafka.client.cluster import Cluster

    observe(Cluster(name, properties), topics, absent_ok=True)


def _write(_: str, location: Any, properties: Any) -> None:
    from frazil.iceberg.catalog.catalog import Folder

    Folder(location, properties).check_writable()
