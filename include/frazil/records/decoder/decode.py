"""A batch of Kafka records becomes rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.changes import OP
from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import bounded
from frazil.errors import Terminal
from frazil.records.decoder.orc_times import without_altered_times
from frazil.records.decoder.partitions import PartitionBound, refused_by_partition
from frazil.records.decoder.tombstones import DeletedRows, Tombstones, with_deleted
from frazil.records.decoder.typed_decoder import LeftOut, ShapedDecoder
from frazil.records.evolution.agreement import EXACT, Agreement
from frazil.records.evolution.inferred import InferredJson
from frazil.records.evolution.json_values import EvolvingJson
from frazil.records.evolution.schema_requests import Asked
from frazil.records.formats.catalogue import open_format
from frazil.records.formats.keys import DecodedKeys, KeyColumns, KeyDecoder
from frazil.records.formats.payload_decoder import HalfName, PayloadDecoder
from frazil.records.json.values import JsonValues
from frazil.records.model.changes import merge_columns
from frazil.records.model.dead_letter import DeadCode, Reason, dead_letters
from frazil.records.model.format import JSON, FormatSpec
from frazil.records.model.kafka_schema import BAD_HEADERS, NOT_UNPACKED, UNREAD_BYTES, conform
from frazil.records.model.outcome import FilterReason, Outcomes, count_outcomes
from frazil.records.model.positions import at, distinct
from frazil.records.model.rows import Block, in_order, without
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.flatten import Flatten
from frazil.records.transforms.named_fields import named_fields

Dead = dict[int, Reason]
"""Reasons by the record's position in the batch, ascending."""

Filtered = dict[FilterReason, pa.Int64Array]
"""Positions of the records that were left out on purpose, ascending."""

_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
"""Columns of a record that its rows carry too."""

_UNREADABLE: Final = Reason(DeadCode.UNREADABLE_BATCH, "the Kafka client can't unpack the batch of this record")
_BAD_HEADERS: Final = Reason(DeadCode.INVALID_HEADERS, "the name of a header is not UTF-8")
_NULL_VALUE: Final = Reason(DeadCode.NULL_VALUE, "expected a value, found a record without one (a tombstone)")


class Decoder:
    """Decodes the batches of one pipeline. Keeps nothing from batch to batch but what is costly to make.

    Args:
        spec: What is wanted of the records.
        batch_number: Goes into the batch column of every row.
        blocks: Whether JSON values may be parsed as blocks where that is exact. Without, the outcome is the same, later.
        partitions: Bounds the partition values of the table; None: it has none.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit, a schema that is none.
    """

    def __init__(
        self, spec: RecordSpec, batch_number: int, *, blocks: bool = True, partitions: PartitionBound | None = None
    ) -> None:
        self._spec: Final = spec
        self._partitions: Final = partitions
        self._batch_number: Final = batch_number
        self._asked: Final = Asked(spec.fold is not None)
        self._values: Final = _values(spec, self._asked, blocks=blocks)
        takes = spec.tombstone == "delete"
        self._tombstones: Final = tombstones_of(spec, blocks=blocks) if takes else None
        self._deleted: Final = DeletedRows(spec) if takes else None

    def decode(self, batch: pa.RecordBatch) -> Outcomes:
        """Return the outcomes of `batch` (of `KAFKA_SCHEMA`), in its order.

        No value makes this fail.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the batch has other columns; the registry refuses; a transform does not fit the fields that it gets.
        """
        records = conform(batch)
        self._asked.clear()
        present, dead, filtered = screened(self._spec, records.column("value"), unread(batch))
        block, more, left_out = self._values.decode(records, present)
        for reason, places in left_out.items():
            filtered[reason] = pa.concat_arrays([filtered.get(reason, _positions([])), _positions(places)])
        block, refused = self._with_deleted(records, block, filtered)
        block, altered = without_altered_times(self._spec, block, records)
        dead |= more | refused | altered
        origins, rows = self._rows(records, block)
        if scattered := refused_by_partition(self._partitions, rows, block.positions):
            dead, block = dead | scattered, without(block, scattered)
            origins, rows = self._rows(records, block)
        dead = dict(sorted(dead.items()))
        letters = dead_letters(at(records, _positions(dead)), list(dead.values()))
        once = distinct(block.positions)
        written = origins if once is block.positions else records.take(once)
        others = {reason: records.take(found) for reason, found in filtered.items() if len(found)}
        counts = count_outcomes(records, written, letters, others)
        demands = self._asked.demands(self._spec)
        unknown = UnknownFields() if demands else block.unknown.only(block.positions).counted()
        return Outcomes(rows, letters, counts, unknown, demands, bounded(self._asked.untold))

    def _rows(self, records: pa.RecordBatch, block: Block) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return where each row came from, and the rows with it."""
        origins = at(records.select(_ORIGIN), block.positions)
        return origins, with_kafka_columns(self._spec, self._batch_number, block, origins)

    def _with_deleted(self, records: pa.RecordBatch, block: Block, filtered: Filtered) -> tuple[Block, Dead]:
        """Return the rows with those that records without value delete, which are filtered no more."""
        places = filtered.get(FilterReason.TOMBSTONE)
        if self._tombstones is None or self._deleted is None or places is None or not len(places):
            return block, {}
        frames, dead, others = self._tombstones.frames(records, places.take(pc.array_sort_indices(places)))
        filtered[FilterReason.TOMBSTONE] = _positions([])
        if others:
            transformed = filtered.get(FilterReason.TRANSFORM, _positions([]))
            filtered[FilterReason.TRANSFORM] = pa.concat_arrays([transformed, _positions(sorted(others))])
        blocks = []
        for frame in frames:
            fitted = self._deleted.fit(frame)
            blocks.append(Block(fitted.rows, frame.positions.take(fitted.kept)))
            dead |= {frame.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
        return with_deleted(self._spec, block, blocks), dead

    def problems(self, shape: pa.Schema | None, key_shape: pa.Schema | None = None) -> list[str]:
        """Return which columns nothing could ever fill, and why.

        Args:
            shape: The fields that all values have before transforms; None if each says its own.
            key_shape: The fields of keys, likewise.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        return self._values.problems(shape, key_shape)


def unread(batch: pa.RecordBatch) -> Dead:
    """Return why records of a consumed batch were not taken over whole, by position."""
    if UNREAD_BYTES not in batch.schema.names:
        return {}
    known = {NOT_UNPACKED: _UNREADABLE, BAD_HEADERS: _BAD_HEADERS}
    sizes = enumerate(batch.column(UNREAD_BYTES).to_pylist())
    return {at: known.get(size) or _too_large(size) for at, size in sizes if size is not None}


def _too_large(size: int) -> Reason:
    return Reason(
        DeadCode.RECORD_TOO_LARGE, f"{size:,} bytes of key, value and headers, more than limits.max_record_bytes"
    )


def screened(spec: RecordSpec, values: pa.BinaryArray, unread: Dead) -> tuple[pa.Int64Array, Dead, Filtered]:
    """Return the positions of the values to decode, and what became of records without value or with an empty one.

    Args:
        spec: What is wanted of the records.
        values: Their values.
        unread: Records that were not taken over, which have no value here; they are dead.
    """
    dead = dict(unread)
    filtered: Filtered = {}
    present = None
    if unread:
        present = pc.invert(pc.is_in(pa.arange(0, len(values)), value_set=_positions(unread)))
    if values.null_count:
        is_absent = values.is_null() if present is None else pc.and_(present, values.is_null())
        present = values.is_valid() if present is None else pc.and_(present, values.is_valid())
        absent = _where(is_absent)
        if spec.tombstone != "dead_letter":
            filtered[FilterReason.TOMBSTONE] = absent
        else:
            dead |= dict.fromkeys(absent.to_pylist(), _NULL_VALUE)
    if spec.empty_value == "filter":
        empty = pc.fill_null(pc.equal(pc.binary_length(values), 0), fill_value=False)
        empty = empty if present is None else pc.and_(present, empty)
        filtered[FilterReason.EMPTY_VALUE] = _where(empty)
        present = pc.invert(empty) if present is None else pc.and_not(present, empty)
    return pa.arange(0, len(values)) if present is None else _where(present), dead, filtered


def with_kafka_columns(spec: RecordSpec, batch_number: int, block: Block, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with where each came from, from its record, the batch that lands it, and what merging needs."""
    names = [name for name in block.rows.schema.names if name != OP]
    columns = [block.rows.column(name) for name in names]
    if spec.kafka_columns is not None:
        columns += [records.column(name) for name in _ORIGIN]
        columns.append(pa.repeat(pa.scalar(batch_number, pa.int64()), len(records)))
    if spec.merge is not None:
        columns += merge_columns(spec.merge, block.rows, block.positions)
    return pa.RecordBatch.from_arrays(columns, schema=spec.row_schema)


class _Direct:
    """JSON values that are rows at once."""

    def __init__(self, json: JsonValues | EvolvingJson) -> None:
        self._json: Final = json

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        values = records.column("value")
        if len(present) == len(values):
            return *self._json.rows(values), {}
        block, dead = self._json.rows(values.take(present))
        placed = Block(block.rows, present.take(block.positions), block.unknown.among(present))
        return placed, {present[place].as_py(): of for place, of in dead.items()}, {}

    def problems(self, _shape: pa.Schema | None, _key_shape: pa.Schema | None) -> list[str]:
        return []


class _Keyed:
    """JSON values that are rows at once, beside their keys."""

    def __init__(self, values: _Direct, keys: KeyDecoder, columns: KeyColumns | None) -> None:
        self._values: Final = values
        self._keys: Final = keys
        self._columns: Final = columns

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[Block, Dead, LeftOut]:
        keys = self._keys.decode(records, present)
        if self._columns is None:
            block, dead, left_out = self._values.decode(records, keys.alive)
            return block, keys.dead | dead, left_out
        fitted, unfit = self._fitted(self._columns, keys)
        block, dead, left_out = self._values.decode(records, fitted.positions)
        beside = fitted.rows.take(pc.index_in(block.positions, value_set=fitted.positions))
        joined = Block(self._columns.joined(block.rows, beside), block.positions, block.unknown)
        return joined, keys.dead | unfit | dead, left_out

    def problems(self, _shape: pa.Schema | None, key_shape: pa.Schema | None) -> list[str]:
        return [] if key_shape is None or self._columns is None else self._columns.check(key_shape)

    def _fitted(self, columns: KeyColumns, keys: DecodedKeys) -> tuple[Block, Dead]:
        blocks: list[Block] = []
        dead: Dead = {}
        for group in keys.groups:
            fitted = columns.fit(group.columns, len(group.positions))
            blocks.append(Block(fitted.rows, group.positions.take(fitted.kept)))
            dead |= {group.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
        return in_order(blocks, columns.schema), dead


def _values(spec: RecordSpec, asked: Asked, *, blocks: bool) -> ShapedDecoder | _Direct | _Keyed:
    if spec.is_shaped:
        return shaped_decoder(spec, asked, blocks=blocks)
    direct = _Direct(json_values(spec.of_value, asked, blocks=blocks))
    keys, columns = _keys(spec, blocks=blocks)
    return direct if keys is None else _Keyed(direct, keys, columns)


def json_values(spec: RecordSpec, asked: Asked, *, blocks: bool = True) -> JsonValues | EvolvingJson:
    """Return what decodes JSON values into columns; what they need beside those goes to `asked`.

    Raises:
        Terminal: the spec can't be met.
    """
    return JsonValues(spec, blocks=blocks) if spec.evolution is None else EvolvingJson(spec, asked, blocks=blocks)


def shaped_decoder(
    spec: RecordSpec,
    asked: Asked,
    *,
    specs: Sequence[RecordSpec] = (),
    route: Sequence[str] = (),
    blocks: bool = True,
) -> ShapedDecoder:
    """Return what decodes values into fields before they become columns, also JSON values that could be rows at once.

    Args:
        spec: What is wanted of the values.
        asked: Takes what they need.
        specs: What is wanted of them by all tables, if there are several.
        route: Names from the root of a value to the field that routes it.
        blocks: Whether JSON may be parsed as blocks where that is exact.

    Raises:
        Terminal: the spec can't be met.
    """
    fields = spec.of_value.columns if spec.fields is None else spec.fields
    keys, columns = _keys(spec, blocks=blocks)
    agreement = agreement_of(specs or (spec,), route) if spec.infers else EXACT
    values = _half("value", spec, spec.format, fields, agreement, blocks=blocks)
    return ShapedDecoder(spec, asked, values, keys, columns, blocks=blocks)


def tombstones_of(spec: RecordSpec, *, blocks: bool = True) -> Tombstones:
    """Return what decodes the keys of records without value."""
    return Tombstones(spec, _keys(spec, blocks=blocks)[0])


def _keys(spec: RecordSpec, *, blocks: bool) -> tuple[KeyDecoder | None, KeyColumns | None]:
    keys = None if spec.key is None else KeyDecoder(_half("key", spec, spec.key, spec.key_fields, blocks=blocks))
    return keys, KeyColumns(spec) if spec.of_key else None


def agreement_of(specs: Sequence[RecordSpec], route: Sequence[str] = ()) -> Agreement:
    """Return in what values may differ that are decoded together; `route` are the names down to the field that routes them."""
    transforms = specs[0].transforms
    named = named_fields(transforms)
    flattens = [of for of in transforms if isinstance(of, Flatten) and of.target == "value"]
    if named is None or len(flattens) > 1 or any(spec.whole_columns for spec in specs):
        return EXACT
    columns = (of for spec in specs for of in spec.column_specs if of.has_default or of.steps != (of.name,))
    exact = named | {of.steps[0].casefold() for of in columns} | {name.casefold() for name in route[:1]}
    kinds = [{(of.name, of.type) for of in spec.columns} for spec in specs]
    differing = (
        set[tuple[str, pa.DataType]]().union(*kinds).difference(set[tuple[str, pa.DataType]].intersection(*kinds))
    )
    closed = frozenset(name.casefold() for name, _ in differing)
    return Agreement(exact, closed, *((flattens[0].delimiter, flattens[0].depth) if flattens else ()))


def _half(
    name: HalfName,
    spec: RecordSpec,
    of: FormatSpec,
    fields: pa.Schema | None,
    agreement: Agreement = EXACT,
    *,
    blocks: bool,
) -> PayloadDecoder:
    if of.name != JSON:
        return PayloadDecoder(name, of, open_format(of))
    if fields is not None and name == "value" and spec.infers:
        return PayloadDecoder(name, of, InferredJson(spec, fields, agreement, blocks=blocks))
    if fields is None:
        raise Terminal(f"record shape: nothing says which fields the JSON of a {name} has", next_step="declare them")
    json = RecordSpec(
        fields, duplicate_keys=spec.duplicate_keys, field_names=spec.field_names, casts=spec.casts, kafka_columns=None
    )
    return PayloadDecoder(name, of, JsonValues(json, blocks=blocks))


def _where(mask: pa.BooleanArray) -> pa.Int64Array:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _positions(found: Iterable[int]) -> pa.Int64Array:
    return pa.array(list(found), pa.int64())
