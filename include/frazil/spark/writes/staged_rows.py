"""Rows of staged files as Spark sees them: read by Spark itself, or, in an object store, by Python workers as they were written.

Spark reads plain files by Hadoop, which knows none of the addresses and keys that Iceberg's file-io has; the file-io that wrote
them is in the workers anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from frazil.batch.facts import StagedFile
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.errors import translated
from frazil.iceberg.patches.storage import opened_storage
from frazil.spark.submit.configuration import OBJECT_STORES, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def staged_rows(spark: SparkSession, lake: Lake, table: str, files: Sequence[StagedFile]) -> DataFrame:
    """Rows of the files of one part of a batch, one at least.

    They are read through the storage of the catalog's table.

    Raises:
        Retryable: The storage can't be read now.
        Terminal: A file is gone.
    """
    paths = [file.path for file in files]
    if not any(scheme_of(path) in OBJECT_STORES for path in paths):
        return spark.read.parquet(*paths)
    io = dict(staging_table(table, lake.load_table(table)).io)
    with (
        translated(f"reading staged rows of table {table}"),
        opened_storage(io, paths[0]).new_input(paths[0]).open() as file,
    ):
        shape = from_arrow_schema(pq.read_schema(file), prefer_timestamp_ntz=True)
    columns = to_arrow_schema(shape)

    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = opened_storage(io, paths[0])
        for number in (number for batch_numbers in numbers for number in batch_numbers.column(0).to_pylist()):
            with storage.new_input(paths[number]).open() as file:
                for batch in pq.ParquetFile(file).iter_batches():
                    yield batch.cast(columns)

    return spark.range(0, len(paths), 1, len(paths)).mapInArrow(rows, shape)
