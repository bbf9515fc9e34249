"""Facts about an executor, which a task on it reports: its Python, its packages, and the servers that it reaches.

The executor gets these functions as code (`pyspark.cloudpickle.register_pickle_by_value`), because Frazil may be missing there. So
only the standard library is imported at the top.
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
"""Packages whose versions are reported."""

CLUSTER, STORAGE = "cluster", "storage"
"""Kinds of servers that are tried."""


def facts(work: str, clusters: Iterable[tuple[str, Any, Any]], storages: Iterable[tuple[str, Any, Any]]) -> str:
    """Return facts about this process as JSON. `work` is the module that tasks of a batch need."""
    report: dict[str, Any] = {
        "executor": f"{socket.gethostname()}:{os.getcwd()}",  # noqa: PTH109 - a text
        "time": time.time(),
        "python": python_version(),
        "versions": dict(_versions()),
        "lacks": _import_problem(work),
        "sources": None,
        "problems": [],
    }
    if report["lacks"] is None:
        report["sources"] = import_module("frazil.spark.submit.configuration").digest()
        report["problems"] = [
            *_problems(CLUSTER, _reach_cluster, clusters),
            *_problems(STORAGE, _write_storage, storages),
        ]
    return json.dumps(report)


def _versions() -> Iterator[tuple[str, str | None]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:  # a zip or a folder on the path has no metadata
            yield name, None


def _import_problem(work: str) -> str | None:
    try:
        import_module(work)
    except ImportError as error:  # also for a missing library of the system
        return f"{type(error).__name__}: {error}"
    return None


def _problems(
    kind: str, attempt: Callable[[str, Any, Any], None], targets: Iterable[tuple[str, Any, Any]]
) -> Iterator[tuple[str, str, str | None]]:
    from frazil.errors import FrazilError

    for name, first, second in targets:
        try:
            attempt(name, first, second)
        except FrazilError as error:
            yield f"{kind} {name}", error.message_with_code, error.next_step


def _reach_cluster(name: str, properties: Any, topics: Any) -> None:
    from frazil.kafka.admin.observe import observe
    from frazil.kafka.client.cluster import Cluster

    observe(Cluster(name, properties), topics, absent_ok=True)


def _write_storage(_: str, location: Any, properties: Any) -> None:
    from frazil.iceberg.catalog.catalog import Folder

    Folder(location, properties).check_writable()
