"""Where a measurement was taken, and of which versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from frazil.runtime.jars import SETS
from frazil.runtime.java import ensure_java

_MODULES: Final = {
    "Kafka broker": ("broker", "kafka_2.13"),
    "Kafka Connect": ("kafka-connect", "connect-runtime"),
    "Iceberg sink": ("kafka-connect", "iceberg-kafka-connect"),
    "Iceberg for Spark": ("spark", "iceberg-spark-runtime-4.1_2.13"),
    "Avro converter of Kafka Connect": ("kafka-connect-avro", "apicurio-registry-utils-converter"),
    "Apicurio Registry": ("registry", "apicurio-registry-app"),
    "Flink": ("flink", "flink-clients"),
    "Iceberg for Flink": ("flink", "iceberg-flink-runtime-2.0"),
}


def machine() -> dict[str, Any]:
    """Processor, cores, memory, kernel, and the load before anything was measured."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Of all that took part."""
    versions = {"Frazil": _frazil(), "Python": platform.python_version(), "Java": _java()}
    versions |= {name: _jar(*module) for name, module in _MODULES.items()}
    versions |= {
        name: version(package)
        for name, package in (("Spark", "pyspark"), ("PyIceberg", "pyiceberg"), ("PyArrow", "pyarrow"))
    }
    return versions


def _jar(jar_set: str, module: str) -> str:
    return next(
        coordinate.split(":")[2] for coordinate in SETS[jar_set].coordinates if coordinate.split(":")[1] == module
    )


def _java() -> str:
    release = ensure_java().home / "release"
    match = re.search(r'^JAVA_VERSION="(.*)"$', release.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else str(ensure_java().major)


def _frazil() -> str:
    """The version, and the commit where this is a clone."""
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)  # noqa: S607
    return " ".join(filter(None, [version("frazil"), described.stdout.strip()]))
