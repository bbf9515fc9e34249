"""Transforms of nested data: `Flatten` structs, `Explode` lists to rows, and `JsonToMap`, which reads JSON in text fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from frazil.error_codes import FIELDS_UNFIT
from frazil.records import np, pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import BARE, Column, Frame, Transformed
from frazil.records.model.json_number import JsonValue, Number, compact, double_holds
from frazil.records.transforms.definition import (
    KAFKA,
    SINK,
    ConnectClass,
    Names,
    TransformDefinition,
    option,
    target_option,
)
from frazil.records.transforms.fields import (
    Target,
    batch_of,
    columns_of,
    failure,
    fields_of,
    first_duplicate,
    no_field_message,
    put_column,
    reject_all,
    require_type,
    select,
    with_fields,
)

if TYPE_CHECKING:
    from frazil.records.json.record import ExactDecoder


@dataclass(frozen=True, slots=True)
class Flatten(TransformDefinition):
    """Turns the fields of structs into fields of the record, named by their path, such as `address.city`.

    The fields of a null struct are null. Maps, and structs without fields, stay unchanged; so do structs within lists (explode the
    list first, or turn it into JSON). Two fields that would get one name end the run.
    """

    connect_class: ClassVar = ConnectClass(f"{KAFKA}Flatten")

    delimiter: str = option("Joins the names of a path.", ".")
    depth: int | None = option("How many levels are flattened; by default all.", None, ge=1)
    lists: Literal["keep", "json"] = option("Lists stay, or become JSON text.", "keep")
    target: Target = target_option()

    def apply(self, frame: Frame) -> Transformed:
        """Flatten the structs."""
        fields = fields_of(frame, self.target)
        paths: dict[str, tuple[str, ...]] = {}
        columns: list[Column] = []
        for path, (declared, values) in self._flatten(columns_of(fields), ()):
            name = self.delimiter.join(path)
            if name in paths:
                first, second = (" > ".join(steps) for steps in (paths[name], path))
                raise FIELDS_UNFIT.terminal(
                    f"Flatten: {first} and {second} both become {name}",
                    next_step="choose another delimiter, or rename one of them with ReplaceField first",
                )
            paths[name] = path
            columns.append((declared.with_name(name), values))
        return Transformed(with_fields(frame, self.target, batch_of(columns, len(frame), like=fields)))

    def _flatten(self, columns: list[Column], outer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Column]]:
        for declared, values in columns:
            path = (*outer, declared.name)
            if self._is_flattened(declared.type, len(path)):
                yield from self._flatten(children(declared, values), path)
            elif self.lists == "json" and _is_list(declared.type):
                from frazil.records.transforms.java_casts import json_texts

                yield path, (declared.with_type(pa.string()), json_texts(values))
            else:
                yield path, (declared, values)

    def _is_flattened(self, field_type: pa.DataType, level: int) -> bool:
        return (
            pa.types.is_struct(field_type) and field_type.num_fields > 0 and (self.depth is None or level <= self.depth)
        )

    def referenced_names(self) -> Names:
        """Return none: the decoder itself matches flattened names with columns."""
        return ()


def children(declared: pa.Field, values: pa.StructArray) -> list[Column]:
    """Return the fields of a struct column: null in rows where the struct is null, and optional if the struct is."""
    fields = [field.with_nullable(field.nullable or declared.nullable) for field in declared.type]
    return list(zip(fields, values.flatten(), strict=True))


def _is_list(field_type: pa.DataType) -> bool:
    return any(test(field_type) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


@dataclass(frozen=True, slots=True)
class Explode(TransformDefinition):
    """Makes one row per element of a list.

    The rows are in the order of the list and repeat the other fields. The element has the list's name. The rows of one record share
    its position, but only the first one has the bytes of its value: 10,000 copies of a value of 10 MB would be 100 GB. Records
    without the list fail. A field that is no list, elements to spread that are no structs, and two fields that would get one name
    end the run.
    """

    reads: ClassVar = ("field",)

    field: str = option("The list.", min_length=1)
    outer: bool = option("Whether a record whose list is null or empty keeps one row; else it is filtered.", True)
    position_field: str | None = option(
        "Field for the element's index in the list, from 0.", None, key="position.field"
    )
    spread: bool = option("Whether the fields of the elements, which are structs, replace the list.", False)

    def apply(self, frame: Frame) -> Transformed:
        """Explode the list."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message("Explode", self.field, frame.value), self.field)
        lists = _as_list(self.field, frame.value.column(index))
        keeps_row = None if self.outer else pc.greater(pc.list_value_length(lists), 0)
        selected = select(frame, keeps_row, _too_large(frame, self.field, lists))
        return replace(selected, frame=self._rows(selected.frame, index))

    def _rows(self, frame: Frame, index: int) -> Frame:
        lists = _as_list(self.field, frame.value.column(index))
        parents, elements, element_indexes = _explode(lists)
        item = pa.field(self.field, elements.type, nullable=self.outer or lists.type.value_field.nullable)
        # Without the lists: repeated for each of their elements, they would fill the memory.
        other_fields = frame.value.drop_columns([self.field])
        repeated_rows = _without_repeated_bytes(
            replace(frame, value=_with_row_numbers(other_fields, len(frame))), parents
        )
        columns = columns_of(repeated_rows.value)[:-1]
        columns[index:index] = self._spread(item, elements)
        if self.position_field is not None:
            columns.append((pa.field(self.position_field, pa.int32(), nullable=self.outer), element_indexes))
        if duplicate := first_duplicate([declared.name for declared, _ in columns]):
            raise FIELDS_UNFIT.terminal(
                f"Explode: two fields would be named {duplicate}", next_step="rename one with ReplaceField first"
            )
        return repeated_rows.with_value(batch_of(columns, len(parents), like=frame.value))

    def _spread(self, item: pa.Field, elements: pa.Array) -> list[Column]:
        if not self.spread:
            return [(item, elements)]
        if not pa.types.is_struct(item.type):
            raise FIELDS_UNFIT.terminal(
                f"Explode: expected {self.field} as a list of structs to spread, found elements of type {type_name(item.type)}",
                next_step="remove spread",
            )
        return children(item, elements)

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return None if self.spread else [self.field, self.position_field]


def _as_list(name: str, values: pa.Array) -> pa.ListArray:
    list_type = values.type
    if pa.types.is_fixed_size_list(list_type) or pa.types.is_large_list(list_type):
        return values.cast(pa.list_(list_type.value_field))
    return require_type("Explode", name, values, ("a list", "list"), "name a field that is a list")


def _too_large(frame: Frame, name: str, lists: pa.ListArray) -> dict[int, Reason]:
    """Return the reasons of rows that would take too much memory: each element of their list repeats their other fields.

    Raises:
        StepTooWide: The rows take too much memory together; the caller explodes fewer of them at once.
    """
    from frazil.records.model.cells import STEP_BYTES, too_many_rows, wide_repeats

    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    parts = [
        frame.value.drop_columns([name]),
        frame.records.drop_columns(["value"]),  # goes with the first row only
        frame.topic,
        frame.headers,
        *([] if frame.key is None else [frame.key]),
    ]
    # Measuring each row takes time. It is not needed if even the whole frame, repeated for the longest list, fits.
    if int(lengths.max()) * sum(part.nbytes for part in parts) <= STEP_BYTES:
        return {}
    sizes = [sum(part.slice(row, 1).nbytes for part in parts) for row in range(len(frame))]
    is_too_wide = wide_repeats(lengths, np.array(sizes, np.int64))
    return {int(row): replace(too_many_rows(int(lengths[row])), path=name) for row in np.flatnonzero(is_too_wide)}


def _explode(lists: pa.ListArray) -> tuple[pa.Int64Array, pa.Array, pa.Int32Array]:
    """Return, per element, the row of its list, the element, and its index. A list without elements has one null element."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    parents: list[int] = []
    element_indexes: list[int | None] = []
    flat_indexes: list[int | None] = []
    start = 0
    for row, length in enumerate(lengths):
        parents += [row] * (length or 1)
        element_indexes += range(length) if length else (None,)
        flat_indexes += range(start, start + length) if length else (None,)
        start += length
    elements = lists.flatten().take(pa.array(flat_indexes, pa.int64()))
    return pa.array(parents, pa.int64()), elements, pa.array(element_indexes, pa.int32())


def _with_row_numbers(fields: pa.RecordBatch, row_count: int) -> pa.RecordBatch:
    """Add a column of row numbers: a batch without columns would lose its number of rows."""
    number = (pa.field("", pa.int64()), pa.arange(0, row_count))
    return batch_of([*columns_of(fields), number], row_count)


def _without_repeated_bytes(frame: Frame, parents: pa.Int64Array) -> Frame:
    """Repeat rows; only the first row of each record keeps the bytes of its value."""
    records = frame.records
    raw = records.column("value")
    value_index = records.schema.get_field_index("value")
    without_bytes = records.set_column(value_index, records.schema.field(value_index), pa.nulls(len(records), raw.type))
    rows = replace(frame, records=without_bytes).take(parents)
    positions = rows.positions
    changes = pc.not_equal(positions[1:], positions[:-1])
    is_first = pa.concat_arrays([pa.array([True]), changes]).slice(0, len(rows))  # there may be no rows
    # `take` for all rows would make room for a value of mean length in each, even for null.
    first_values = raw.take(parents.filter(is_first))
    values = pc.replace_with_mask(pa.repeat(pa.scalar(b"", raw.type), len(rows)), is_first, first_values)
    return replace(rows, records=rows.records.set_column(value_index, records.schema.field(value_index), values))


PAYLOAD: Final = "payload"
_NAME: Final = "JsonToMap"
_MAX_NAMES: Final = 2_000
"""The most names of inferred fields in one call: if keys are data, each record may bring new ones."""

_MAX_SHAPES: Final = 250
"""The most shapes in one call that bring new names: each becomes a frame."""

_WHOLE_DIGITS: Final = 38
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class JsonToMap(TransformDefinition):
    """Reads JSON objects from a text field: as a map, as declared fields, or as the fields that each object has.

    A value that is a text without fields (format `string`) becomes the columns of the object, or with `json.root` one column
    `payload`, a map. A text field of a value is replaced by a map or struct. Null stays null. The map has texts unchanged, numbers as
    texts with all their digits, and anything else as JSON text.

    Without `json.root` and `types` the types of each object are inferred: whole numbers are long or decimal(38,0), others double if
    a double keeps all digits, objects are maps as above, lists have the type of all items; all else is text. Null, `{}` and `[]`
    make no fields. Records without the text field fail, and so does a text that is no JSON object or does not fit its types. Records
    that are decoded together may bring 2,000 names of fields, and new names in 250 shapes. Those beyond are `TOO_MANY_NAMES`: keys
    that are data belong in a map.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}JsonToMapTransform")
    reads: ClassVar = ("field",)

    json_root: bool = option("Whether all fields of the object become one map of texts.", False, key="json.root")
    types: Any = option(
        "Or the fields of the object: `struct<id: long, name: string>`. Without both, they are inferred.",
        None,
        form="struct",
    )
    field: str = option("The text field; `value` if the values are texts without fields.", BARE, min_length=1)

    def __post_init__(self) -> None:
        if self.json_root and self.types is not None:
            raise ValueError("either json.root: true, or types")

    @property
    def infers(self) -> bool:
        """Whether the types of each object are inferred."""
        return self.types is None and not self.json_root

    def prepare(self) -> None:
        """Refuse types that have no form in JSON."""
        if self.types is not None:
            struct_decoder(self.types)

    def apply(self, frame: Frame) -> Transformed:
        """Read the texts."""
        index = frame.value.schema.get_field_index(self.field)
        if index < 0:
            return reject_all(frame, no_field_message(_NAME, self.field, frame.value), self.field)
        kind, step = ("string", "string", "binary"), "name a field that is text"
        texts = require_type(_NAME, self.field, frame.value.column(index), kind, step)
        failed: dict[int, Reason] = {}
        documents = texts.cast(pa.binary()).to_pylist()
        if self.infers:
            return self._inferred(frame, documents)
        if self.types is None:
            entries = _read_each(_NAME, documents, _entries, self.field, failed)
            parsed = pa.array(entries, pa.map_(pa.string(), pa.string()))
        else:
            parsed = read_structs(_NAME, documents, self.types, self.field, failed)
        return select(frame.with_value(self._put(frame.value, parsed)), failed=failed)

    def _inferred(self, frame: Frame, documents: Sequence[bytes | None]) -> Transformed:
        """Read objects and infer the types of their fields; objects of one shape continue in one frame."""
        failed: dict[int, Reason] = {}
        objects = _read_each(_NAME, documents, _typed_fields, self.field, failed)
        rows_by_type: dict[pa.StructType | None, list[int]] = {}
        names, shapes_with_new_names = set[str](), 0
        for row, fields in enumerate(objects):
            if row in failed:
                continue
            new_names = fields.keys() - names if fields else set()
            if new_names and (shapes_with_new_names == _MAX_SHAPES or len(names) + len(new_names) > _MAX_NAMES):
                limit = f"{_MAX_NAMES:,} names of fields, in {_MAX_SHAPES} shapes"
                message = f"{_NAME}: expected at most {limit}, in records that are decoded together, found more"
                failed[row] = Reason(DeadCode.TOO_MANY_NAMES, message, self.field)
                continue
            names |= new_names
            shapes_with_new_names += bool(new_names)
            struct_type = None if fields is None else pa.struct([(name, fields[name][0]) for name in sorted(fields)])
            rows_by_type.setdefault(struct_type, []).append(row)
        done, positions = select(frame, failed=failed), frame.positions.to_pylist()
        frames = []
        for struct_type, rows in rows_by_type.items():
            alive = [row for row in rows if positions[row] not in done.dead]
            part = frame.take(pa.array(alive, pa.int64()))
            values = [{name: value for name, (_, value) in (objects[row] or {}).items()} for row in alive]
            parsed = pa.nulls(len(alive)) if struct_type is None else pa.array(values, struct_type)
            frames.append(part.with_value(self._put(part.value, parsed)))
        first, *other_frames = [part for part in frames if len(part)] or [done.frame]
        return Transformed(first, done.dead, done.filtered, tuple(other_frames))

    def _put(self, fields: pa.RecordBatch, parsed: pa.Array) -> pa.RecordBatch:
        if fields.schema.names != [BARE] or self.field != BARE:
            return put_column(fields, self.field, parsed)
        if self.json_root:
            return batch_of([(pa.field(PAYLOAD, parsed.type), parsed)], len(parsed), like=fields)
        if self.infers:
            columns = [] if pa.types.is_null(parsed.type) else zip(parsed.type, parsed.flatten(), strict=True)
            return batch_of(list(columns), len(parsed), like=fields)
        is_nullable = fields.schema.field(BARE).nullable  # not whether there is a null in this batch
        declared = [column.with_nullable(column.nullable or is_nullable) for column in self.types]
        return batch_of(list(zip(declared, parsed.flatten(), strict=True)), len(parsed), like=fields)

    def referenced_names(self) -> Names:
        """Return the fields that the options name."""
        return None if self.field == BARE else [self.field]


def struct_decoder(types: pa.StructType) -> ExactDecoder:
    """Return the decoder of JSON objects to a struct's fields.

    Raises:
        Terminal: A type has no JSON form.
    """
    from frazil.records.json.record import ExactDecoder
    from frazil.records.model.spec import RecordSpec

    return ExactDecoder(RecordSpec(pa.schema(list(types)), kafka_columns=None))


def read_structs(
    transform: str, texts: Sequence[bytes | None], types: pa.StructType, path: str, failed: dict[int, Reason]
) -> pa.StructArray:
    """Return JSON objects as structs, null if a text is null or fails; add the reasons of those that fail to `failed`, by row."""
    decoder = struct_decoder(types)
    rows = _read_each(transform, texts, decoder.row, path, failed)
    table = decoder.table([row or {} for row in rows])
    is_null = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(table.columns, fields=list(types), mask=is_null)


def _read_each(
    transform: str, texts: Sequence[bytes | None], read: Callable[[bytes], Parsed], path: str, failed: dict[int, Reason]
) -> list[Parsed | None]:
    """Read each text; return None for null and for a text that fails, whose reason goes to `failed`."""
    parsed: list[Parsed | None] = []
    for row, text in enumerate(texts):
        try:
            parsed.append(None if text is None else read(text))
        except Rejection as e:
            parsed.append(None)
            reason = e.with_parent(path).reason
            failed.setdefault(row, failure(f"{transform}: {reason.message} ({reason.code})", reason.path))
    return parsed


def _entries(text: bytes) -> list[tuple[str, str | None]]:
    from frazil.records.json.exact import parse_object

    return [(_checked_text(name), _text(value)) for name, value in parse_object(text).items()]


Typed = tuple["pa.DataType", object]
"""A type, and a value of this type."""


def _typed_fields(text: bytes) -> Mapping[str, Typed]:
    """Return the fields of an object that have a type."""
    from frazil.records.json.exact import parse_object

    typed = {_checked_text(name): _typed(value) for name, value in parse_object(text).items()}
    return {name: field for name, field in typed.items() if field is not None}


def _typed(value: JsonValue) -> Typed | None:
    """Return a value with its inferred type; None for null, and for objects and lists without any value."""
    if isinstance(value, Number):
        return _typed_number(value)
    if isinstance(value, str):
        return pa.string(), _checked_text(value)
    if isinstance(value, bool):
        return pa.bool_(), value
    if isinstance(value, dict) and value:
        entries = [(_checked_text(name), _text(item)) for name, item in value.items()]
        return pa.map_(pa.string(), pa.string()), entries
    return _typed_list(value) if isinstance(value, list) else None


def _typed_list(items: Sequence[JsonValue]) -> Typed | None:
    typed = [_typed(item) for item in items]
    kinds = {item[0] for item in typed if item is not None}
    if len(kinds) > 1:
        return pa.list_(pa.string()), [_text(item) for item in items]
    return (pa.list_(kinds.pop()), [item and item[1] for item in typed]) if kinds else None


def _typed_number(number: Number) -> Typed:
    if len(number) <= _WHOLE_DIGITS and number.lstrip("-").isdigit():
        whole = int(number)
        return (pa.int64(), whole) if -(1 << 63) <= whole < 1 << 63 else (pa.decimal128(38, 0), Decimal(number))
    double = float(number)
    return (pa.float64(), double) if isfinite(double) and double_holds(number, double) else (pa.string(), str(number))


def _text(value: JsonValue) -> str | None:
    if value is None:
        return None
    return _checked_text(str(value) if isinstance(value, str) else compact(value))


def _checked_text(text: str) -> str:
    from frazil.records.json.convert import check_characters

    if not text.isascii():
        check_characters(text)
    return text
