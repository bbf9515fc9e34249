"""Mends how PyIceberg 0.12 reads and writes metadata: ascending times whatever the clocks, a cache of history, the type `variant`,
and files with columns that a name mapping does not name.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from threading import Lock
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyiceberg.io.pyarrow as pyiceberg_arrow
from pydantic import ValidatorFunctionWrapHandler
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping, apply_name_mapping
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.typedef import IcebergBaseModel
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StringType, StructType

from frazil.error_codes import BAD_SETTING, CLOCK_WRONG

# Ascending times. Java's TableMetadata refuses metadata whose log, or whose last change, goes back by more than a minute. PyIceberg
# dates each commit by the host's clock alone, so after a host whose clock is fast, another would write a table that Java can't read.

E = TypeVar("E", SnapshotLogEntry, MetadataLogEntry)

MAX_SKEW: Final = "frazil.max-clock-skew-ms"
"""Catalog property: how far the last change of a table may be ahead of this host's clock, in milliseconds."""

_MAX_SKEW_MS: Final = 60_000
"""Java's own tolerance (TableMetadata.ONE_MINUTE): beyond it no other engine writes to the table either."""


def next_timestamp(metadata: TableMetadata) -> int:
    """Timestamp of a table's next snapshot, in milliseconds since 1970: later than all earlier ones."""
    return max(_now_ms(), _newest(metadata) + 1)


def with_ascending_times(metadata: TableMetadata, base: TableMetadata) -> TableMetadata:
    """The metadata that a commit made from `base`, with ascending timestamps in its logs."""
    snapshots, past = _ascending(metadata.snapshot_log), _ascending(metadata.metadata_log)
    newest = max(
        metadata.last_updated_ms,
        base.last_updated_ms,
        *(entry.timestamp_ms for entry in snapshots[-1:]),
        *(entry.timestamp_ms for entry in past[-1:]),
    )
    return metadata.model_copy(
        update={"snapshot_log": snapshots, "metadata_log": past, "last_updated_ms": newest},
    )


def refuse_skew(table: Table) -> None:
    """Refuse to commit to a table whose last change is far ahead of this host's clock.

    Raises:
        Retryable: The difference exceeds the bound.
        Terminal: The catalog's property for the bound is no number of milliseconds.
    """
    catalog, now_ms, newest = table.catalog, _now_ms(), _newest(table.metadata)
    bound = _bound(str(catalog.properties.get(MAX_SKEW, _MAX_SKEW_MS)))
    if newest - now_ms <= bound:
        return
    ahead = timedelta(milliseconds=newest - now_ms)
    raise CLOCK_WRONG.retryable(
        f"table {'.'.join(table.name())} was changed last at {_instant(newest)}, and the clock of this host"
        f" ({socket.gethostname()}) says {_instant(now_ms)}: {ahead} behind; expected at most {timedelta(milliseconds=bound)}",
        next_step="set the clock that is wrong, of this host or of the one that changed the table, and synchronise both (NTP)."
        f" If the table's time is wrong, runs continue by themselves from {_instant(newest - bound)}; to continue at once, set"
        f' {MAX_SKEW}: "{newest - now_ms + _MAX_SKEW_MS}" among the properties of catalog {catalog.name} in the settings'
        " (Spark and other Java writers still wait)",
    )


def _bound(text: str) -> int:
    if not text.isdecimal():
        raise BAD_SETTING.terminal(
            f"catalog property {MAX_SKEW}: expected milliseconds, found {text!r}",
            next_step="correct it among the properties of the catalog in the settings",
        )
    return int(text)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _newest(metadata: TableMetadata) -> int:
    return max([metadata.last_updated_ms, *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])])


def _ascending(log: Sequence[E]) -> list[E]:
    times = accumulate((entry.timestamp_ms for entry in log), max)
    return [
        entry if entry.timestamp_ms == time_ms else entry.model_copy(update={"timestamp_ms": time_ms})
        for entry, time_ms in zip(log, times, strict=True)
    ]


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


MOST_SNAPSHOTS: Final = 50_000
"""Snapshots in all metadata that a process caches: bounds its memory. The metadata that were used last always stay."""


class SharedHistory(list[Any]):
    """Snapshots or log entries of a table, shared between copies of its metadata.

    PyIceberg copies a table's metadata deeply, many times per commit. With a thousand snapshots that took one of the two seconds
    of a small batch, and a batch a minute makes ten thousand snapshots in a week.
    """

    def __add__(self, more: Iterable[Any]) -> SharedHistory:
        return SharedHistory([*self, *more])

    def __deepcopy__(self, _: dict[int, object]) -> SharedHistory:
        return SharedHistory(self)


class SharedRef(SnapshotRef):
    """A branch or a tag, shared between copies of metadata: there is a tag per hour, and none changes."""

    def __deepcopy__(self, _: dict[int, object] | None = None) -> SharedRef:
        return self

    def __eq__(self, value: object) -> bool:
        return isinstance(value, SnapshotRef) and dict(self) == dict(value)

    __hash__ = SnapshotRef.__hash__


def with_shared_history(metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose copies share their history."""
    log: dict[str, Any] = {
        name: SharedHistory(getattr(metadata, name)) for name in ("snapshots", "snapshot_log", "metadata_log")
    }
    log["refs"] = {
        name: ref if isinstance(ref, SharedRef) else SharedRef.model_construct(**dict(ref))
        for name, ref in metadata.refs.items()
    }
    return metadata.model_copy(update=log)


class HistoryCache:
    """Caches the parsed snapshots, branches and tags of each table: a server sends all of them with each answer.

    Parsing them is three quarters of PyIceberg's time for an answer, and almost all were parsed before.
    """

    def __init__(self, most: int = MOST_SNAPSHOTS) -> None:
        self._most: Final = most
        self._tables: Final[dict[str, dict[int | str, tuple[Any, Any]]]] = {}
        self._lock: Final = Lock()

    def fill_in(self, metadata: dict[str, Any]) -> None:
        """Replace the JSON bodies in a server's metadata by parsed objects; those of equal bodies are reused.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: The metadata can't be read, or list no snapshots.
        """
        table = str(metadata["table-uuid"])
        cached, read = self._tables.get(table, {}), dict[int | str, tuple[Any, Any]]()

        def one(key: int | str, body: Any, kind: type[Snapshot | SharedRef]) -> Any:
            before = cached.get(key)
            read[key] = before if before is not None and before[0] == body else (body, kind.model_validate(body))
            return read[key][1]

        metadata["snapshots"] = [one(body["snapshot-id"], body, Snapshot) for body in metadata["snapshots"]]
        metadata["refs"] = {name: one(name, body, SharedRef) for name, body in metadata["refs"].items()}
        with self._lock:
            self._tables.pop(table, None)
            self._tables[table] = read  # in the order of use
            for oldest in list(self._tables)[:-1]:
                if sum(map(len, self._tables.values())) <= self._most:
                    break
                del self._tables[oldest]


def without_snapshots(metadata: TableMetadata, updates: Sequence[RemoveSnapshotsUpdate]) -> TableMetadata:
    """Metadata without the snapshots of these updates, as Iceberg's Java library would write them.

    PyIceberg would remove the ids of expired parents, which tell an expiry from a table that was created again. It would also leave
    gaps in the snapshot log: a reader AS OF a time in a gap would get the snapshot before it.
    """
    removed_ids = {number for update in updates for number in update.snapshot_ids}
    if not removed_ids:
        return metadata
    log = metadata.snapshot_log
    last_gap = max((place for place, entry in enumerate(log) if entry.snapshot_id in removed_ids), default=-1)
    remaining = {
        name: type(old)(one for one in old if one.snapshot_id not in removed_ids)
        for name in ("snapshots", "statistics", "partition_statistics")
        if (old := getattr(metadata, name))
    }
    return metadata.model_copy(update={**remaining, "snapshot_log": type(log)(log[last_gap + 1 :])})


# The type `variant`. Importing this module lets PyIceberg read schemas that have it, and the other columns of their data files.
# Values of variants can't be read. Tables with them are of version 3, which Spark writes, not PyIceberg.
# `tests/unit/iceberg/patches/test_metadata_variant.py` fails once a newer PyIceberg makes this needless.

FORMAT_VERSION = 3
"""The first version of the table format with the type `variant`."""

_FIELD_ID = b"PARQUET:field_id"


class VariantType(PrimitiveType):
    """The type of values of any shape. A primitive type for PyIceberg, so that its visitors don't look inside."""

    root: str = "variant"

    def __str__(self) -> str:
        return "variant"

    def __repr__(self) -> str:
        return "VariantType()"


def as_text(schema: Schema) -> Schema:
    """The schema with texts in place of variants at its top level: rows are staged so."""
    fields = [
        field.model_copy(update={"field_type": StringType()}) if isinstance(field.field_type, VariantType) else field
        for field in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def unreadable(schema: Schema) -> tuple[str, ...]:
    """Names of the columns of type `variant`, whose values only an engine can read."""
    return tuple(field.name for field in schema.fields if isinstance(field.field_type, VariantType))


def metadata_text(metadata: TableMetadata) -> str:
    """The metadata of a table without snapshots as JSON, of any format version. With snapshots, PyIceberg would leave out row ids."""
    if metadata.snapshots:
        raise ValueError("only a table without snapshots can be written")
    of_version = (
        metadata.model_copy(update={"next_row_id": 0}) if metadata.format_version >= FORMAT_VERSION else metadata
    )
    return IcebergBaseModel.model_dump_json(of_version)


_known_type = IcebergType.handle_primitive_type.__func__


def _type(cls: type[IcebergType], value: Any, handler: ValidatorFunctionWrapHandler) -> IcebergType:
    iceberg_type: IcebergType = VariantType() if value == "variant" else _known_type(cls, value, handler)
    return iceberg_type


IcebergType.handle_primitive_type = classmethod(_type)  # type: ignore[assignment, method-assign]
"""PyIceberg calls it by this name to read the type of a field (`NestedField.convert_field_type`)."""


def _file_schema(schema: pa.Schema, *args: Any, **kwargs: Any) -> Schema:
    """The schema of a data file without its variants, which are groups whose parts have no field ids."""
    return pyarrow_to_schema(
        pa.schema([field for field in schema if not _is_variant(field)], schema.metadata), *args, **kwargs
    )


def _is_variant(field: pa.Field) -> bool:
    names = {inner.name for inner in field.type} if pa.types.is_struct(field.type) else set()
    return (
        {"metadata", "value"} <= names
        and _FIELD_ID in (field.metadata or {})
        and not any(_FIELD_ID in (inner.metadata or {}) for inner in field.type)
    )


pyiceberg_arrow.pyarrow_to_schema = _file_schema


# Name mappings. A data file may have columns that the table's name mapping does not name. Iceberg's other libraries ignore them;
# PyIceberg 0.12 refuses the file, and so every scan of the table. `tests/unit/iceberg/patches/test_metadata_name_mapping.py` fails once a
# newer PyIceberg makes this needless.


def _apply(schema_without_ids: Schema, name_mapping: NameMapping) -> Schema:
    return apply_name_mapping(Schema(*_named_fields(schema_without_ids.fields, name_mapping)), name_mapping)


def _named_fields(fields: Iterable[NestedField], mapping: Iterable[MappedField]) -> Iterator[NestedField]:
    """The fields to which the mapping gives an id. A list or a map needs ids for all its parts."""
    named = {name: mapped for mapped in mapping for name in mapped.names if mapped.field_id is not None}
    for field in fields:
        if (mapped := named.get(field.name)) is not None:
            field_type = _named_type(field.field_type, mapped.fields)
            if field_type is not None:
                yield field.model_copy(update={"field_type": field_type})


def _named_type(field_type: IcebergType, mapping: Iterable[MappedField]) -> IcebergType | None:
    match field_type:
        case StructType():
            return StructType(*_named_fields(field_type.fields, mapping))
        case ListType():
            parts = [*_named_fields([field_type.element_field], mapping)]
            return ListType(-1, parts[0].field_type, element_required=parts[0].required) if parts else None
        case MapType():
            parts = [*_named_fields([field_type.key_field, field_type.value_field], mapping)]
            if len(parts) < 2:  # noqa: PLR2004 - key and value
                return None
            key, value = parts
            return MapType(-1, key.field_type, -1, value.field_type, value_required=value.required)
    return field_type


pyiceberg_arrow.apply_name_mapping = _apply  # type: ignore[attr-defined]
"""PyIceberg calls it by this name to read a file's schema (`pyarrow_to_schema`)."""
