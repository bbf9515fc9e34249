"""Decoded rows before columns, and their fit to the columns of several tables: tables of the same columns share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.schema_change import SchemaChange, bounded
from frazil.records.casting.fitter import Fitted
from frazil.records.decoder.decode import json_values, shaped_decoder, tombstones_of
from frazil.records.decoder.route import route_texts
from frazil.records.decoder.tombstones import DeletedRows
from frazil.records.decoder.typed_decoder import LeftOut
from frazil.records.evolution.schema_requests import Asked
from frazil.records.json.values import JsonValues
from frazil.records.model.dead_letter import Reason, Stage
from frazil.records.model.frame import Frame
from frazil.records.model.rows import no_rows
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import NOTHING_UNKNOWN, UnknownAt


@dataclass(frozen=True)
class DecodedGroup:
    """Decoded rows before columns.

    Attributes:
        positions: int64, per row the position of its record, ascending; rows of one record share it.
        texts: Per row what decides about its tables, null where there is nothing.
        fit: Fits rows, ascending, to the columns of a group of tables.
    """

    positions: pa.Int64Array
    texts: pa.StringArray
    fit: Callable[[int, pa.Int64Array], Fitted]


class Sheets:
    """Makes the sheets of a pipeline's batches.

    Args:
        specs: What is wanted of the records, table by table.
        path: Names from the root of a value to the field that routes it; None if the topic does, or nothing.
        blocks: Whether JSON values may be parsed as blocks where that is exact.

    Raises:
        Terminal: a spec can't be met.
    """

    def __init__(self, specs: Sequence[RecordSpec], path: tuple[str, ...] | None, *, blocks: bool = True) -> None:
        kinds, self.groups = _groups(specs)
        self._kinds: Final = kinds
        self._asked: Final = [Asked(spec.fold is not None) for spec in kinds]
        self._path: Final = path
        self._fold: Final = specs[0].field_names == "case_insensitive"
        self._shaped: Final = (
            [
                shaped_decoder(spec, asked, specs=kinds, route=path or (), blocks=blocks)
                for spec, asked in zip(kinds, self._asked, strict=True)
            ]
            if any(spec.is_shaped for spec in kinds) or specs[0].key
            else []
        )
        self._json: Final = [
            json_values(spec, asked, blocks=blocks)
            for spec, asked in zip(kinds, self._asked, strict=True)
            if not self._shaped
        ]
        takes = any(spec.tombstone == "delete" for spec in kinds)
        self._tombstones: Final = tombstones_of(specs[0], blocks=blocks) if takes else None
        self._deleted: Final = [DeletedRows(spec) if spec.tombstone == "delete" else None for spec in kinds]
        self._deciding: Final = (
            JsonValues(_deciding(specs[0], path), blocks=blocks) if path and not self._shaped else None
        )

    @property
    def take_tombstones(self) -> bool:
        """Whether a record without value may delete a row of some table."""
        return self._tombstones is not None

    def forget(self) -> None:
        """Forget what was needed by rows that were fitted before."""
        for asked in self._asked:
            asked.clear()

    def demands(self) -> Iterator[tuple[int, tuple[SchemaChange, ...]]]:
        """Yield the tables, by number, that lack what rows which were fitted to them need, and that."""
        for tables, spec, asked in zip(self.groups, self._kinds, self._asked, strict=True):
            if changes := asked.demands(spec):
                yield tables[0], changes

    def untold(self) -> Iterator[tuple[int, frozenset[tuple[str, ...]]]]:
        """Yield the tables, by number, with rows that were fitted to them without what tells no type, and the paths of that."""
        for tables, asked in zip(self.groups, self._asked, strict=True):
            if asked.untold:
                yield tables[0], bounded(asked.untold)

    def of(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[DecodedGroup], dict[int, Reason], LeftOut, UnknownAt]:
        """Decode the values of the records at positions `present`, which have one.

        Returns:
            The rows; reasons of records that are dead as a whole; positions of those that were left out on purpose; and
            fields that the format has no place for, whatever the columns of a table are.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses, or a transform does not fit the fields that it gets.
        """
        if not self._shaped:
            return *self._json_sheets(records, present), {}, NOTHING_UNKNOWN
        frames, dead, left_out, outside = self._shaped[0].frames(records, present)
        path, fold = self._path, self._fold
        sheets = [
            DecodedGroup(
                frame.positions,
                frame.topic if path is None else route_texts(frame.value, path, case_insensitive=fold),
                self._fit_of(frame),
            )
            for frame in frames
        ]
        return sheets, dead, left_out, outside

    def deleted(
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
        nothing = None if self._path is None else pa.nulls(len(records), pa.string())
        sheets = [
            DecodedGroup(
                frame.positions, frame.topic if nothing is None else nothing[: len(frame)], self._fit_deleted(frame)
            )
            for frame in frames
        ]
        return sheets, dead, filtered

    def _fit_deleted(self, frame: Frame) -> Callable[[int, pa.Int64Array], Fitted]:
        def fit(group: int, rows: pa.Int64Array) -> Fitted:
            deleted = self._deleted[group]
            if deleted is None:  # a table that keeps every record: it tells of no row there
                nothing = no_rows(self._kinds[group].change_schema)
                return Fitted(nothing, pa.array([], pa.int64()), {}, NOTHING_UNKNOWN)
            return deleted.fit(frame.take(rows))

        return fit

    def _fit_of(self, frame: Frame) -> Callable[[int, pa.Int64Array], Fitted]:
        return lambda group, rows: self._shaped[group].fit(frame.take(rows))

    def _json_sheets(
        self, records: pa.RecordBatch, present: pa.Int64Array
    ) -> tuple[list[DecodedGroup], dict[int, Reason]]:
        """JSON values that are rows at once: parsed for the field that decides, then for the columns of their tables."""
        values, dead = records.column("value"), dict[int, Reason]()
        texts = records.column("topic").take(present)
        if self._deciding is not None:
            block, bad = self._deciding.rows(values.take(present))
            texts = block.rows.column(0).take(pc.index_in(pa.array(range(len(present)), pa.int64()), block.positions))
            places = present.to_pylist()
            dead = {places[at]: of for at, of in bad.items() if of.code.stage is Stage.DECODE}
            good = [at for at, place in enumerate(places) if place not in dead] if dead else None
            if good is not None:
                kept = pa.array(good, pa.int64())
                texts, present = texts.take(kept), present.take(kept)

        def fit(group: int, rows: pa.Int64Array) -> Fitted:
            block, bad = self._json[group].rows(values.take(present.take(rows)))
            return Fitted(block.rows, block.positions, bad, block.unknown)

        return [DecodedGroup(present, texts, fit)] if len(present) else [], dead


def _groups(specs: Sequence[RecordSpec]) -> tuple[list[RecordSpec], list[list[int]]]:
    """Tables of the same columns, which are decoded together, unless they evolve."""
    kinds: list[RecordSpec] = []
    groups: list[list[int]] = []
    for number, spec in enumerate(specs):
        plain = replace(
            spec, kafka_columns=None, merge=None if spec.merge is None else replace(spec.merge, deleted=None)
        )
        # What a table lacks is told by its own rows only.
        known = None if spec.evolution else next((at for at, kind in enumerate(kinds) if kind == plain), None)
        if known is None:
            kinds.append(plain)
            groups.append([number])
        else:
            groups[known].append(number)
    return kinds, groups


def _deciding(spec: RecordSpec, path: tuple[str, ...]) -> RecordSpec:
    """What is read of a JSON value to route it."""
    return RecordSpec(
        pa.schema([pa.field("route", pa.string())]),
        sources={"route": path},
        duplicate_keys=spec.duplicate_keys,
        field_names=spec.field_names,
        casts="text",
        kafka_columns=None,
    )
