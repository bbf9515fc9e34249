"""Decodes JSON values straight into the columns of a table whose schema follows them.

Values are decoded as for any table. Only values that another schema may decode better are inspected one by one: those with
a field that no column takes, or with a value that its column can't hold. Where columns are nested, more values are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.evolution.inspect import EVOLVABLE, Inspection, Object, ObjectInspector
from frazil.records.evolution.schema_requests import SchemaRequests, rescued_labels
from frazil.records.json.exact import parse_object
from frazil.records.json.record import unknown_field
from frazil.records.json.values import Dead, JsonValues
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.json_text import document
from frazil.records.model.rows import Block, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownFieldPairs


class EvolvingJson:
    """Decodes JSON objects, and collects the schema changes that they need."""

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        # A random name, which no value holds by chance: no sender can fake the text of rescued fields.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._json: Final = (
            JsonValues(spec.without_evolution(self._rest_name), blocks=blocks) if spec.columns.names else None
        )
        self._inspector: Final = ObjectInspector(spec)
        self._requests: Final = requests
        self._has_rescued: Final = spec.rescued_column in spec.columns.names

    def rows(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows and reasons, as `JsonValues.rows`; both are void if a schema change is requested."""
        block, dead = self._rows_without_columns(values) if self._json is None else self._json.rows(values)
        texts: dict[int, bytes] = {}
        rescued: dict[int, list[str]] = {}
        refused: Dead = {}
        requests = SchemaRequests(self._spec.fold is not None)
        for position in self._suspects(block, dead, len(values)):
            value = self._parsed(values, position)
            inspection = self._inspector.inspect(value, is_row=position not in dead)
            requests.add_all(inspection.requests)
            if requests.is_full:  # the rows are void already, and no further field can be requested
                break
            if not self._has_rescued and self._rescued_fields(inspection):
                requests.add((self._spec.rescued_column,), pa.string())
            if requests or inspection.is_dead:
                continue
            if inspection.untyped_fields and self._spec.unknown_fields == "fail":
                refused[position] = unknown_field(sorted(inspection.untyped_fields)).reason
            elif (rest := self._rescued_fields(inspection)) or inspection.is_moved:
                texts[position] = self._document_with_rest(value, rest, self._parsed(values, position))
                rescued[position] = rescued_labels(self._spec, inspection.rescued_paths)
        self._requests.add_all(requests)
        if requests or not (texts or refused):
            return block, dead
        return self._with_replaced(block, dead, texts, refused, UnknownFieldPairs.from_names(rescued))

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of the values to inspect, ascending."""
        if self._inspector.has_structs or self._json is None:
            return suspects(block, dead, size, EVOLVABLE)
        return without_hopeless(pc.unique(block.unknown_fields.positions).to_pylist(), dead, EVOLVABLE)

    def _parsed(self, values: pa.BinaryArray, position: int) -> Object:
        """Parse a value again; that can't fail, since the decoder has parsed it."""
        repeated, in_order_ = self._spec.duplicate_keys == "last", self._spec.fold is not None
        return parse_object(values[position].as_py(), repeated_keys=repeated, in_order=in_order_)

    def _rescued_fields(self, inspection: Inspection) -> set[str]:
        """Return the top-level fields that go to the column for rescued fields."""
        if inspection.is_dead:
            return set()
        return (
            inspection.rescued_fields | inspection.untyped_fields
            if self._spec.unknown_fields == "rescue"
            else inspection.rescued_fields
        )

    def _document_with_rest(self, value: Object, rescued_fields: set[str], original: Object) -> bytes:
        """Return the JSON text of an object, with its rescued fields as the JSON text of one field."""
        written = {
            name: item for name, item in value.items() if name not in rescued_fields or self._inspector.has_column(name)
        }
        if rescued_fields:
            written[self._rest_name] = document({name: original[name] for name in original if name in rescued_fields})
        return document(written).encode()

    def _with_replaced(
        self, block: Block, dead: Dead, texts: dict[int, bytes], refused: Dead, rescued: UnknownFieldPairs
    ) -> tuple[Block, Dead]:
        merged, reasons = replace_values(self._json, block, dead, texts, refused)
        unknown_fields = UnknownFieldPairs.concat([merged.unknown_fields, rescued])
        return Block(merged.rows, merged.positions, unknown_fields), dict(sorted(reasons.items()))

    def _rows_without_columns(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows without columns, for a table that has none yet."""
        names: dict[int, tuple[str, ...]] = {}
        dead: dict[int, Reason] = {}
        for position in range(len(values)):
            try:
                names[position] = tuple(self._parsed(values, position))
            except Rejection as verdict:
                dead[position] = verdict.reason
        rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(names), pa.struct([])))
        return Block(rows, pa.array(names, pa.int64()), UnknownFieldPairs.from_names(names)), dead


def suspects(block: Block, dead: Dead, size: int, codes: AbstractSet[DeadCode]) -> list[int]:
    """Return the positions of values that were not fully read, ascending; of dead ones those with one of these codes."""
    plain = pc.is_in(pa.arange(0, size), value_set=block.fully_read)
    return without_hopeless(pc.indices_nonzero(pc.invert(plain)).to_pylist(), dead, codes)


def without_hopeless(positions: Iterable[int], dead: Dead, codes: AbstractSet[DeadCode]) -> list[int]:
    """Return these and the dead values that have one of these codes, ascending; no other dead value."""
    return sorted({*positions, *dead} - {position for position, reason in dead.items() if reason.code not in codes})


def replace_values(
    json: JsonValues | None, block: Block, dead: Dead, texts: Mapping[int, bytes], refused: Dead
) -> tuple[Block, Dead]:
    """Return rows and reasons with some values decoded again from other texts, and others refused."""
    replaced, text_positions = pa.array([*texts, *refused], pa.int64()), pa.array(texts, pa.int64())
    is_unchanged = pc.invert(pc.is_in(block.positions, value_set=replaced))
    is_counted = pc.invert(pc.is_in(block.unknown_fields.positions, value_set=replaced))
    pairs = block.unknown_fields
    unknown_fields = UnknownFieldPairs(pairs.positions.filter(is_counted), pairs.names.filter(is_counted))
    blocks = [Block(block.rows.filter(is_unchanged), block.positions.filter(is_unchanged), unknown_fields)]
    reasons = {position: reason for position, reason in dead.items() if position not in texts} | refused
    if json is not None and texts:
        decoded, failed = json.rows(pa.array(list(texts.values()), pa.binary()))
        read_fields = decoded.unknown_fields.map_positions(text_positions)
        blocks.append(Block(decoded.rows, text_positions.take(decoded.positions), read_fields))
        reasons |= {text_positions[position].as_py(): reason for position, reason in failed.items()}
    merged = in_order(blocks, block.rows.schema)
    all_unknown = UnknownFieldPairs.concat(part.unknown_fields for part in blocks)
    return Block(merged.rows, merged.positions, all_unknown), reasons
