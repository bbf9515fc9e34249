"""Decodes JSON objects straight into the columns of a table whose schema follows its records.

The decoder decides what a value becomes. An inspection of the object finds the schema changes that it needs, the fields that move
to another column, and those that get no column: they go, with all that is in them, to the column for rescued fields.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.casting.source import Kind, child_fields, kind_of
from frazil.records.evolution.infer import has_evidence, infer, wider_scalar
from frazil.records.evolution.schema_requests import Inspector, Path, SchemaRequests, rescued_labels, rescuing_columns
from frazil.records.evolution.types import NO_TYPE, type_from_evidence, variant_name
from frazil.records.json.convert import Converter, converter
from frazil.records.json.exact import parse_object
from frazil.records.json.record import unknown_field
from frazil.records.json.typed import Dead, JsonValues
from frazil.records.model.column import Reading
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.json_number import JsonObject, JsonValue, Number, document
from frazil.records.model.rows import Block, UnknownFieldPairs, in_order
from frazil.records.model.spec import RecordSpec

EVOLVABLE: Final = frozenset(
    {DeadCode.WRONG_TYPE, DeadCode.OUT_OF_RANGE, DeadCode.LOSSY_CAST, DeadCode.MISSING_REQUIRED}
)
"""Codes of dead letters that would be rows if the table had another schema."""

_MAX_COUNTED: Final = 100
"""The most rescued paths of one object that are counted. Keys may be data, so there may be any number."""


class _Plans(dict[str, "_ColumnPlan"]):
    """The columns of a table, or the fields of a nested column, by folded name; `required` are those that may not be null."""

    def __init__(self, plans: dict[str, _ColumnPlan]) -> None:
        super().__init__(plans)
        self.required: Final = {key: plan for key, plan in plans.items() if plan.required}


class _ColumnPlan:
    """A column, or a nested field of one, prepared for checking values against its type."""

    def __init__(self, column: pa.Field, reading: Reading, *, has_default: bool = False) -> None:
        self.name: Final = column.name
        self.type: Final = column.type
        self.required: Final = not column.nullable and not has_default
        self.kind: Final = kind_of(column.type)
        children = child_fields(column.type)
        key = str if reading.fold is None else str.casefold
        self.parts: Final = _Plans({key(child.name): _ColumnPlan(child, reading) for child in children})
        self.convert: Final[Converter | None] = None if self.parts else converter(column.type, reading)
        self.reading: Final = reading

    @property
    def has_structs(self) -> bool:
        return self.kind is Kind.STRUCT or any(part.has_structs for part in self.parts.values())


@dataclass
class Inspection:
    """The result of inspecting one object.

    Attributes:
        requests: The schema changes that it needs.
        rescued_fields: Top-level fields that go unchanged to the column for rescued fields.
        rescued_paths: Paths of the fields without a column that cause this.
        untyped_fields: Top-level fields without a column that are not null but have no type, such as `[]`.
        is_dead: Whether it can't become a row, whatever columns the table has.
        is_moved: Whether a field now has the name of a variant column.
        fits: Whether its values are known to fit the columns that take them.
    """

    requests: SchemaRequests
    rescued_fields: set[str] = field(default_factory=set)
    rescued_paths: set[Path] = field(default_factory=set)
    untyped_fields: set[str] = field(default_factory=set)
    is_dead: bool = False
    is_moved: bool = False
    fits: bool = False

    def rescue(self, top_field: str, path: Path) -> None:
        """Mark a top-level field as rescued, because no column takes the field at `path`."""
        self.rescued_fields.add(top_field)
        if len(self.rescued_paths) < _MAX_COUNTED:
            self.rescued_paths.add(path)


class ObjectInspector(Inspector):
    """Inspects JSON objects."""

    def __init__(self, spec: RecordSpec) -> None:
        super().__init__(spec)
        self._columns: Final = _Plans(
            {
                self._key(column.name): _ColumnPlan(
                    spec.columns.field(column.name), column.reading, has_default=column.has_default
                )
                for column in self._column_specs
                if column.steps == (column.name,)
            }
        )
        self._rescuing_columns: Final = {self._key(name) for name in rescuing_columns(spec)}
        self.has_structs: Final = any(plan.has_structs for plan in self._columns.values())
        """Whether some column has nested fields."""

    def inspect(self, value: JsonObject, *, is_row: bool = False) -> Inspection:
        """Inspect an object, and rename its fields that variant columns take.

        `is_row`: the object is decoded already, so its values fit the columns that take them.
        """
        inspection = Inspection(SchemaRequests(self._fold is not None), fits=is_row)
        self._inspect_fields(value, self._columns, (), None, inspection)
        if inspection.is_dead:
            inspection.requests = SchemaRequests(self._fold is not None)
        return inspection

    def _inspect_fields(
        self, value: JsonObject, plans: _Plans, path: Path, top_field: str | None, inspection: Inspection
    ) -> None:
        last = {self._key(name): name for name in value}
        for position, (key, name) in enumerate(last.items()):
            item, plan = value[name], plans.get(key)
            if item is None:
                continue
            if plan is None:
                self._inspect_unknown(name, item, path, top_field, inspection, position)
            elif not self._fits(item, plan, (*path, plan.name), top_field or name, inspection):
                self._inspect_incompatible(value, name, plan, plans, path, top_field=top_field, inspection=inspection)
        for key, plan in plans.required.items():
            if value.get(last.get(key, "")) is None and self._evolution.relaxes(*path, plan.name):
                inspection.requests.optional.add((*path, plan.name))

    def _inspect_unknown(
        self, name: str, item: JsonValue, path: Path, top_field: str | None, inspection: Inspection, position: int
    ) -> None:
        key = self._key(name)
        if top_field is None and self._needs_no_column(key, self._columns):
            return
        if top_field is None and key in self._reserved_names:
            if has_evidence(item):
                inspection.rescue(name, (name,))
            else:
                inspection.untyped_fields.add(name)
            return
        may_add = not inspection.requests.is_full and self._may_add(name)
        if not may_add and has_evidence(item):
            inspection.rescue(top_field or name, (*path, name))
            return
        field_type, is_whole = infer(item, len(path) + 1, self._evolution, fold=self._fold)
        if not is_whole:
            inspection.rescue(top_field or name, (*path, name))
        if field_type == NO_TYPE:
            inspection.requests.add_untyped((*path, name))
            inspection.untyped_fields.update([name] if top_field is None and is_whole else [])
        else:
            inspection.requests.add((*path, name), field_type, position=position)

    def _fits(self, item: JsonValue, plan: _ColumnPlan, path: Path, top_field: str, inspection: Inspection) -> bool:
        """Request what makes a value fit its column; return whether it fits then."""
        if plan.convert is not None:
            return self._scalar_fits(item, plan, path, inspection)
        if plan.kind is Kind.STRUCT:
            if isinstance(item, dict):
                self._inspect_fields(item, plan.parts, path, top_field, inspection)
            return isinstance(item, dict)
        (item_plan,) = plan.parts.values()
        if plan.kind is Kind.LIST:
            return isinstance(item, list) and self._items_fit(item, item_plan, path, top_field, inspection)
        if not isinstance(item, dict):  # a list may be the entries of a map: the decoder decides
            return isinstance(item, list)
        return self._items_fit(list(item.values()), item_plan, path, top_field, inspection)

    def _items_fit(
        self, items: list[JsonValue], item_plan: _ColumnPlan, path: Path, top_field: str, inspection: Inspection
    ) -> bool:
        # Check all items, even after one that does not fit: requests must not depend on their order.
        fits = [
            item is None or self._fits(item, item_plan, (*path, item_plan.name), top_field, inspection)
            for item in items
        ]
        return all(fits)

    def _scalar_fits(self, item: JsonValue, plan: _ColumnPlan, path: Path, inspection: Inspection) -> bool:
        if inspection.fits:
            return True
        try:
            if plan.convert is not None:
                plan.convert(item)
        except Rejection as e:
            if e.reason.code not in EVOLVABLE:
                inspection.is_dead = True
                return True
            wider = wider_scalar(item, plan.type) if isinstance(item, Number) and self._evolution.widens else None
            if wider is None:
                return False
            inspection.requests.widen(path, wider)
        return True

    def _inspect_incompatible(  # noqa: PLR0913 - all of them say where the value is
        self,
        value: JsonObject,
        name: str,
        plan: _ColumnPlan,
        plans: _Plans,
        path: Path,
        *,
        top_field: str | None,
        inspection: Inspection,
    ) -> None:
        """Rescue a value that does not fit its column, or move it to a variant column; else the object is dead."""
        may_be_null = not plan.required or self._evolution.relaxes(*path, plan.name)
        if may_be_null and self._key(top_field or name) in self._rescuing_columns:
            inspection.rescue(top_field or name, (*path, name))
            for spelling in [field_name for field_name in value if self._key(field_name) == self._key(name)]:
                del value[spelling]
            return
        evidence, is_whole = infer(value[name], len(path) + 1, self._evolution, fold=self._fold)
        value_type = type_from_evidence(evidence)
        may_move = self._evolution.on_incompatible == "variant_column" and may_be_null
        if not (may_move and is_whole) or value_type in {NO_TYPE, plan.type}:
            inspection.is_dead = True
            return
        variant = variant_name(plan.name, value_type)
        key = self._key(variant)
        if any(self._key(field_name) == key for field_name in value) or (
            not path and key in self._reserved_names - plans.keys()
        ):
            inspection.is_dead = True
        elif key not in plans and self._column_budget and not _is_out_of_range(value[name], value_type, plan.reading):
            inspection.requests.add((*path, variant), value_type)
        elif key not in plans or not self._fits(
            value[name], plans[key], (*path, plans[key].name), path[0] if path else name, inspection
        ):
            inspection.is_dead = True
        else:
            value[plans[key].name] = value.pop(name)
            inspection.is_moved = True


def _is_out_of_range(item: JsonValue, column_type: pa.DataType, reading: Reading) -> bool:
    """Return whether a value is out of range even for a column of its own type, so that a new column would not help."""
    try:
        converter(column_type, reading)(item)
    except Rejection as e:
        return e.reason.code is DeadCode.OUT_OF_RANGE
    return False


class EvolvingJson:
    """Decodes JSON objects, and collects the schema changes that they need.

    Values are first decoded by the present columns. Only those that another schema may decode better are inspected one by one: values
    with a field that no column takes, or that its column can't hold. If columns have nested fields, more values are inspected.
    """

    def __init__(self, spec: RecordSpec, requests: SchemaRequests, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        # A random name, so that no producer can send a field of this name and forge rescued fields.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._json: Final = (
            JsonValues(spec.without_evolution(self._rest_name), blocks=blocks) if spec.columns.names else None
        )
        self._inspector: Final = ObjectInspector(spec)
        self._requests: Final = requests
        self._has_rescued: Final = spec.rescued_column in spec.columns.names

    def rows(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows and reasons, as `JsonValues.rows` does; both are void if a schema change is requested."""
        block, dead = self._rows_without_columns(values) if self._json is None else self._json.rows(values)
        texts: dict[int, bytes] = {}
        rescued: dict[int, list[str]] = {}
        refused: Dead = {}
        requests = SchemaRequests(self._spec.fold is not None)
        for position in self._suspects(block, dead, len(values)):
            value = self._parsed(values, position)
            inspection = self._inspector.inspect(value, is_row=position not in dead)
            requests.add_all(inspection.requests)
            if requests.is_full:  # the rows are void, and no further field can be requested
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
        merged, reasons = replace_values(self._json, block, dead, texts, refused)
        unknown_fields = UnknownFieldPairs.concat([merged.unknown_fields, UnknownFieldPairs.from_names(rescued)])
        return Block(merged.rows, merged.positions, unknown_fields), dict(sorted(reasons.items()))

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of the values to inspect, ascending."""
        if self._inspector.has_structs or self._json is None:
            return suspects(block, dead, size, EVOLVABLE)
        return without_hopeless(pc.unique(block.unknown_fields.positions).to_pylist(), dead, EVOLVABLE)

    def _parsed(self, values: pa.BinaryArray, position: int) -> JsonObject:
        is_repeatable, keeps_order = self._spec.duplicate_keys == "last", self._spec.fold is not None
        return parse_object(values[position].as_py(), repeated_keys=is_repeatable, in_order=keeps_order)

    def _rescued_fields(self, inspection: Inspection) -> set[str]:
        """Return the top-level fields that go to the column for rescued fields."""
        if inspection.is_dead:
            return set()
        untyped_fields = inspection.untyped_fields if self._spec.unknown_fields == "rescue" else set()
        return inspection.rescued_fields | untyped_fields

    def _document_with_rest(self, value: JsonObject, rescued_fields: set[str], original: JsonObject) -> bytes:
        """Return the JSON text of an object, with its rescued fields as the JSON text of one field."""
        written = {
            name: item for name, item in value.items() if name not in rescued_fields or self._inspector.has_column(name)
        }
        if rescued_fields:
            written[self._rest_name] = document({name: original[name] for name in original if name in rescued_fields})
        return document(written).encode()

    def _rows_without_columns(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows without columns, for a table without columns."""
        names: dict[int, tuple[str, ...]] = {}
        dead: dict[int, Reason] = {}
        for position in range(len(values)):
            try:
                names[position] = tuple(self._parsed(values, position))
            except Rejection as e:
                dead[position] = e.reason
        rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(names), pa.struct([])))
        return Block(rows, pa.array(names, pa.int64()), UnknownFieldPairs.from_names(names)), dead


def suspects(block: Block, dead: Dead, size: int, codes: AbstractSet[DeadCode]) -> list[int]:
    """Return the positions of values that were not fully read, ascending; of the dead ones, only those with one of these codes."""
    is_read = pc.is_in(pa.arange(0, size), value_set=block.fully_read)
    return without_hopeless(pc.indices_nonzero(pc.invert(is_read)).to_pylist(), dead, codes)


def without_hopeless(positions: Iterable[int], dead: Dead, codes: AbstractSet[DeadCode]) -> list[int]:
    """Return these positions and those of dead values, ascending, without dead values that have none of these codes."""
    return sorted({*positions, *dead} - {position for position, reason in dead.items() if reason.code not in codes})


def replace_values(
    json: JsonValues | None, block: Block, dead: Dead, texts: Mapping[int, bytes], refused: Dead
) -> tuple[Block, Dead]:
    """Return rows and reasons, with some values decoded again from `texts`, and others dead for the reasons in `refused`."""
    replaced, text_positions = pa.array([*texts, *refused], pa.int64()), pa.array(texts, pa.int64())
    is_unchanged = pc.invert(pc.is_in(block.positions, value_set=replaced))
    pairs = block.unknown_fields
    unknown_fields = pairs.filter(pc.invert(pc.is_in(pairs.positions, value_set=replaced)))
    blocks = [Block(block.rows.filter(is_unchanged), block.positions.filter(is_unchanged), unknown_fields)]
    reasons = {position: reason for position, reason in dead.items() if position not in texts} | refused
    if json is not None and texts:
        decoded, failed = json.rows(pa.array(list(texts.values()), pa.binary()))
        unknown_fields = decoded.unknown_fields.map_positions(text_positions)
        blocks.append(Block(decoded.rows, text_positions.take(decoded.positions), unknown_fields))
        reasons |= {text_positions[position].as_py(): reason for position, reason in failed.items()}
    merged = in_order(blocks, block.rows.schema)
    all_unknown = UnknownFieldPairs.concat(part.unknown_fields for part in blocks)
    return Block(merged.rows, merged.positions, all_unknown), reasons
