"""Rows of staged files as data frames, the order of two changes of one row, and names and literals in SQL text, which are quoted
only here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType

from frazil.batch.changes import PLACE, Merge
from frazil.batch.facts import StagedFile
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.errors import translated
from frazil.iceberg.patches.files import opened_storage
from frazil.maintain.procedures import Argument, Before, ZOrder
from frazil.spark.submit.configuration import OBJECT_STORES, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# SQL text is only for operations without an API. All other code uses Spark's Column API, which does not parse names or values.

SQL_SETTINGS: Final[Mapping[str, str]] = {
    # Otherwise Spark replaces `${env:NAME}` in all text that it parses, even in quoted names, by a variable of its process.
    "spark.sql.variable.substitute": "false",
    # A backslash in a literal is an escape, as `quote_text` assumes.
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Settings by which SQL text is taken literally. Each session of Frazil has them, whatever its engine's `conf` says."""

_CASE: Final = "spark.sql.caseSensitive"
"""Iceberg and records distinguish `id` and `ID`; databases do not."""


def configure_quoting(spark: SparkSession) -> None:
    """Set a session's options so that quoted names and literals are taken literally."""
    for key, value in SQL_SETTINGS.items():
        spark.conf.set(key, value)
    spark.conf.set(_CASE, "false")  # for databases; an earlier job that wrote tables may have set it in this session


def prepare_writer(spark: SparkSession) -> None:
    """Set the options of a session that writes tables, so that the case of column names counts, too."""
    configure_quoting(spark)
    spark.conf.set(_CASE, "true")


def quote_name(*names: str) -> str:
    """A quoted name of one or several parts."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def quote_text(value: str) -> str:
    """A quoted text."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def literal(value: Argument) -> str:
    """An argument of a procedure as SQL."""
    match value:
        case bool():
            literal_text = str(value).lower()
        case int():
            literal_text = str(value)
        case datetime():
            literal_text = _instant(value)
        case str():
            literal_text = quote_text(value)
        case tuple():
            literal_text = f"array({', '.join(map(quote_text, value))})"
        case Before():
            literal_text = quote_text(f"{quote_name(*value.column)} < {_bound(value)}")
        case ZOrder():
            literal_text = quote_text(f"zorder({', '.join(quote_name(name) for name in value.columns)})")
        case _:
            literal_text = f"map({', '.join(quote_text(part) for pair in value.items() for part in pair)})"
    return literal_text


def _bound(value: Before) -> str:
    if value.type == "date":
        return f"DATE '{value.instant:%Y-%m-%d}'"
    if value.type == "timestamp":
        return f"TIMESTAMP_NTZ '{value.instant:%Y-%m-%d %H:%M:%S}'"
    return _instant(value.instant)


def _instant(value: datetime) -> str:
    return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC'"


# Each row has the topic, partition and offset of its last change. So a change that comes again, or late, is not taken for a new one.
# Without a column to order by, offsets decide within a partition, and Kafka's timestamps between two.


@dataclass(frozen=True)
class Target:
    """The branch to which changes are written.

    Attributes:
        path: Parts of the branch's name.
        types: Column -> type.
        partitioned_by: Columns with identity partitions.
        variants: Columns whose JSON texts become variants.
    """

    table: str
    path: tuple[str, ...]
    types: Mapping[str, DataType]
    partitioned_by: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    @property
    def branch(self) -> str:
        """The branch's name, quoted."""
        return quote_name(*self.path)

    @property
    def row(self) -> str:
        """Alias of a branch row in merge conditions."""
        return quote_name(self.path[-1])

    def literal(self, name: str, value: str | None) -> Column:
        """A text as value of a column."""
        return f.lit(value).cast(self.types[name])

    def value(self, name: str, staged: Column) -> Column:
        """A staged value in the column's type."""
        return f.parse_json(staged) if name in self.variants else staged.cast(self.types[name])


def row_column(row: str, name: str) -> Column:
    """A column of a row, which is an alias or a struct."""
    return f.col(f"{row}.{quote_name(name)}")


def change_columns(merge: Merge) -> tuple[str, ...]:
    """Columns with a record's coordinates, and those that order changes."""
    names = merge.columns
    order = () if merge.order_by is None else (merge.order_by,)
    return (names.topic, names.partition, names.offset, merge.timestamp, names.batch, *order)


def tuple_of(*columns: Column) -> Column:
    """A struct of values that are compared in order. Spark compares only structs whose fields have equal names."""
    return f.struct(*(value.alias(f"part{number}") for number, value in enumerate(columns)))


def place_of(merge: Merge, row: str) -> Column:
    """Topic and partition of a change."""
    return tuple_of(row_column(row, merge.columns.topic), row_column(row, merge.columns.partition))


def order_within(merge: Merge, row: str) -> Column:
    """Sort expressions that are larger for the later of two changes in one partition and batch."""
    names = (merge.order_by, merge.columns.offset, PLACE)
    return tuple_of(*(row_column(row, name) for name in names if name is not None))


def order_between(merge: Merge, row: str) -> Column:
    """Sort expressions that are larger for the later of two changes in different partitions. A null timestamp sorts first."""
    names = (merge.order_by or merge.timestamp, merge.columns.topic, merge.columns.partition)
    return tuple_of(*(row_column(row, name) for name in names))


def not_older(merge: Merge, row: str, change: str) -> Column:
    """Whether a change is later than a row's last one, or the same."""
    mine, its = row_column(change, merge.columns.offset), row_column(row, merge.columns.offset)
    if merge.order_by is None:
        same_place = place_of(merge, row) == place_of(merge, change)
        between = order_between(merge, change) >= order_between(merge, row)
        return lacks_offset(merge, row) | f.when(same_place, mine >= its).otherwise(between)
    tie = tuple_of(place_of(merge, change), mine) >= tuple_of(place_of(merge, row), its)
    mine, its = row_column(change, merge.order_by), row_column(row, merge.order_by)
    return (
        f.when(is_of_earlier_topic(merge, row) | its.isNull() | (mine > its), f.lit(True))  # noqa: FBT003
        .when(mine < its, f.lit(False))  # noqa: FBT003
        .when(lacks_offset(merge, row), f.lit(True))  # noqa: FBT003
        .otherwise(tie)
    )


def lacks_offset(merge: Merge, row: str) -> Column:
    """Whether a row's offset can't be compared: there is none, or its record is of an earlier incarnation of the topic, or lost."""
    names = merge.columns
    nulls = (row_column(row, name).isNull() for name in (names.topic, names.partition, names.offset))
    return (
        functools.reduce(lambda first, second: first | second, nulls)
        | is_of_earlier_topic(merge, row)
        | _is_lost(merge, row)
    )


def _is_lost(merge: Merge, row: str) -> Column:
    """Whether the record of a row's last change was lost later: now the log may have another record at its offset."""
    names, tails = merge.columns, dict[str, list[tuple[int, int]]]()
    for topic, lost in merge.lost_tails.items():
        for tail in lost:
            tails.setdefault(f"{tail.partition}/{topic}", []).append((tail.start, tail.n))
    if not tails:
        return f.lit(False)  # noqa: FBT003
    # One look-up in a map: a condition per partition could be more than Spark compiles.
    tails_by_partition = f.from_json(f.lit(json.dumps(tails)), "map<string, array<array<bigint>>>")
    its = tails_by_partition[f.concat_ws("/", row_column(row, names.partition), row_column(row, names.topic))]
    offset, batch = row_column(row, names.offset), f.coalesce(row_column(row, names.batch), f.lit(0))
    return f.coalesce(f.exists(its, lambda tail: (offset >= tail[0]) & (batch < tail[1])), f.lit(False))  # noqa: FBT003


def is_of_earlier_topic(merge: Merge, row: str) -> Column:
    """Whether a row's last change is of an earlier incarnation of its topic, and so older than all of the present one."""
    names, is_replaced = merge.columns, f.lit(False)  # noqa: FBT003
    for topic, n in sorted(merge.since.items()):
        is_earlier = f.coalesce(row_column(row, names.batch) < n, f.lit(True))  # noqa: FBT003
        is_replaced |= f.coalesce((row_column(row, names.topic) == topic) & is_earlier, f.lit(False))  # noqa: FBT003
    return is_replaced


def staged_rows(spark: SparkSession, lake: Lake, table: str, files: Sequence[StagedFile]) -> DataFrame:
    """Rows of the files, at least one, of one part of a batch.

    In object stores Python workers read them, by the table's file-io that wrote them: Spark would read them by Hadoop, which does
    not have its addresses and keys.

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
