"""Decodes a batch once for all tables of a pipeline, and fits its rows once for all tables that have the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.schema_change import SchemaChange, bound_paths
from frazil.error_codes import BAD_SCHEMA
from frazil.records.casting.fitter import Dead, Fitted
from frazil.records.decoder.route import Route, route_texts
from frazil.records.decoder.table_rows import DeletedRowFitter, TombstoneDecoder
from frazil.records.decoder.typed_decoder import LeftOut, RowFitter, ShapedDecoder, TypedRows
from frazil.records.evolution.agreement import EXACT, Agreement
from frazil.records.evolution.inferred import InferredJson
from frazil.records.evolution.inspect import EvolvingJson
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.formats.catalogue import open_format
from frazil.records.formats.framing import PayloadName
from frazil.records.formats.keys_and_headers import DecodedKeys, HeaderColumns, KeyColumns, PayloadDecoder, decode_keys
from frazil.records.json.typed import JsonValues
from frazil.records.model.dead_letter import Reason, Stage
from frazil.records.model.format import JSON, FormatSpec, Frame
from frazil.records.model.rows import (
    NOTHING_UNKNOWN,
    Block,
    UnknownFieldPairs,
    in_order,
    mask_without,
    no_rows,
    take_distinct,
)
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.header_lists import header_texts
from frazil.records.transforms.kinds.conditions import named_fields
from frazil.records.transforms.kinds.nested import Flatten

_NO_TEXTS: Final = pa.array([], pa.string())

FitRows = Callable[[int, pa.Int64Array | None], Fitted]
"""Takes the index of a group of tables, and rows, ascending (None: all); returns these rows, fitted to the columns of the tables."""


@dataclass(frozen=True)
class DecodedGroup:
    """Decoded rows of one schema, at least one, not yet fitted to the columns of tables.

    Attributes:
        positions: int64, per row the position of its record, ascending; rows of one record share it.
        texts: The routing text of each row, or null; empty if there is no route.
        fit: Fits the rows to tables.
        deletes: Whether these are rows to delete, of tombstones.
    """

    positions: pa.Int64Array
    texts: pa.StringArray
    fit: FitRows
    deletes: bool = False


class ValueDecoder:
    """Decodes the batches of a pipeline, and fits them to its tables.

    Attributes:
        tables_by_group: The numbers of the tables in each group of tables that have the same columns.

    Raises:
        Terminal: a spec can't be met: a type without a JSON form, a default that does not fit, a text that is no schema.
    """

    def __init__(self, specs: Sequence[RecordSpec], route: Route | None = None, *, blocks: bool = True) -> None:
        whole_specs, self.tables_by_group = _tables_by_spec(specs)
        # Columns that take headers are joined at the end: values and keys are decoded and fitted without them.
        group_specs = [spec.without_headers for spec in whole_specs]
        first = specs[0].without_headers
        self._header_columns: Final = [HeaderColumns(spec) if spec.of_header else None for spec in whole_specs]
        self._deleted_header_columns: Final = [
            HeaderColumns(spec, deletes=True) if spec.of_header and spec.tombstone == "delete" else None
            for spec in whole_specs
        ]
        self._group_specs: Final = group_specs
        self._whole_specs: Final = whole_specs
        self._requests: Final = [SchemaRequests(spec.fold is not None) for spec in group_specs]
        self._has_route: Final = route is not None
        self._path: Final = None if route is None else route.field
        self._route_header: Final = None if route is None else route.header
        self._fold: Final = first.field_names == "case_insensitive"
        self._keys: Final = (
            None if first.key is None else _payload_decoder("key", first, first.key, first.key_fields, blocks=blocks)
        )
        # JSON is decoded straight into the columns of tables. Keys need decoded columns if there is a route or a second table.
        is_direct = self._keys is None or (route is None and len(specs) == 1)
        self._shaped: Final = (
            None
            if is_direct and not any(spec.is_shaped for spec in group_specs)
            else ShapedDecoder(
                group_specs,
                _typed_values(group_specs, self._path or (), blocks=blocks),
                self._keys,
                reads_headers=self._route_header is not None or any(spec.of_header for spec in whole_specs),
            )
        )
        pairs = list(zip(group_specs, self._requests, strict=True))
        is_typed = self._shaped is not None
        self._fitters: Final = [RowFitter(spec, requests, blocks=blocks) for spec, requests in pairs if is_typed]
        self._json: Final = [
            JsonValues(spec.of_value, blocks=blocks)
            if spec.evolution is None
            else EvolvingJson(spec.of_value, requests, blocks=blocks)
            for spec, requests in pairs
            if not is_typed
        ]
        self._key_columns: Final = KeyColumns(first) if self._shaped is None and first.of_key else None
        self._route_decoder: Final = (
            JsonValues(_route_spec(first, self._path), blocks=blocks) if self._path and self._shaped is None else None
        )
        may_delete = any(spec.tombstone == "delete" for spec in group_specs)
        self._tombstones: Final = TombstoneDecoder(first, self._keys) if may_delete else None
        self._deleted_row_fitters: Final = [
            DeletedRowFitter(spec) if spec.tombstone == "delete" else None for spec in group_specs
        ]

    @property
    def takes_tombstones(self) -> bool:
        """Whether a tombstone may delete a row of some table."""
        return self._tombstones is not None

    def demands(self) -> Iterator[tuple[int, tuple[SchemaChange, ...]]]:
        """Yield the number of each table whose rows need schema changes, with these changes."""
        for tables, spec, requests in zip(self.tables_by_group, self._group_specs, self._requests, strict=True):
            if changes := requests.demands(spec):
                yield tables[0], changes

    def untyped_paths(self) -> Iterator[tuple[int, frozenset[tuple[str, ...]]]]:
        """Yield the number of each table whose records have values that show no type, with the paths of such values."""
        for tables, requests in zip(self.tables_by_group, self._requests, strict=True):
            if requests.untyped_paths:
                yield tables[0], bound_paths(requests.untyped_paths)

    def problems(self, shape: pa.Schema | None, key_shape: pa.Schema | None = None) -> list[str]:
        """Return a message for each column of the first table that no record could ever fill.

        Args:
            shape: Fields of all values before transforms; None if values differ.
            key_shape: Fields of all keys before transforms; None if keys differ, or are not decoded.

        Raises:
            Terminal: a transform does not fit the fields that it gets.
        """
        if self._shaped is not None:
            return self._shaped.problems(self._fitters[0], shape, key_shape)
        return [] if key_shape is None or self._key_columns is None else self._key_columns.check(key_shape)

    def decode(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[DecodedGroup], Dead, LeftOut, UnknownFieldPairs]:
        """Decode the values of the records at positions `present`, which have one; forget the requests of earlier records.

        Returns:
            The rows; reasons of records that are dead as a whole; positions of those that are filtered out; and fields that the
            values' own schema does not have, whatever the columns of a table are.
        """
        for requests in self._requests:
            requests.clear()
        if self._shaped is None:
            return *self._decode_json(records, present), {}, NOTHING_UNKNOWN
        decoded, dead, left_out, format_unknown = self._shaped.decode(records, present)
        groups = [
            DecodedGroup(rows.positions, self._texts(records, rows), partial(self._fit_typed, rows)) for rows in decoded
        ]
        return groups, dead, left_out, format_unknown

    def decode_tombstones(
        self, records: pa.RecordBatch, positions: pa.Int64Array
    ) -> tuple[list[DecodedGroup], Dead, list[int]]:
        """Return the rows that tombstones delete, the reasons of dead tombstones, and the positions of those that are filtered out."""
        if self._tombstones is None:
            return [], {}, []
        frames, dead, filtered = self._tombstones.frames(records, positions)
        groups = [
            DecodedGroup(
                frame.positions,
                self._tombstone_texts(frame),
                partial(self._fit_tombstones, frame),
                deletes=True,
            )
            for frame in frames
        ]
        return groups, dead, filtered

    def _texts(self, records: pa.RecordBatch, rows: TypedRows) -> pa.StringArray:
        if not self._has_route:
            return _NO_TEXTS
        if self._path is not None:
            return route_texts(rows.value, self._path, case_insensitive=self._fold)
        if self._route_header is not None:
            return header_texts(rows.headers, self._route_header)
        return records.column("topic").take(rows.positions) if rows.topic is None else rows.topic

    def _tombstone_texts(self, frame: Frame) -> pa.StringArray:
        if self._path is not None:
            return pa.nulls(len(frame), pa.string())
        return frame.topic if self._route_header is None else header_texts(frame.headers, self._route_header)

    def _fit_typed(self, typed: TypedRows, group: int, rows: pa.Int64Array | None) -> Fitted:
        chosen = typed if rows is None else typed.take(rows)
        fitted, columns = self._fitters[group].fit(chosen), self._header_columns[group]
        return fitted if columns is None else columns.join(fitted, chosen.headers)

    def _fit_tombstones(self, frame: Frame, group: int, rows: pa.Int64Array | None) -> Fitted:
        fitter, columns = self._deleted_row_fitters[group], self._deleted_header_columns[group]
        if fitter is None:  # a table that keeps every record: a tombstone deletes nothing there
            no_deletes = no_rows(self._whole_specs[group].change_schema)
            return Fitted(no_deletes, pa.array([], pa.int64()), {}, NOTHING_UNKNOWN)
        chosen = frame if rows is None else frame.take(rows)
        fitted = fitter.fit(chosen)
        return fitted if columns is None else columns.join(fitted, chosen.headers)

    def _decode_json(self, records: pa.RecordBatch, present: pa.Int64Array) -> tuple[list[DecodedGroup], Dead]:
        """Decode the keys of JSON records, and the field that routes them. Each table then reads its columns from the values' bytes."""
        values, dead, key_rows, texts = records.column("value"), dict[int, Reason](), None, _NO_TEXTS
        if self._keys is not None:
            key_rows, present, dead = _fit_keys(decode_keys(self._keys, records, present), self._key_columns)
        if self._route_decoder is not None:
            block, failed = self._route_decoder.rows(take_distinct(values, present))
            texts = block.rows.column(0).take(pc.index_in(pa.arange(0, len(present)), value_set=block.positions))
            undecoded = [index for index, reason in failed.items() if reason.code.stage is Stage.DECODE]
            if undecoded:
                dead = {present[index].as_py(): failed[index] for index in undecoded}
                is_good = mask_without(len(present), undecoded)
                texts, present = texts.filter(is_good), present.filter(is_good)
        elif self._route_header is not None:
            texts = header_texts(records.column("headers").take(present), self._route_header)
        elif self._has_route:
            texts = records.column("topic").take(present)

        def fit(group: int, rows: pa.Int64Array | None) -> Fitted:
            chosen = present if rows is None else present.take(rows)
            block, unfit = self._json[group].rows(take_distinct(values, chosen))
            fitted = Fitted(block.rows, block.positions, unfit, block.unknown_fields)
            if self._key_columns is not None and key_rows is not None:
                joined = self._key_columns.joined(block.rows, key_rows.take(block.positions))
                fitted = replace(fitted, rows=joined)
            columns = self._header_columns[group]
            return fitted if columns is None else columns.join(fitted, records.column("headers").take(chosen))

        return [DecodedGroup(present, texts, fit)] if len(present) else [], dead


def _fit_keys(keys: DecodedKeys, columns: KeyColumns | None) -> tuple[pa.RecordBatch | None, pa.Int64Array, Dead]:
    """Return the rows of columns that take keys, if there are any; the positions of records with good keys; and the dead ones."""
    if columns is None:
        return None, keys.alive, keys.dead
    blocks, dead = list[Block](), dict(keys.dead)
    for group in keys.groups:
        fitted = columns.fit(group.columns, len(group.positions))
        blocks.append(Block(fitted.rows, group.positions.take(fitted.input_rows)))
        dead |= {group.positions[row].as_py(): reason for row, reason in fitted.dead.items()}
    key_block = in_order(blocks, columns.schema)
    return key_block.rows, key_block.positions, dead


def _tables_by_spec(specs: Sequence[RecordSpec]) -> tuple[list[RecordSpec], list[list[int]]]:
    """Return the distinct specs, and the numbers of the tables of each. A table that evolves shares its spec with no other one."""
    group_specs: list[RecordSpec] = []
    tables_by_group: list[list[int]] = []
    for number, spec in enumerate(specs):
        plain = replace(
            spec, kafka_columns=None, merge=None if spec.merge is None else replace(spec.merge, deleted=None)
        )
        # Only a table's own rows may request changes of its schema.
        if not spec.evolution and plain in group_specs:
            tables_by_group[group_specs.index(plain)].append(number)
        else:
            group_specs.append(plain)
            tables_by_group.append([number])
    return group_specs, tables_by_group


def _route_spec(spec: RecordSpec, path: tuple[str, ...]) -> RecordSpec:
    """Return the spec that reads nothing but the routing field of a JSON value."""
    return RecordSpec(
        pa.schema([pa.field("route", pa.string())]),
        sources={"route": path},
        duplicate_keys=spec.duplicate_keys,
        field_names=spec.field_names,
        casts="text",
        kafka_columns=None,
    )


def _typed_values(specs: Sequence[RecordSpec], route: Sequence[str], *, blocks: bool) -> PayloadDecoder:
    """Return the decoder of values to columns of their own schema; that of JSON is declared or inferred."""
    spec = specs[0]
    fields = spec.of_value.columns if spec.fields is None else spec.fields
    agreement = value_agreement(specs, route) if spec.infers else EXACT
    return _payload_decoder("value", spec, spec.format, fields, agreement, blocks=blocks)


def value_agreement(specs: Sequence[RecordSpec], route: Sequence[str] = ()) -> Agreement:
    """Return in which fields JSON values may differ and still be decoded together."""
    transforms = specs[0].transforms
    named_by_transforms = named_fields(transforms)
    flattens = [transform for transform in transforms if isinstance(transform, Flatten) and transform.target == "value"]
    reads_all = any(spec.whole_columns or spec.tells_changes for spec in specs)
    if named_by_transforms is None or reads_all or len(flattens) > 1:
        return EXACT
    columns = (
        column for spec in specs for column in spec.column_specs if column.has_default or column.steps != (column.name,)
    )
    exact = (
        named_by_transforms
        | {column.steps[0].casefold() for column in columns}
        | {name.casefold() for name in route[:1]}
    )
    column_types = [{(column.name, column.type) for column in spec.columns} for spec in specs]
    differing = set[Any].union(*column_types) - set[Any].intersection(*column_types)
    closed = frozenset(name.casefold() for name, _ in differing)
    return Agreement(exact, closed, *((flattens[0].delimiter, flattens[0].depth) if flattens else ()))


def _payload_decoder(
    part: PayloadName,
    spec: RecordSpec,
    format_spec: FormatSpec,
    fields: pa.Schema | None,
    agreement: Agreement = EXACT,
    *,
    blocks: bool,
) -> PayloadDecoder:
    if format_spec.name != JSON:
        return PayloadDecoder(part, format_spec, open_format(format_spec, blocks=blocks))
    if fields is None:
        raise BAD_SCHEMA.terminal(
            f"the fields of the JSON {part} are not declared", next_step=f"declare them under {part}.fields"
        )
    if part == "value" and spec.infers:
        return PayloadDecoder(part, format_spec, InferredJson(spec, fields, agreement, blocks=blocks))
    json = RecordSpec(
        fields,
        format=format_spec,
        duplicate_keys=spec.duplicate_keys,
        field_names=spec.field_names,
        casts=spec.casts,
        kafka_columns=None,
    )
    return PayloadDecoder(part, format_spec, JsonValues(json, blocks=blocks))
