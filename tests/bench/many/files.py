"""Hundreds of pipeline files, and what reading them costs: a check, each DAG file, the start of a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PIPELINE = """
name: {name}
owner: team-{team}
source: {{topics: [{topics}]}}
engine: inline
interval: 60s
destinations:
- table: shop.{name}
  columns:
    id: {{type: long, required: true}}
    placed_at: timestamptz
    customer: string
    country: string
    status: string
    items: int
    price: double
    discount: double
"""
"""Of a usual size: the engine is `inline`, since nothing is read."""

_PARSE = """
import json, sys, time
from pathlib import Path
import airflow.sdk
from airflow.dag_processing.dagbag import DagBag
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before, began = peak(), time.process_time()
bag = DagBag(sys.argv[1])
seconds = time.process_time() - began
assert not bag.import_errors, bag.import_errors
after = peak()
print(json.dumps([len(bag.dags), seconds, (after - before) / 1024, after / 1024]))
"""

_ONE_DAG = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""Tells a DAG file which DAG a task wants of it: https://airflow.apache.org/docs/apache-airflow/stable/howto/dynamic-dag-generation.html"""


@dataclass(frozen=True)
class Parsed:
    """What a DAG file took: DAGs, CPU seconds beside the import of Airflow, MiB that it added, and MiB in all."""

    dags: int
    seconds: float
    added: float
    memory: float


def names(count: int) -> list[str]:
    """Names of pipelines."""
    return [f"p{number:04}" for number in range(count)]


def topics_of(pipeline: str, each: int) -> list[str]:
    """Names of the topics that a pipeline reads."""
    return [f"{pipeline}.{number}" for number in range(each)]


def write(folder: Path, count: int, each: int) -> Mapping[str, str]:
    """Write pipeline files, each with so many topics; the variables that name the project."""
    (folder / "pipelines").mkdir(parents=True)
    for number, name in enumerate(names(count)):
        text = PIPELINE.format(name=name, team=number % 7, topics=", ".join(topics_of(name, each)))
        (folder / "pipelines" / f"{name}.yaml").write_text(text)
    return {"FRAZIL_HOME": str(folder / "home"), "FRAZIL_PIPELINES": str(folder / "pipelines")}


def check_seconds(env: Mapping[str, str]) -> float:
    """CPU seconds of `frazil validate`."""
    before = os.times()
    command = [sys.executable, "-m", "frazil.cli", "validate"]
    subprocess.run(command, env=os.environ | env, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def parsed(file: Path, env: Mapping[str, str], folder: Path, only: str | None = None) -> Parsed:
    """Parse a DAG file in a process of its own, for all DAGs or for a task of one."""
    # The time limit is one of the clock, and this machine may do other things, too.
    quiet = {
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    }
    task = {} if only is None else {_ONE_DAG: only}
    command = [sys.executable, "-c", _PARSE, str(file)]
    process = subprocess.run(command, env=os.environ | env | quiet | task, check=True, capture_output=True, text=True)
    return Parsed(*json.loads(process.stdout.splitlines()[-1]))


def report(folder: Path, count: int, each: int, dags: Path) -> Iterator[str]:
    """A line per measurement."""
    env = write(folder, count, each)
    yield f"frazil validate: {check_seconds(env):.2f} CPU s for {count} files"
    for file in sorted(dags.glob("*.py")):
        summary = parsed(file, env, folder)
        yield f"{file.name}: {summary.dags} DAGs, {summary.seconds:.2f} CPU s, +{summary.added:.0f} MiB to {summary.memory:.0f} MiB"
    one = parsed(dags / "ingest.py", env, folder, f"ingest__{names(count)[0]}")
    yield f"ingest.py for one task: {1_000 * one.seconds:.0f} CPU ms"
