"""The process that Spark forks its Python workers from: it has read what all of them need.

Without it each worker reads PyArrow, PyIceberg and Frazil by itself, one and a half CPU seconds a core. It is Spark's own, with
other modules loaded; Spark starts it by `spark.python.daemon.module`.
"""

from __future__ import annotations

from pyspark.daemon import manager

import frazil.spark.stage

WORK = frazil.spark.stage
"""What workers are for."""

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
