"""Many values to rows at once, and only those of which the exact decoder would say the same.

msgspec decodes a value into a struct that has a typed field for each column. It refuses whatever is not one JSON object of that
shape, also inside of fields that nobody reads. The fields of all structs become Arrow arrays of carriers, and these the columns.
A value that is refused, or has a doubtful field, is left to the exact decoder.

What msgspec takes and the exact decoder does not is checked here: bytes that are not UTF-8, too many levels, lists that make too
many cells, names that repeat. Doubles and decimals come as the text of their number, which carriers check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import nesting
from frazil.records.json.intermediate_types import NUMBER, Carrier, Settled, any_of, carrier, settle_field
from frazil.records.model.cells import STEP_CELLS, StepSize, width, width_per_element
from frazil.records.model.column import ColumnSpec
from frazil.records.model.dead_letter import MAX_CELLS, MAX_DEPTH
from frazil.records.model.json_number import may_be_long
from frazil.records.model.rows import Block, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownAt

_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 2 << 20
"""Values that are Python objects at once: so few that the processor's cache holds them, which halves the time of what follows."""

_HELD_BYTES: Final = 32 << 20
"""Carriers after which columns are made of them: bounds the memory of a batch of large values."""

_MAX_FIELDS: Final = 1_000
"""Fields of one object. msgspec looks for a name among all of them, so names in another order than the columns cost the square
of their number: from here on more than the exact decoder."""

_MANY_FIELDS: Final = 200
_COMPARISONS: Final = 1 << 20
"""Of one value, with objects of many fields, at most: an unknown name is compared with every field."""

_UNKNOWN_FIELD: Final = "Object contains unknown field"
"""What msgspec says of a name that a struct may not have. Whatever else is wrong with a value stays wrong with more names."""

_SAMPLE: Final = 32
"""Values that tell whether a batch has fields that no column takes."""

_UTF8_PARTS: Final = 64
_UTF8_ONE_BY_ONE: Final = 256
"""Into so many parts values are split to find those that are not UTF-8; so few are tried one by one."""

_UNNAMED: Final = re.compile(r'["\\\x00-\x1f]')
"""Names that msgspec has no field for: they stand in no value as they are."""

_NAME_END: Final = r'"[ \t\r\n]*:'
"""Behind each name. A text may hold it too, so that a value seems to have more names."""

_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SCALARS: Final[Mapping[pa.DataType, Any]] = {
    pa.int64(): _INT64,
    pa.float64(): float,
    pa.string(): str,
    pa.bool_(): bool,
}

_NULL: Final = msgspec.Raw(b"null")
_NULL_BEGINS: Final = ord("n")
_LINE_FEED: Final = ord("\n")

_fields_of: Final[Callable[[bytes], dict[str, Any]]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Counts = npt.NDArray[np.int64]
Places = npt.NDArray[np.int64]
"""Of values in a batch, ascending."""

Array = Callable[[Sequence[Any]], tuple[pa.Array, Counts | None]]
Tree = dict[str, "pa.DataType | Tree"]


def typed_decoder(spec: RecordSpec) -> TypedDecoder | None:
    """Return a decoder for `spec`, or None if only the exact decoder can read a column of it."""
    columns = spec.column_specs
    carriers = [found for column in columns if (found := carrier(column.type, column.reading)) is not None]
    if not carriers or len(carriers) < len(columns):
        return None
    fields = fields_read((column.steps, each.type) for column, each in zip(columns, carriers, strict=True))
    if fields is None or not _is_decodable(pa.struct(fields), MAX_DEPTH):
        return None
    return TypedDecoder(spec, carriers, fields)


def fields_read(leaves: Iterable[tuple[tuple[str, ...], pa.DataType]]) -> list[pa.Field] | None:
    """Return the fields at the root that hold all leaves; None if a leaf is, or is inside, another one.

    Args:
        leaves: Field names from the root to a field, and what it is read as.
    """
    root: Tree = {}
    for steps, data_type in leaves:
        inner = root
        for step in steps[:-1]:
            below = inner.setdefault(step, {})
            if not isinstance(below, dict):
                return None
            inner = below
        if not steps or steps[-1] in inner:
            return None
        inner[steps[-1]] = data_type
    return _fields(root)


def _fields(tree: Tree) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(of)) if isinstance(of, dict) else of) for name, of in tree.items()]


def _is_decodable(of: pa.DataType, levels: int) -> bool:
    """Return whether msgspec has a type for values of at most so many levels."""
    if pa.types.is_list(of):
        return levels > 0 and _is_decodable(of.value_type, levels - 1)
    if not pa.types.is_struct(of):
        return True
    named = not any(_UNNAMED.search(field.name) for field in of)
    return levels > 0 and named and len(of) <= _MAX_FIELDS and all(_is_decodable(f.type, levels - 1) for f in of)


class TypedDecoder:
    """Decodes blocks of values; made by `typed_decoder`.

    Args:
        spec: What is wanted.
        carriers: One per column.
        fields: The fields that hold the columns, as their carriers.
    """

    def __init__(self, spec: RecordSpec, carriers: list[Carrier], fields: list[pa.Field]) -> None:
        self._schema: Final = spec.columns
        self._columns: Final = {
            column.name: (column, each) for column, each in zip(spec.column_specs, carriers, strict=True)
        }
        self._fields: Final = fields
        self._counts_names: Final = spec.duplicate_keys != "last"
        # Names that repeat or differ in case only are for the exact decoder, also where nobody reads them.
        self._takes_others: Final = not self._counts_names and spec.fold is None
        self._ignores_others: Final = spec.unknown_fields == "ignore"
        self._known: Final = {*(field.name for field in fields), *spec.key_names}
        self._made: Final[dict[tuple[bool, bool], _Values]] = {}
        root = pa.struct(fields)
        self._has_doubles: Final = _has_doubles(root)
        self._width: Final = width(root)
        self._per_element: Final = width_per_element(root)
        widest = _widest(root)
        self._most_names: Final = _COMPARISONS // widest if widest > _MANY_FIELDS else None

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of the values that are plain beyond doubt, and of no other.

        Raises:
            StepTooWide: their lists make too many cells.
        """
        texts = _utf8(values)
        as_text = self._has_doubles and may_be_long(texts)
        step = step or StepSize(len(values))
        blocks: list[Block] = []
        alone, beside = _Decoded(), _Decoded()
        for places in self._parts(texts):
            left = _taken(texts, places).cast(pa.binary()).to_pylist(), places
            sample = left[0][:_SAMPLE] if self._takes_others and len(places) > 2 * _SAMPLE else []
            if self._are_plain(sample, as_text=as_text):
                left = alone.add(self._values(is_closed=True, as_text=as_text), *left)
            if self._takes_others and left[0]:
                beside.add(self._values(is_closed=False, as_text=as_text), *self._named(beside, *left))
            if alone.nbytes + beside.nbytes > _HELD_BYTES:
                blocks += self._blocks(texts, alone, beside, step)
                alone, beside = _Decoded(), _Decoded()
        blocks += self._blocks(texts, alone, beside, step)
        return in_order(blocks, self._schema)

    def _parts(self, texts: pa.StringArray) -> Iterator[Places]:
        """Yield the positions of the texts that may be decoded, so many as should be Python objects at once."""
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
        plain = texts.is_valid().to_numpy(zero_copy_only=False)
        cells = (sizes // 2 + 1) * self._per_element  # an element and its comma take two bytes, at least
        if len(many := np.flatnonzero(cells > MAX_CELLS)):
            commas = pc.fill_null(pc.count_substring(texts.take(pa.array(many)), ","), 0).to_numpy().astype(np.int64)
            cells[many] = (commas + 1) * self._per_element
            plain &= (cells <= MAX_CELLS) | (self._per_element <= 1)
        if self._most_names is not None:
            plain &= pc.fill_null(pc.count_substring_regex(texts, _NAME_END), 0).to_numpy() <= self._most_names
        places = np.flatnonzero(plain)
        weights = 1 / _AT_ONCE + sizes[places] / _BYTES_AT_ONCE + (cells[places] + self._width) / STEP_CELLS
        edges = np.flatnonzero(np.diff(np.cumsum(weights).astype(np.int64))) + 1
        yield from np.split(places, edges)

    def _values(self, *, is_closed: bool, as_text: bool) -> _Values:
        """Return what decodes values, of fields that are read alone if it is closed, doubles as texts or not."""
        if (found := self._made.get((is_closed, as_text))) is None:
            closed_root = is_closed or not self._ignores_others
            found = _Values(self._fields, (closed_root, is_closed), counts=self._counts_names, as_text=as_text)
            self._made[is_closed, as_text] = found
        return found

    def _are_plain(self, sample: list[bytes], *, as_text: bool) -> bool:
        """Return whether most values have no field but those that are read: a guess, which may cost time and nothing else."""
        _, _, others = _decoded(self._values(is_closed=True, as_text=as_text).decode, sample)
        return 2 * len(others) <= len(sample)

    def _named(self, decoded: _Decoded, raws: list[bytes], places: Places) -> tuple[list[bytes], Places]:
        """Note the names of fields that no column takes; return the values that may have such fields."""
        if not self._ignores_others:
            return raws, places
        found, refused, _ = _decoded(_fields_of, raws)
        for at in reversed(refused):
            del raws[at]
        places = np.delete(places, refused)
        known = self._known
        unknown = [[name for name in fields if name not in known] for fields in found]
        positions = np.repeat(places, [len(names) for names in unknown])
        names = pa.array(list(chain.from_iterable(unknown)), pa.string())
        decoded.unknown.append(UnknownAt(pa.array(positions, pa.int64()), names))
        return raws, places

    def _blocks(self, texts: pa.StringArray, alone: _Decoded, beside: _Decoded, step: StepSize) -> Iterator[Block]:
        """Yield rows of the values whose fields are all read, then of those with others."""
        for decoded in (alone, beside):
            if decoded.arrays:
                block = self._block(decoded, texts, is_plain=decoded is alone)
                step.hold(block.rows)
                yield block

    def _block(self, decoded: _Decoded, texts: pa.StringArray, *, is_plain: bool) -> Block:
        """Return columns of decoded values, without the rows of which there is a doubt."""
        places = np.concatenate(decoded.places)
        positions = pa.array(places, pa.int64())
        rows = pa.RecordBatch.from_struct_array(pa.concat_arrays(decoded.arrays))
        settled = [self._settled(field, rows) for field in self._schema]
        batch = pa.RecordBatch.from_arrays([array for array, _ in settled], schema=self._schema)
        doubts = [each for _, each in settled]
        if self._counts_names:  # a name that repeats is in no struct twice
            names = pc.count_substring_regex(_taken(texts, places), _NAME_END)
            doubts.append(pc.not_equal(names, pa.array(np.concatenate(decoded.names))))
        unknown = UnknownAt.together(decoded.unknown).only(positions)
        plain = positions if is_plain else positions[:0]
        if (doubt := any_of(doubts)) is None:
            return Block(batch, positions, unknown, plain)
        certain = pc.invert(doubt)
        return Block(batch.filter(certain), positions.filter(certain), unknown, plain)

    def _settled(self, field: pa.Field, rows: pa.RecordBatch) -> Settled:
        if field.name not in self._columns:  # rescued fields: rows of a block have none
            return pa.nulls(len(rows), field.type), None
        column, each = self._columns[field.name]
        array = rows.column(column.steps[0])
        for step in column.steps[1:]:
            array = array.flatten()[array.type.get_field_index(step)]
        return _settle(column, field, each, array)


def _settle(column: ColumnSpec, field: pa.Field, found: Carrier, array: pa.Array) -> Settled:
    values, doubt = settle_field(field, found, array)
    # A default depends on whether null was sent or nothing, which can't be seen here.
    nulls = values.is_null() if column.has_default and values.null_count else None
    return values, any_of([doubt, nulls])


@dataclass(frozen=True, slots=True)
class _Column:
    """How values become an array.

    Attributes:
        type: What msgspec decodes.
        array: Takes decoded values, of which None is null; returns them as Arrow, and how many names stood in each, if they are
            counted.
        absent: What stands for a field that is not there.
    """

    type: Any
    array: Array
    absent: Any = None


class _Values:
    """Decodes values into structs, and makes arrays of their fields.

    Args:
        fields: Of a value.
        closed: Whether it may have no others, and whether the objects inside of it may have no others.
        counts: Whether names are counted.
        as_text: Whether doubles are texts of numbers.
    """

    def __init__(self, fields: list[pa.Field], closed: tuple[bool, bool], *, counts: bool, as_text: bool) -> None:
        self._counts: Final = counts
        self._as_text: Final = as_text
        closed_root, self._is_closed = closed
        root = self._struct(pa.struct(fields), is_closed=closed_root)
        decode = msgspec.json.Decoder(root.type).decode
        self.decode: Final[Callable[[bytes], Any]] = decode if self._is_closed else partial(_shallow, decode)
        self.arrays: Final = root.array

    def _column(self, of: pa.DataType) -> _Column:
        if of == NUMBER or (of == pa.float64() and self._as_text):
            return _Column(msgspec.Raw, _numbers, _NULL)
        if pa.types.is_list(of):
            item = self._column(of.value_type)
            return _Column(list[item.type] | None, partial(_lists, item))  # type: ignore[name-defined]
        if pa.types.is_struct(of):
            found = self._struct(of, is_closed=self._is_closed)
            return _Column(found.type | None, found.array)
        return _Column(_SCALARS[of] | None, partial(_scalars, of))

    def _struct(self, of: pa.StructType, *, is_closed: bool) -> _Column:
        columns = [self._column(field.type) for field in of]
        names = [f"f{at}" for at in range(len(columns))]
        absent = [msgspec.UNSET if self._counts else column.absent for column in columns]
        made = msgspec.defstruct(
            "Object",
            [(name, column.type, none) for name, column, none in zip(names, columns, absent, strict=True)],
            rename={name: field.name for name, field in zip(names, of, strict=True)},
            forbid_unknown_fields=is_closed,
            gc=False,
        )
        return _Column(made, partial(_structs, of, made(), [column.array for column in columns], self._counts))


@dataclass(slots=True)
class _Decoded:
    """Values that were decoded alike.

    Attributes:
        arrays: Their fields, some values in each.
        places: Where they stand among all values, likewise.
        names: How many names stood in each value, likewise; empty where they are not counted.
        nbytes: What the arrays take.
        unknown: Fields that no column takes; perhaps also of values that were refused.
    """

    arrays: list[pa.StructArray] = field(default_factory=list)
    places: list[Places] = field(default_factory=list)
    names: list[Counts] = field(default_factory=list)
    nbytes: int = 0
    unknown: list[UnknownAt] = field(default_factory=list)

    def add(self, values: _Values, raws: list[bytes], places: Places) -> tuple[list[bytes], Places]:
        """Decode values, and return those that have fields which are not read, if they may have none."""
        found, refused, others = _decoded(values.decode, raws)
        if found:
            array, names = values.arrays(found)
            self.arrays.append(array)
            self.places.append(np.delete(places, refused) if refused else places)
            self.nbytes += array.nbytes
            if names is not None:
                self.names.append(names)
        return [raws[at] for at in others], places[others]


def _scalars(of: pa.DataType, values: Sequence[Any]) -> tuple[pa.Array, None]:
    return pa.array(values, of), None


def _numbers(values: Sequence[Any]) -> tuple[pa.StringArray, None]:
    """Return the texts of numbers; a value of another kind is there as it was sent."""
    sent = [_NULL if value is None else value for value in values]
    data = np.frombuffer(b"\n".join([*sent, b""]), np.uint8)
    ends = np.flatnonzero(data == _LINE_FEED)
    if len(ends) != len(sent):  # something in several lines, which is no number
        texts = pa.array(list(map(bytes, sent)), pa.binary()).cast(pa.string())
        return pc.if_else(pc.equal(texts, "null"), None, texts), None
    offsets = np.zeros(len(sent) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(sent))
    data = data[data != _LINE_FEED]
    valid = np.packbits(data[offsets[:-1]] != _NULL_BEGINS, bitorder="little")
    return pa.StringArray.from_buffers(len(sent), pa.py_buffer(offsets), pa.py_buffer(data), pa.py_buffer(valid)), None


def _lists(item: _Column, values: Sequence[Any]) -> tuple[pa.ListArray, Counts | None]:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    inner, names = item.array(list(chain.from_iterable(filter(None, values))))
    lists = pa.ListArray.from_arrays(pa.array(offsets), inner, mask=_nulls(values))
    if names is None:
        return lists, None
    total = np.concatenate([[0], np.cumsum(names)])
    return lists, total[offsets[1:]] - total[offsets[:-1]]


def _structs(
    of: pa.StructType,
    empty: msgspec.Struct,
    makers: list[Array],
    counts: bool,  # noqa: FBT001 - bound by position
    values: Sequence[Any],
) -> tuple[pa.StructArray, Counts | None]:
    nulls = _nulls(values)
    filled = values if nulls is None else [empty if value is None else value for value in values]
    columns = zip(*map(msgspec.structs.astuple, filled), strict=True) if filled else repeat((), len(makers))
    arrays = []
    names = np.zeros(len(values), np.int64) if counts else None
    for column, maker in zip(columns, makers, strict=True):
        found = column
        if names is not None:
            names += np.fromiter((value is not msgspec.UNSET for value in column), np.bool_, len(column))
            found = tuple(None if value is msgspec.UNSET else value for value in column)
        array, inner = maker(found)
        arrays.append(array)
        if names is not None and inner is not None:
            names += inner
    return pa.StructArray.from_arrays(arrays, names=[each.name for each in of], mask=nulls), names


def _nulls(values: Sequence[Any]) -> pa.BooleanArray | None:
    nulls = [value is None for value in values]
    return pa.array(nulls) if True in nulls else None


def _decoded(decode: Callable[[bytes], Any], raws: list[bytes]) -> tuple[list[Any], list[int], list[int]]:
    """Return what values are, the places of those that were refused, and which of these have a field that is not read."""
    found: list[Any] = []
    refused: list[int] = []
    others: list[int] = []
    answers = map(decode, raws)
    while len(found) + len(refused) < len(raws):
        try:
            found.extend(answers)
        except (msgspec.DecodeError, RecursionError) as e:
            at = len(found) + len(refused)
            refused.append(at)
            if str(e).startswith(_UNKNOWN_FIELD):
                others.append(at)
    return found, refused, others


def _shallow(decode: Callable[[bytes], Any], raw: bytes) -> Any:
    """Return what a value is that has few enough levels, in fields that nobody reads too."""
    found = decode(raw)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and nesting(raw.decode()) > MAX_DEPTH:
        raise msgspec.DecodeError
    return found


def _widest(of: pa.DataType) -> int:
    """Return how many fields the objects of a type have at most."""
    if pa.types.is_list(of):
        return _widest(of.value_type)
    return max(len(of), *(_widest(field.type) for field in of)) if pa.types.is_struct(of) else 0


def _taken(texts: pa.StringArray, places: Places) -> pa.StringArray:
    """Return texts by their ascending places; without a copy, where none between them is left out."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return texts.slice(places[0], len(places))
    return texts.take(pa.array(places, pa.int64()))


def _has_doubles(of: pa.DataType) -> bool:
    if pa.types.is_list(of):
        return _has_doubles(of.value_type)
    return any(_has_doubles(each.type) for each in of) if pa.types.is_struct(of) else of == pa.float64()


def _utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Return the values as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _UTF8_ONE_BY_ONE:
            return pa.array([_text(value) for value in values.to_pylist()], pa.string())
        part = -(-len(values) // _UTF8_PARTS)
        return pa.concat_arrays([_utf8(values.slice(low, part)) for low in range(0, len(values), part)])


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
