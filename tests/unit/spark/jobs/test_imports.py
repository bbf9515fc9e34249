"""What the processes that Spark starts load, and from where."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from frazil.runtime.home import project_root
from frazil.spark.jobs.imports import prefer_unzipped

SITE = "/opt/venv/lib/python3.11/site-packages"
ZIPS = [f"{SITE}/pyspark/python/lib/pyspark.zip", f"{SITE}/pyspark/python/lib/py4j-0.10.9.9-src.zip"]


def test_modules_are_loaded_from_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zips inside an installation that is on the path itself are passed over; everything else stays, in order."""
    monkeypatch.setattr(sys, "path", ["", *ZIPS, "/srv/include", SITE, "/srv/job.zip"])

    prefer_unzipped()

    assert sys.path == ["", "/srv/include", SITE, "/srv/job.zip"]


def test_pyspark_of_a_cluster_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that was not installed by pip has its pyspark in the zip alone, and an installed one may be of another version."""
    path = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip", SITE]
    monkeypatch.setattr(sys, "path", list(path))

    prefer_unzipped()

    assert sys.path == path


_PROGRAM = """
import sys
from frazil.spark.jobs.imports import leave_out_pandas
leave_out_pandas()
import pyarrow.dataset
import frazil.spark.jobs.stage, pyspark.worker
print(*({name.partition(".")[0] for name in sys.modules} & {"pandas", "requests", "sqlalchemy", "typer"}))
"""


def test_a_worker_loads_no_client_of_catalogs_and_no_pandas() -> None:
    """PyArrow takes pandas for not installed; a version that insists on it would break every command and worker, so it shows here."""
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}

    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n"


_DRIVER = """
import sys
from frazil.spark.jobs.imports import leave_out_pandas
leave_out_pandas()
import frazil.run.batches.plan, frazil.run.batches.session, frazil.spark.submit.submission
from frazil.cli.operate.warm_driver import _import_client
before = set(sys.modules)
_import_client()
roots = [{name.partition(".")[0] for name in names} for names in (before, set(sys.modules) - before)]
print(*(roots[0] & {"pyspark", "grpc", "pandas"}), *(roots[1] & {"confluent_kafka", "pyarrow", "pydantic", "pyiceberg", "yaml"}))
print(*(root for root in ("grpc", "pandas", "pyspark") if root in roots[1]))
"""


def test_a_forked_driver_imports_the_client_of_spark_alone() -> None:
    """What the command imports is there; the command itself needs nothing of Spark's."""
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}

    done = subprocess.run([sys.executable, "-c", _DRIVER], env=env, capture_output=True, text=True, check=False)

    assert done.stdout == "\ngrpc pandas pyspark\n", done.stderr
