"""Inspects a table by its metadata and manifests alone: figures, its files, and whether it may hold rows with certain values. No data
file is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform
from pyiceberg.types import DateType, NestedField, PrimitiveType, TimestampType, TimestamptzType

from frazil.iceberg.commit.expiry import History, number_property
from frazil.iceberg.commit.removal import compare
from frazil.iceberg.errors import translated
from frazil.iceberg.schema.comparison import columns_with_times

MOST_FILES: Final = 200_000
"""Files whose entries one inspection reads, in about 4 s. Of a table with more, the newest manifests are read."""

_DEFAULT_TARGET: Final = 512 * 2**20
_SMALL: Final = 0.75
"""Share of the target size below which Spark's rewrite calls a file small."""

_MANIFEST_TARGET: Final = 8 * 2**20
_EPOCH: Final = date(1970, 1, 1)
_UNITS: Final = {YearTransform: "year", MonthTransform: "month", DayTransform: "day", HourTransform: "hour"}
_LITERALS: Final[Mapping[type, str]] = {TimestamptzType: "timestamptz", TimestampType: "timestamp", DateType: "date"}


@dataclass(frozen=True, slots=True)
class TimeField:
    """The time-based partition field, from which a partition's age follows.

    Attributes:
        column: The column's path, part by part.
        type: `timestamptz`, `timestamp` or `date`.
        unit: `year`, `month`, `day` or `hour`.
    """

    column: tuple[str, ...]
    type: str
    unit: str


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """Data files of one partition. `period` counts years, months, days or hours since 1970; None if not partitioned by time."""

    period: int | None = None
    files: int = 0
    bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0


@dataclass(frozen=True)
class Inspection(History):
    """A table as its maintenance sees it.

    Attributes:
        position_deletes: Files with positions of deleted rows, deletion vectors included.
        equality_deletes: Files with keys of deleted rows.
        manifests: Manifests that a scan reads.
        manifests_needed: How many manifests of the target size would suffice.
        time_field: The partition field that shows the age of partitions, if there is one.
        is_sample: Whether the table has more files than were read.
        unreadable: A column whose type Spark does not have, so that it can't rewrite the table; None if there is none.
        rows_counted: Rows of the newest listed snapshot whose distinct values were counted; None if there is none.
    """

    table: str
    partitions: tuple[PartitionFiles, ...] = ()
    target_bytes: int = _DEFAULT_TARGET
    position_deletes: int = 0
    equality_deletes: int = 0
    manifests: int = 0
    manifests_needed: int = 0
    is_sorted: bool = False
    time_field: TimeField | None = None
    is_sample: bool = False
    unreadable: str | None = None
    rows: int = 0
    rows_counted: int | None = None

    @property
    def files(self) -> int:
        """Data files."""
        return sum(partition.files for partition in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes of the data files."""
        return sum(partition.bytes for partition in self.partitions)

    @property
    def small_files(self) -> int:
        """Data files below 75 % of the target size."""
        return sum(partition.small_files for partition in self.partitions)

    @property
    def deletes(self) -> int:
        """Delete files."""
        return self.position_deletes + self.equality_deletes


def inspect(name: str, table: Table, metadata: TableMetadata, most_files: int = MOST_FILES) -> Inspection:
    """Count the files of a table.

    `table` is on the branch whose files count; `metadata` have all branches.

    Raises:
        Terminal: A property for the size of files is no number.
    """
    properties, schema, snapshot = metadata.properties, metadata.schema(), table.current_snapshot()
    target = number_property(properties, "write.target-file-size-bytes", _DEFAULT_TARGET, name)
    with translated(f"reading manifests of table {name}"):
        manifests = snapshot.manifests(table.io) if snapshot is not None else []
        files = _FileCounter(metadata, target)
        read = 0
        for manifest in sorted(manifests, key=lambda manifest: -manifest.sequence_number):
            if read >= most_files:
                break
            read += files.add(manifest.fetch_manifest_entry(table.io, discard_deleted=True))
    listed = sum((manifest.added_files_count or 0) + (manifest.existing_files_count or 0) for manifest in manifests)
    return Inspection(
        name,
        tuple(files.partitions.values()),
        target_bytes=target,
        position_deletes=files.deletes[DataFileContent.POSITION_DELETES],
        equality_deletes=files.deletes[DataFileContent.EQUALITY_DELETES],
        manifests=len(manifests),
        manifests_needed=_needed(manifests, properties, name),
        is_sorted=bool(metadata.sort_order().fields) if metadata.sort_orders else False,
        time_field=files.time[1] if files.time else None,
        is_sample=read < listed,
        unreadable=next(columns_with_times(schema), None),
        rows=_rows(snapshot),
        rows_counted=_rows_counted(metadata),
        **vars(History.from_metadata(metadata)),
    )


class _FileCounter:
    def __init__(self, metadata: TableMetadata, target: int) -> None:
        self._metadata = metadata
        self._target = target
        self.partitions: dict[tuple[Any, ...], PartitionFiles] = {}
        self.deletes = {DataFileContent.POSITION_DELETES: 0, DataFileContent.EQUALITY_DELETES: 0}
        self.time = _time_field(metadata.spec(), metadata.schema())

    def add(self, entries: list[ManifestEntry]) -> int:
        """Count the files of a manifest, and return how many there were."""
        for entry in entries:
            file = entry.data_file
            if file.content != DataFileContent.DATA:
                self.deletes[file.content] += 1
                continue
            values = tuple(file.partition[place] for place in range(len(file.partition)))
            key = (file.spec_id, *values)
            counts = self.partitions.get(key) or PartitionFiles(self._period(file.spec_id, values))
            size = file.file_size_in_bytes
            is_small = size < _SMALL * self._target
            self.partitions[key] = replace(
                counts,
                files=counts.files + 1,
                bytes=counts.bytes + size,
                small_files=counts.small_files + is_small,
                small_bytes=counts.small_bytes + (size if is_small else 0),
            )
        return len(entries)

    def _period(self, spec_id: int, values: tuple[Any, ...]) -> int | None:
        if self.time is None or spec_id != self._metadata.default_spec_id:
            return None
        value = values[self.time[0]]
        return (value - _EPOCH).days if isinstance(value, date) else value


def _rows(snapshot: Snapshot | None) -> int:
    summary = snapshot.summary if snapshot is not None else None
    return int(summary.additional_properties.get("total-records", 0)) if summary is not None else 0


def _rows_counted(metadata: TableMetadata) -> int | None:
    """Rows of the newest snapshot that has statistics. An expired snapshot has none any more."""
    counted = (metadata.snapshot_by_id(statistics.snapshot_id) for statistics in metadata.statistics)
    youngest = max(
        (snapshot for snapshot in counted if snapshot is not None),
        key=lambda snapshot: snapshot.timestamp_ms,
        default=None,
    )
    return None if youngest is None else _rows(youngest)


def _needed(manifests: list[ManifestFile], properties: Mapping[str, str], table: str) -> int:
    """How many manifests of the target size would suffice: data files, delete files and partition specs have their own."""
    target = number_property(properties, "commit.manifest.target-size-bytes", _MANIFEST_TARGET, table)
    kinds: dict[tuple[ManifestContent, int], int] = {}
    for manifest in manifests:
        kinds[manifest.content, manifest.partition_spec_id] = (
            kinds.get((manifest.content, manifest.partition_spec_id), 0) + manifest.manifest_length
        )
    return sum(-(-size // target) for size in kinds.values())


def _time_field(spec: PartitionSpec, schema: Schema) -> tuple[int, TimeField] | None:
    """The first partition field by time, and its index among the partition's values."""
    for place, partition_field in enumerate(spec.fields):
        column = schema.find_column_name(partition_field.source_id)
        if column is None:  # the column was dropped; its partition field is void
            continue
        kind = type(schema.find_field(partition_field.source_id).field_type)
        unit = _UNITS.get(type(partition_field.transform))
        if unit is None and isinstance(partition_field.transform, IdentityTransform) and kind is DateType:
            unit = "day"
        if unit is not None and kind in _LITERALS:
            is_top = any(
                field.field_id == partition_field.source_id for field in schema.fields
            )  # its name may have dots
            return place, TimeField((column,) if is_top else tuple(column.split(".")), _LITERALS[kind], unit)
    return None


_CONTENT = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position deletes",
    DataFileContent.EQUALITY_DELETES: "equality deletes",
}


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table.

    Attributes:
        content: `data`, `position deletes` or `equality deletes`.
        snapshot_id: Snapshot that added it; it may be expired.
        bounds: Column -> lower and upper bound of its values, if the file has statistics. Bounds of long texts are truncated: the
            lower one is then a little below all values, the upper one a little above.
    """

    path: str
    content: str
    snapshot_id: int | None
    rows: int
    bytes: int
    bounds: Mapping[str, tuple[Any, Any]]


def current_files(table: Table, columns: Sequence[str]) -> list[TableFile]:
    """Files of a table's current snapshot, with the bounds of some columns. Empty for a table without a snapshot."""
    table_fields = {field.name: field for field in table.schema().fields}
    fields = [table_fields[name] for name in columns if name in table_fields]
    with translated(f"reading manifests of table {table.name()}"):
        manifests = snapshot.manifests(table.io) if (snapshot := table.current_snapshot()) is not None else []
        entries = (manifest.fetch_manifest_entry(table.io, discard_deleted=True) for manifest in manifests)
        return [_file(entry, fields) for entry in chain.from_iterable(entries)]


def _file(entry: ManifestEntry, fields: Sequence[NestedField]) -> TableFile:
    file = entry.data_file
    bounds = {field.name: column_bounds for field in fields if (column_bounds := _bounds(file, field)) is not None}
    content = _CONTENT[file.content]
    return TableFile(file.file_path, content, entry.snapshot_id, file.record_count, file.file_size_in_bytes, bounds)


def _bounds(file: DataFile, field: NestedField) -> tuple[Any, Any] | None:
    lower, upper = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
        return None
    return from_bytes(field.field_type, lower), from_bytes(field.field_type, upper)


Ranges = Mapping[str, tuple[str, str]]
"""Column -> its smallest and largest value, as texts."""


def may_hold(table: Table, name: str, snapshot_id: int | None, ranges: Ranges) -> bool:
    """Whether a data file of a snapshot may have a row within all ranges, by partition values and column bounds.

    A file without bounds may have one. Truncated bounds of long texts never exclude a file that has one.

    Columns of the ranges are at the table's top level. Without ranges, without a snapshot id, or with values that Python can't
    represent, the answer is yes.
    """
    if snapshot_id is None or not ranges:
        return True
    conditions = [
        compare(operator, column, end)
        for column, ends in ranges.items()
        for operator, end in zip((GreaterThanOrEqual, LessThanOrEqual), ends, strict=True)
    ]
    where = And(*conditions)
    try:
        bind(table.schema(), where, case_sensitive=True)
    except ValueError:  # such as a date beyond the year 9999, which Python does not have
        return True
    with translated(f"looking for files of table {name}"):
        return any(_live_files(table, snapshot_id, where))


def _live_files(table: Table, snapshot_id: int, where: BooleanExpression) -> Iterator[bool]:
    """True for each data file that may have a matching row, one by one, so that the first one ends the search."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise ValueError(f"no snapshot {snapshot_id}")
    planner = ManifestGroupPlanner(table.metadata, table.io, where)
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entries in planner.plan_manifest_entries([manifest]):
                yield from (True for entry in entries if entry.data_file.content == DataFileContent.DATA)
