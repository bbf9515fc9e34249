"""Data files that nobody can see yet, and the private names of PyIceberg 0.12 that writing and committing rest on."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib.metadata import version
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.table import Transaction
from pyiceberg.table.update.snapshot import _MergeAppendFiles

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table, delete_files, metadata_path, read_text, staging_table, write_text
from frazil.iceberg.commit.commit import Change, commit, fit_of
from frazil.iceberg.files.data_files import DataFileWriter, StagingTable, data_file, staged_file, write_rows
from frazil.iceberg.schema.schema import arrow_columns, declared_schema, declared_spec
from tests.unit.iceberg.orders import TABLE, commit_batches, destination, foreign_append

FIELDS = [field.name for field in DATA_FILE_TYPE[2].fields]

VALUES: dict[str, Any] = {
    "boolean": True,
    "int": -5,
    "long": 2**40,
    "float": 1.5,
    "double": -0.0,
    "date": date(1969, 12, 31),
    "time": time(1, 2, 3, 4),
    "timestamp": datetime(2024, 2, 29, 2, 3, 4, 5),
    "timestamptz": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "string": "a/b=c ü%\x00",
    "uuid": UUID(int=5),
    "fixed[4]": b"ab\x00\xff",
    "binary": b"\x00\xff",
    "decimal(10,2)": Decimal("-1.10"),
    "decimal(38,0)": Decimal(-(10**37)),
}
"""One awkward value per type: before 1970, negative, or with characters that paths must escape."""

UNWRITABLE = {("uuid", "v"), ("float", "v"), ("double", "v"), ("time", "bucket(4, v)"), ("binary", "truncate(2, v)")}

PARTITIONS = [
    *((type_name, "v") for type_name in VALUES),
    *(
        (type_name, f"{unit}(v)")
        for type_name in ("date", "timestamp", "timestamptz")
        for unit in ("year", "month", "day")
    ),
    *((type_name, "hour(v)") for type_name in ("timestamp", "timestamptz")),
    *((type_name, "bucket(4, v)") for type_name in VALUES if type_name not in ("boolean", "float", "double")),
    *((type_name, "truncate(2, v)") for type_name in ("int", "long", "string", "binary", "decimal(10,2)")),
]


def table_of(lake: Lake, type_name: str, partition: str) -> tuple[Table, pa.Table]:
    """A table with a column `v` of that type, and two rows for it: a value and null."""
    declared = destination(columns={"v": type_name, "n": "int"}, partition_by=[partition])
    schema = declared_schema(declared)
    table = lake.create_table(TABLE, schema, declared_spec(declared, schema), {})
    columns = arrow_columns(table, declared)
    value = VALUES[type_name].bytes if type_name == "uuid" else VALUES[type_name]
    values = (
        pa.array([value, None], pa.binary(16)).cast(pa.uuid())
        if type_name == "uuid"
        else pa.array([value, None], columns.field("v").type)
    )
    return table, pa.table([values, pa.array([1, 2], pa.int32())], schema=columns)


@pytest.mark.parametrize(("type_name", "partition"), [case for case in PARTITIONS if case not in UNWRITABLE])
def test_partition_value_survives_the_way_to_the_commit(lake: Lake, type_name: str, partition: str) -> None:
    """Files of every partition type land as PyIceberg made them, and filters find their rows."""
    table, data = table_of(lake, type_name, partition)
    files = write_rows(staging_table(TABLE, table), data)

    commit(lake, Change(TABLE, files, {}, (), fit_of(table.metadata), lambda _: None, lambda _: None, "follow"))

    table = lake.load_table(TABLE)
    assert len(files) == 2
    if type_name == "uuid":  # PyArrow can't filter by UUIDs
        assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2]
        return
    assert table.scan(row_filter=IsNull("v")).to_arrow()["n"].to_pylist() == [2]
    assert table.scan(row_filter=EqualTo("v", VALUES[type_name])).to_arrow().to_pylist() == [
        {"v": VALUES[type_name], "n": 1}
    ]


@pytest.mark.parametrize(("type_name", "partition"), sorted(UNWRITABLE))
def test_partition_that_cannot_be_written_is_refused_at_creation(lake: Lake, type_name: str, partition: str) -> None:
    """What PyIceberg can't write is refused when the table is made, before anything is read."""
    with pytest.raises(Terminal, match="can't partition a column of type"):
        table_of(lake, type_name, partition)


@pytest.mark.parametrize(
    ("type_name", "partition"), [("string", "v"), ("timestamptz", "day(v)"), ("decimal(10,2)", "bucket(4, v)")]
)
def test_data_file_entry_equals_the_one_that_pyiceberg_made(lake: Lake, type_name: str, partition: str) -> None:
    """Every field of the entry survives the way through text: counts, bounds to the byte, partition, offsets."""
    table, data = table_of(lake, type_name, partition)
    data_files = list(_dataframe_to_data_files(table.metadata, data, table.io))

    for file in data_files:
        staged = staged_file(file, table.metadata)
        back = data_file(staged, table.metadata)

        assert json.loads(json.dumps(staged.facts)) == staged.facts
        assert (staged.path, staged.rows, staged.size) == (file.file_path, file.record_count, file.file_size_in_bytes)
        assert {name: getattr(back, name) for name in FIELDS} == {name: getattr(file, name) for name in FIELDS}
        assert back.spec_id == table.spec().spec_id
        assert all(isinstance(bound, bytes) for bound in back.lower_bounds.values())
        assert staged_file(back, table.metadata) == staged


def test_private_names_of_pyiceberg_are_unchanged() -> None:
    """Private names of PyIceberg 0.12, by name and parameters: a new version is looked at before it is pinned."""
    assert version("pyiceberg").startswith("0.12.")
    assert list(inspect.signature(_dataframe_to_data_files).parameters) == [
        "table_metadata",
        "df",
        "io",
        "write_uuid",
        "counter",
    ]
    assert list(inspect.signature(_MergeAppendFiles.__init__).parameters) == [
        "self",
        "operation",
        "transaction",
        "io",
        "branch",
        "commit_uuid",
        "snapshot_properties",
    ]
    for hook in ("_commit", "_validate_concurrency", "_cleanup_uncommitted", "_clean_all_uncommitted", "commit"):
        assert list(inspect.signature(getattr(_MergeAppendFiles, hook)).parameters) == ["self"]
    assert list(inspect.signature(_MergeAppendFiles.append_data_file).parameters) == ["self", "data_file"]
    assert isinstance(_MergeAppendFiles.snapshot_id, property)
    assert "_table" in Transaction.__annotations__
    assert list(inspect.signature(DataFile.from_args).parameters) == ["_table_format_version", "arguments"]


def test_every_field_of_a_data_file_is_carried() -> None:
    """The layout of a v2 entry: a field that a new version adds must be carried too."""
    assert FIELDS == [
        "content",
        "file_path",
        "file_format",
        "partition",
        "record_count",
        "file_size_in_bytes",
        "column_sizes",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "key_metadata",
        "split_offsets",
        "equality_ids",
        "sort_order_id",
    ]


def test_hooks_of_pyiceberg_are_called(orders: Lake) -> None:
    """The hooks are called where we rely on them: the check again before the rebuild, and nothing is deleted."""
    source = inspect.getsource(Transaction._rebuild_snapshot_updates)

    assert source.index("_validate_concurrency()") < source.index("_commit()")
    assert "_clean_all_uncommitted" in inspect.getsource(Transaction.commit_transaction)


def test_rows_held_by_a_writer_are_bounded(orders: Lake) -> None:
    """A writer writes a file whenever it holds enough, loses no row, and makes no file of nothing."""
    target = staging_table(TABLE, orders.load_table(TABLE))
    batches = [pa.record_batch({"id": pa.array([n], pa.int32()), "day": pa.array(["mon"])}) for n in range(5)]
    writer = DataFileWriter(target, flush_bytes=2 * batches[0].nbytes)

    writer.write(batches[0].slice(0, 0))
    for each in batches:
        writer.write(each)
    files = writer.close()

    assert [file.rows for file in files] == [2, 2, 1]
    assert len({file.path for file in files}) == 3
    assert DataFileWriter(target).close() == ()
    assert writer.close() == files


def test_two_tasks_write_different_paths(orders: Lake) -> None:
    """Writers never share a file name, within a batch and over retries."""
    target = staging_table(TABLE, orders.load_table(TABLE))
    data = pa.table({"id": pa.array([1], pa.int32()), "day": ["mon"]})

    paths = [file.path for _ in range(3) for file in write_rows(target, data)]

    assert len(set(paths)) == 3


def test_staged_files_are_invisible(orders: Lake) -> None:
    """Staging changes nothing that a reader sees."""
    before = orders.load_table(TABLE).metadata_location
    write_rows(
        staging_table(TABLE, orders.load_table(TABLE)), pa.table({"id": pa.array([1], pa.int32()), "day": ["mon"]})
    )

    assert orders.load_table(TABLE).metadata_location == before


def test_null_in_a_required_column_is_refused(lake: Lake) -> None:
    """A null for a required column is refused when it is written, with the table's name."""
    declared = destination(columns={"id": {"type": "int", "required": True}}, partition_by=[])
    schema = declared_schema(declared)
    table = lake.create_table(TABLE, schema, declared_spec(declared, schema), {})

    with pytest.raises(Terminal, match=f"writing data files of table {TABLE}"):
        write_rows(staging_table(TABLE, table), pa.table({"id": pa.array([None], pa.int32())}))


def test_failing_storage_is_a_retryable_error(orders: Lake, tmp_path: Any) -> None:
    """A folder that can't be made is the storage's trouble: try again later."""
    data = tmp_path / "warehouse/shop/orders/data"
    data.write_text("a file where the folder should be")

    with pytest.raises(Retryable, match=f"writing data files of table {TABLE}"):
        write_rows(
            staging_table(TABLE, orders.load_table(TABLE)), pa.table({"id": pa.array([1], pa.int32()), "day": ["mon"]})
        )


def test_credentials_are_not_in_a_repr() -> None:
    """A staging table travels to executors and turns up in their logs: its storage properties must not."""
    target = StagingTable("t", "{}", {"s3.secret-access-key": "hunter2"})

    assert "hunter2" not in f"{target} {target!r}"
    assert "hunter2" not in f"{Lake('lake', 'postgresql://me:hunter2@db', 's3://b', {'s3.secret': 'hunter2'})!r}"


def test_manifest_file_is_read_as_written(orders: Lake) -> None:
    """Small files beside the table's metadata come back as they were written, and can be deleted."""
    table = orders.load_table(TABLE)
    path = metadata_path(table, "frazil-orders-1-x.json")
    write_text(table, path, "ü" * 1000)
    write_text(table, path, "once more: ü")

    assert path.startswith(f"{table.location()}/metadata/")
    assert read_text(table, path) == "once more: ü"

    delete_files(table, [path])
    with pytest.raises(Terminal, match="a file that is still needed is missing"):
        read_text(table, path)


def test_deletion_of_staged_files_keeps_all_others(orders: Lake) -> None:
    """Only the files that are named go."""
    commit_batches(orders, 1)
    foreign_append(orders, 100)()
    table = orders.load_table(TABLE)
    staged = write_rows(staging_table(TABLE, table), pa.table({"id": pa.array([1], pa.int32()), "day": ["mon"]}))

    delete_files(table, [file.path for file in staged])

    assert table.scan().to_arrow().num_rows == 2
