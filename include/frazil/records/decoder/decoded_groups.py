"""Decodes a batch once for several tables, then fits it to each group of tables that have the same columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.schema_change import SchemaChange, bounded
from frazil.records.casting.fitter import Fitted
from frazil.records.decoder.decode import json_decoder, shaped_decoder, tombstone_decoder
from frazil.records.decoder.route import route_texts
from frazil.records.decoder.tombstones import DeletedRowFitter
from frazil.records.decoder.typed_decoder import LeftOut
from frazil.records.evolution.schema_requests import SchemaRequests
from frazil.records.json.values import JsonValues
from frazil.records.model.dead_letter import Reason, Stage
from frazil.records.model.frame import Frame
from frazil.records.model.rows import no_rows
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownFieldPairs


@dataclass(frozen=True)
class DecodedGroup:
    """Decoded rows of one schema, not yet fitted to the columns of tables.

    Attributes:
        positions: int64, per row the position of its record, ascending; rows of one record share it.
        texts: Per row the text that routes it, null where there is none.
        fit: Fits rows, ascending, to the columns of a group of tables, by the group's index.
    """

    positions: pa.Int64Array
    texts: pa.StringArray
    fit: Callable[[int, pa.Int64Array], Fitted]


class GroupDecoder:
    """Decodes the batches of a pipeline, and fits them to its tables.

    Attributes:
        tables_by_group: Per group of tables with the same columns, the tables' numbers.

    Args:
        specs: How records become rows, table by table.
        path: Names from the root of a value to the field that routes it; None if the topic does, or nothing.
        blocks: Whether JSON values may be parsed as blocks where that is exact.

    Raises:
        Terminal: a spec can't be met.
    """

    def __init__(self, specs: Sequence[RecordSpec], path: tuple[str, ...] | None, *, blocks: bool = True) -> None:
        group_specs, self.tables_by_group = _tables_by_spec(specs)
        self._group_specs: Final = group_specs
        self._requests: Final = [SchemaRequests(spec.fold is not None) for spec in group_specs]
        self._path: Final = path
        self._fold: Final = specs[0].field_names == "case_insensitive"
        self._shaped: Final = (
            [
                shaped_decoder(spec, requests, specs=group_specs, route=path or (), blocks=blocks)
                for spec, requests in zip(group_specs, self._requests, strict=True)
            ]
            if any(spec.is_shaped for spec in group_specs) or specs[0].key
            else []
        )
        self._json: Final = [
            json_decoder(spec, requests, blocks=blocks)
            for spec, requests in zip(group_specs, self._requests, strict=True)
            if not self._shaped
        ]
        takes = any(spec.tombstone == "delete" for spec in group_specs)
        self._tombstones: Final = tombstone_decoder(specs[0], blocks=blocks) if takes else None
        self._deleted_row_fitters: Final = [
            DeletedRowFitter(spec) if spec.tombstone == "delete" else None for spec in group_specs
        ]
        self._route_decoder: Final = (
            JsonValues(_route_spec(specs[0], path), blocks=blocks) if path and not self._shaped else None
        )

    @property
    def take_tombstones(self) -> bool:
        """Whether a record without value may delete a row of some table."""
        return self._tombstones is not None

    def clear_requests(self) -> None:
        """Forget the schema changes that earlier rows requested."""
        for requests in self._requests:
            requests.clear()

    def demands(self) -> Iterator[tuple[int, tuple[SchemaChange, ...]]]:
        """Yield the number of each table whose rows need schema changes, with these changes."""
        for tables, spec, requests in zip(self.tables_by_group, self._group_specs, self._requests, strict=True):
            if changes := requests.demands(spec):
                yield tables[0], changes

    def untyped_paths(self) -> Iterator[tuple[int, frozenset[tuple[str, ...]]]]:
        """Yield the number of each table whose rows have values without a type and a column, with their paths."""
        for tables, requests in zip(self.tables_by_group, self._requests, strict=True):
            if requests.untyped_paths:
                yield tables[0], bounded(requests.untyped_paths)

    def decode(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[DecodedGroup], dict[int, Reason], LeftOut, UnknownFieldPairs]:
        """Decode the values of the records at positions `present`, which have one.

        Returns:
            The rows; reasons of records that are dead as a whole; positions of those that were left out on purpose; and
            fields that the format has no place for, whatever the columns of a table are.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        if not self._shaped:
            return *self._decode_json(records, present), {}, NOTHING_UNKNOWN
        frames, dead, left_out, format_unknown = self._shaped[0].frames(records, present)
        path, fold = self._path, self._fold
        decoded = [
            DecodedGroup(
                frame.positions,
                frame.topic if path is None else route_texts(frame.value, path, case_insensitive=fold),
                self._fit_values(frame),
            )
            for frame in frames
        ]
        return decoded, dead, left_out, format_unknown

    def decode_tombstones(
        self, records: pa.RecordBatch, positions: pa.Int64Array
    ) -> tuple[list[DecodedGroup], dict[int, Reason], list[int]]:
        """Return the rows that records without value delete, reasons of others, and positions of what was left out.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """
        if self._tombstones is None:
            return [], {}, []
        frames, dead, filtered = self._tombstones.frames(records, positions)
        no_route = None if self._path is None else pa.nulls(len(records), pa.string())
        decoded = [
            DecodedGroup(
                frame.positions,
                frame.topic if no_route is None else no_route[: len(frame)],
                self._fit_tombstones(frame),
            )
            for frame in frames
        ]
        return decoded, dead, filtered

    def _fit_tombstones(self, frame: Frame) -> Callable[[int, pa.Int64Array], Fitted]:
        def fit(group: int, rows: pa.Int64Array) -> Fitted:
            deleted = self._deleted_row_fitters[group]
            if deleted is None:  # a table that keeps every record: a tombstone deletes nothing there
                no_deletes = no_rows(self._group_specs[group].change_schema)
                return Fitted(no_deletes, pa.array([], pa.int64()), {}, NOTHING_UNKNOWN)
            return deleted.fit(frame.take(rows))

        return fit

    def _fit_values(self, frame: Frame) -> Callable[[int, pa.Int64Array], Fitted]:
        return lambda group, rows: self._shaped[group].fit(frame.take(rows))

    def _decode_json(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[DecodedGroup], dict[int, Reason]]:
        """Decode JSON values that are parsed twice: for the field that routes them, then straight into their tables' columns."""
        values, dead = records.column("value"), dict[int, Reason]()
        texts = records.column("topic").take(present)
        if self._route_decoder is not None:
            block, failed = self._route_decoder.rows(values.take(present))
            texts = block.rows.column(0).take(pc.index_in(pa.array(range(len(present)), pa.int64()), block.positions))
            positions = present.to_pylist()
            dead = {positions[index]: reason for index, reason in failed.items() if reason.code.stage is Stage.DECODE}
            good = [index for index, position in enumerate(positions) if position not in dead] if dead else None
            if good is not None:
                good_indices = pa.array(good, pa.int64())
                texts, present = texts.take(good_indices), present.take(good_indices)

        def fit(group: int, rows: pa.Int64Array) -> Fitted:
            block, bad = self._json[group].rows(values.take(present.take(rows)))
            return Fitted(block.rows, block.positions, bad, block.unknown_fields)

        return [DecodedGroup(present, texts, fit)] if len(present) else [], dead


def _tables_by_spec(specs: Sequence[RecordSpec]) -> tuple[list[RecordSpec], list[list[int]]]:
    """Return the distinct specs, and per spec the numbers of its tables. A table that evolves has a spec of its own."""
    group_specs: list[RecordSpec] = []
    tables_by_group: list[list[int]] = []
    for number, spec in enumerate(specs):
        plain = replace(
            spec, kafka_columns=None, merge=None if spec.merge is None else replace(spec.merge, deleted=None)
        )
        # Only a table's own rows may request changes of its schema.
        same = (
            None
            if spec.evolution
            else next((index for index, group_spec in enumerate(group_specs) if group_spec == plain), None)
        )
        if same is None:
            group_specs.append(plain)
            tables_by_group.append([number])
        else:
            tables_by_group[same].append(number)
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
