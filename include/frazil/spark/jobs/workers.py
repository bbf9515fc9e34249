"""The process from which Spark forks its Python workers, with the modules imported that all of them need.

Otherwise each worker would import PyArrow, PyIceberg and Frazil by itself, 1.5 CPU seconds per core. It runs Spark's own daemon;
Spark starts it by `spark.python.daemon.module`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from frazil.gc_tuning import collect_rarely
from frazil.spark.jobs.imports import leave_out_pandas, prefer_unzipped

WORK: Final = "frazil.spark.jobs.stage"
"""Module of the workers' tasks."""

if __name__ == "__main__":
    collect_rarely()
    prefer_unzipped()
    leave_out_pandas()
    from pyspark.daemon import manager

    import_module(WORK)
    manager()  # type: ignore[no-untyped-call]
