"""A small job that loads the classes of all jobs, for the archive of `frazil.spark.submit.class_archive`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession


def main() -> None:
    """Run a Python worker, a join with an exchange, and statements, as staging, merges and maintenance do."""
    spark = SparkSession.builder.getOrCreate()
    try:
        spark.range(1_000).mapInArrow(_count_rows, "n long").collect()
        spark.range(1_000).createOrReplaceTempView("numbers")
        spark.sql(
            "SELECT a.id % 7 AS k, count(*) AS n, max(struct(b.id, 'x')) AS last FROM numbers a JOIN numbers b ON a.id = b.id"
            " WHERE a.id > 3 GROUP BY 1 ORDER BY 2"
        ).collect()
    finally:
        spark.stop()


def _count_rows(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})


if __name__ == "__main__":
    main()
