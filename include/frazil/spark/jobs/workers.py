"""The process that Spark forks its Python workers from: it has read what all of them need.

Without it each worker reads PyArrow, PyIceberg and Frazil by itself, one and a half CPU seconds a core. It is Spark's own, with
other modules loaded; Spark starts it by `spark.python.daemon.module`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from frazil.gc_tuning import collect_rarely
from frazil.spark.jobs.imports import leave_out_pandas, prefer_unzipped

WORK: Final = "frazil.spark.jobs.stage"
"""What workers are for."""

if __name__ == "__main__":
    collect_rarely()
    prefer_unzipped()
    leave_out_pandas()
    from pyspark.daemon import manager

    import_module(WORK)
    manager()  # type: ignore[no-untyped-call]
