"""Decodes JSON values straight to the declared columns: in blocks, those values of which the exact decoder would make the same rows;
the others one by one.

msgspec decodes a value into a struct that has a typed field for each column. It refuses whatever is not one JSON object of that
shape, also inside of fields that no column reads. The fields of all structs become Arrow arrays of intermediate types, which are
cast to the columns. The exact decoder reads each value that msgspec refuses, or that has a field in doubt.

This module checks what msgspec accepts and the exact decoder does not: bytes that are not UTF-8, too many levels, lists that
make too many cells, names that repeat. Decimals, and doubles of many digits, are read as the text of their number; their casts check
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.json.exact import parse_object, utf8_texts
from frazil.records.json.intermediate_types import CastResult, IntermediateType, cast_field, intermediate_type, or_masks
from frazil.records.json.objects import Counts, ObjectDecoder, compact_documents, has_type
from frazil.records.json.record import ExactDecoder, Row, variant_refusal
from frazil.records.model.cells import STEP_CELLS, StepSize, cells_per_element, cells_per_value
from frazil.records.model.dead_letter import MAX_CELLS, MAX_DEPTH, Reason, Rejection
from frazil.records.model.format import Decoded, Shaped
from frazil.records.model.json_number import may_exceed_double
from frazil.records.model.rows import Block, UnknownFieldPairs, complement, in_order, no_rows
from frazil.records.model.spec import RecordSpec

_MAX_PART_VALUES: Final = 2_000
_MAX_PART_BYTES: Final = 2 << 20
"""Values, and their bytes, that are Python objects at once. So few fit into the processor's cache, which halves the time of the next
steps."""

_MAX_INTERMEDIATE_BYTES: Final = 32 << 20
"""Bytes of intermediate arrays that are held at once; with more they are cast to columns. Bounds the memory of a batch of large values."""

_MAX_FIELDS: Final = 1_000
"""Fields of one object. msgspec looks for a name among all of them, so names in another order than the columns cost the square
of their number. With more fields that is more than the exact decoder costs."""

_MANY_FIELDS: Final = 200
_COMPARISONS: Final = 1 << 20
"""Comparisons of names per value, at most, if an object has more than `_MANY_FIELDS`: an unknown name is compared with each of them."""

_UNKNOWN_FIELD: Final = "Object contains unknown field"
"""The beginning of msgspec's message about a field that the struct does not have. Only such values get a second try, with a struct
that allows other fields."""

_SAMPLE: Final = 32
"""Values that are sampled to guess whether a batch has fields that no column takes."""

_UNUSABLE_NAME: Final = re.compile(r'["\\\x00-\x1f]')
"""Characters that JSON escapes in names. msgspec compares names with their escapes, so it never finds such a field."""

_NAME_END: Final = r'"[ \t\r\n]*:'
"""The end of each name. A text may contain it too: then the value seems to have more names, and the exact decoder reads it."""

_fields_of: Final[Callable[[bytes], dict[str, Any]]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Places = npt.NDArray[np.int64]
"""Positions of values in a batch, ascending."""

Tree = dict[str, "pa.DataType | Tree"]


def typed_decoder(
    spec: RecordSpec, intermediates: Sequence[IntermediateType | None] | None = None
) -> TypedDecoder | None:
    """Return a block decoder for `spec`, or None if only the exact decoder can read one of its columns.

    Args:
        spec: How values become rows.
        intermediates: The intermediate type of each column that takes a field; None: the column's type and reading determine them.
    """
    columns = [column for column in spec.column_specs if column.steps]
    by_column = intermediates or [intermediate_type(column.type, column.reading) for column in columns]
    read_as = [intermediate for intermediate in by_column if intermediate is not None]
    if not (read_as or spec.whole_columns) or len(read_as) < len(columns):
        return None
    fields = _root_fields(
        (column.steps, intermediate.type) for column, intermediate in zip(columns, read_as, strict=True)
    )
    if fields is None or not _is_decodable(pa.struct(fields), MAX_DEPTH):
        return None
    return TypedDecoder(spec, read_as, fields)


def _root_fields(leaves: Iterable[tuple[tuple[str, ...], pa.DataType]]) -> list[pa.Field] | None:
    """Return the fields at the root of a value that contain all leaves; None if a leaf repeats, or contains another one.

    Args:
        leaves: The path of names from the root to each field that a column reads, and the type that it is read as.
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
    return [
        pa.field(name, pa.struct(_fields(subtree)) if isinstance(subtree, dict) else subtree)
        for name, subtree in tree.items()
    ]


def _is_decodable(data_type: pa.DataType, levels: int) -> bool:
    """Return whether msgspec can decode values of a type, and the type has at most so many levels."""
    if pa.types.is_list(data_type):
        return levels > 0 and _is_decodable(data_type.value_type, levels - 1)
    if not pa.types.is_struct(data_type):
        return True
    return (
        levels > 0
        and len(data_type) <= _MAX_FIELDS
        and not any(_UNUSABLE_NAME.search(field.name) for field in data_type)
        and all(_is_decodable(field.type, levels - 1) for field in data_type)
    )


class TypedDecoder:
    """Decodes blocks of values; made by `typed_decoder`."""

    def __init__(self, spec: RecordSpec, intermediates: list[IntermediateType], fields: list[pa.Field]) -> None:
        self._schema: Final = spec.columns
        field_columns = [column for column in spec.column_specs if column.steps]
        self._columns: Final = {
            column.name: (column, intermediate)
            for column, intermediate in zip(field_columns, intermediates, strict=True)
        }
        self._wholes: Final = {column.name: column for column in spec.column_specs if not column.steps}
        self._fields: Final = fields
        # A column of whole values puts a value that repeats a name in doubt anyway.
        self._counts_names: Final = spec.duplicate_keys != "last" and not self._wholes
        # In fields that no column reads, only the exact decoder checks names that repeat or differ in case only.
        self._takes_extra: Final = not self._counts_names and (spec.fold is None or not fields)
        self._ignores_extra: Final = spec.unknown_fields == "ignore" or bool(self._wholes)
        self._known_names: Final = {*(field.name for field in fields), *spec.known_names}
        self._decoders: Final[dict[tuple[bool, bool], ObjectDecoder]] = {}
        root = pa.struct(fields)
        self._has_doubles: Final = has_type(root, pa.float64())
        self._cells_per_value: Final = cells_per_value(root)
        self._cells_per_element: Final = cells_per_element(root)
        widest = _widest(root)
        self._most_names: Final = _COMPARISONS // widest if widest > _MANY_FIELDS else None

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of those values of which the exact decoder surely makes the same rows; the others get no row here.

        Raises:
            StepTooWide: the lists of the values make too many cells.
        """
        texts = utf8_texts(values)
        as_text = self._has_doubles and may_exceed_double(texts)
        step = step or StepSize(len(values))
        blocks: list[Block] = []
        # `closed`: values that have only the fields of columns; `extended`: values that have other fields, too.
        closed, extended = _DecodedObjects(), _DecodedObjects()
        for places in self._parts(texts):
            remaining = _take_texts(texts, places).cast(pa.binary()).to_pylist(), places
            sample = remaining[0][:_SAMPLE] if self._takes_extra and len(places) > 2 * _SAMPLE else []
            if self._are_mostly_plain(sample, as_text=as_text):
                remaining = closed.add(self._decoder(is_closed=True, as_text=as_text), *remaining)
            if self._takes_extra and remaining[0]:
                extended.add(self._decoder(is_closed=False, as_text=as_text), *self._note_unknown(extended, *remaining))
            if closed.nbytes + extended.nbytes > _MAX_INTERMEDIATE_BYTES:
                blocks += self._blocks(texts, closed, extended, step)
                closed, extended = _DecodedObjects(), _DecodedObjects()
        blocks += self._blocks(texts, closed, extended, step)
        return in_order(blocks, self._schema)

    def _parts(self, texts: pa.StringArray) -> Iterator[Places]:
        """Yield the positions of texts that may be decoded in a block, in parts so small that they may be Python objects at once."""
        sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
        decodable = texts.is_valid().to_numpy(zero_copy_only=False)
        cells = (sizes // 2 + 1) * self._cells_per_element  # an element and its comma take at least two bytes
        if len(large := np.flatnonzero(cells > MAX_CELLS)):
            commas = pc.fill_null(pc.count_substring(texts.take(pa.array(large)), ","), 0).to_numpy().astype(np.int64)
            cells[large] = (commas + 1) * self._cells_per_element
            # A value without wide elements can't inflate: each of its cells has a value of its own.
            decodable &= (cells <= MAX_CELLS) | (self._cells_per_element <= 1)
        if self._most_names is not None:
            decodable &= pc.fill_null(pc.count_substring_regex(texts, _NAME_END), 0).to_numpy() <= self._most_names
        places = np.flatnonzero(decodable)
        # A value's weight is the sum of its shares of the three limits of a part; a part ends where the running sum passes a whole number.
        weights = (
            1 / _MAX_PART_VALUES
            + sizes[places] / _MAX_PART_BYTES
            + (cells[places] + self._cells_per_value) / STEP_CELLS
        )
        edges = np.flatnonzero(np.diff(np.cumsum(weights).astype(np.int64))) + 1
        yield from np.split(places, edges)

    def _decoder(self, *, is_closed: bool, as_text: bool) -> ObjectDecoder:
        """Return the decoder: a closed one refuses values with fields that no column reads; one `as_text` reads doubles as texts."""
        if (decoder := self._decoders.get((is_closed, as_text))) is None:
            closed_root = is_closed or not self._ignores_extra
            decoder = ObjectDecoder(self._fields, (closed_root, is_closed), counts=self._counts_names, as_text=as_text)
            self._decoders[is_closed, as_text] = decoder
        return decoder

    def _are_mostly_plain(self, sample: list[bytes], *, as_text: bool) -> bool:
        """Return whether most sampled values have no fields but those of columns. If the batch differs, that costs only time."""
        _, _, extended = _decode_all(self._decoder(is_closed=True, as_text=as_text).decode, sample)
        return 2 * len(extended) <= len(sample)

    def _note_unknown(self, decoded: _DecodedObjects, raws: list[bytes], places: Places) -> tuple[list[bytes], Places]:
        """Note the names of fields that no column takes; return the values that could be parsed, and their positions."""
        if not self._ignores_extra or self._wholes:
            return raws, places
        objects, refused, _ = _decode_all(_fields_of, raws)
        for index in reversed(refused):
            del raws[index]
        places = np.delete(places, refused)
        known_names = self._known_names
        unknown_names = [[name for name in fields if name not in known_names] for fields in objects]
        positions = np.repeat(places, [len(names) for names in unknown_names])
        names = pa.array(list(chain.from_iterable(unknown_names)), pa.string())
        decoded.unknown_fields.append(UnknownFieldPairs(pa.array(positions, pa.int64()), names))
        return raws, places

    def _blocks(
        self, texts: pa.StringArray, closed: _DecodedObjects, extended: _DecodedObjects, step: StepSize
    ) -> Iterator[Block]:
        """Yield the rows of the closed values, then those of the extended ones."""
        for decoded in (closed, extended):
            if decoded.arrays:
                block = self._block(decoded, texts, is_fully_read=decoded is closed)
                step.hold(block.rows)
                yield block

    def _block(self, decoded: _DecodedObjects, texts: pa.StringArray, *, is_fully_read: bool) -> Block:
        """Return the rows of decoded values, without those in doubt."""
        places = np.concatenate(decoded.places)
        positions = pa.array(places, pa.int64())
        rows = pa.RecordBatch.from_struct_array(pa.concat_arrays(decoded.arrays))
        whole = compact_documents(_take_texts(texts, places)) if self._wholes else None
        results = [self._cast_field(field, rows, whole) for field in self._schema]
        batch = pa.RecordBatch.from_arrays([array for array, _ in results], schema=self._schema)
        doubts = [doubt for _, doubt in results]
        if (
            self._counts_names
        ):  # a struct holds a repeated name once, so its count of names differs from that of the text
            names = pc.count_substring_regex(_take_texts(texts, places), _NAME_END)
            doubts.append(pc.not_equal(names, pa.array(np.concatenate(decoded.names))))
        unknown_fields = UnknownFieldPairs.concat(decoded.unknown_fields).at_positions(positions)
        fully_read = positions if is_fully_read else positions[:0]
        if (doubt := or_masks(doubts)) is None:
            return Block(batch, positions, unknown_fields, fully_read)
        certain = pc.invert(doubt)
        return Block(batch.filter(certain), positions.filter(certain), unknown_fields, fully_read)

    def _cast_field(self, field: pa.Field, rows: pa.RecordBatch, whole: CastResult | None) -> CastResult:
        if whole is not None and field.name in self._wholes:
            documents, doubt = whole
            refused = None
            if self._wholes[field.name].variant:
                refused = pa.array([variant_refusal(text) is not None for text in documents.to_pylist()], pa.bool_())
            return documents.cast(field.type), or_masks([doubt, refused])
        if field.name not in self._columns:  # the column for rescued fields: rows of a block have none
            return pa.nulls(len(rows), field.type), None
        column, intermediate = self._columns[field.name]
        array = rows.column(column.steps[0])
        for step in column.steps[1:]:
            array = array.flatten()[array.type.get_field_index(step)]
        values, doubt = cast_field(field, intermediate.cast, array)
        # A field that is absent gets the default, and one that is null may not; here both are null.
        nulls = values.is_null() if column.has_default and values.null_count else None
        return values, or_masks([doubt, nulls])


@dataclass(slots=True)
class _DecodedObjects:
    """Values that one decoder decoded, part by part.

    Attributes:
        arrays: Their fields, one array per part.
        places: Their positions among all values, one array per part.
        names: How many names each value has, one array per part; empty if names are not counted.
        nbytes: Bytes of all arrays.
        unknown_fields: Fields that no column takes. Some may be of values that were refused.
    """

    arrays: list[pa.StructArray] = field(default_factory=list)
    places: list[Places] = field(default_factory=list)
    names: list[Counts] = field(default_factory=list)
    nbytes: int = 0
    unknown_fields: list[UnknownFieldPairs] = field(default_factory=list)

    def add(self, values: ObjectDecoder, raws: list[bytes], places: Places) -> tuple[list[bytes], Places]:
        """Decode values and add them; return those that were refused for their extra fields, and their positions."""
        objects, refused, extended = _decode_all(values.decode, raws)
        if objects:
            array, names = values.arrays(objects)
            self.arrays.append(array)
            self.places.append(np.delete(places, refused) if refused else places)
            self.nbytes += array.nbytes
            if names is not None:
                self.names.append(names)
        return [raws[index] for index in extended], places[extended]


def _decode_all(decode: Callable[[bytes], Any], raws: list[bytes]) -> tuple[list[Any], list[int], list[int]]:
    """Return the decoded values, the indexes of refused ones, and the indexes of those that were refused for extra fields."""
    objects: list[Any] = []
    refused: list[int] = []
    extended: list[int] = []
    # After an exception the same iterator goes on with the next value: one `try` per refused value, not per value.
    decoded = map(decode, raws)
    while len(objects) + len(refused) < len(raws):
        try:
            objects.extend(decoded)
        except (msgspec.DecodeError, RecursionError) as e:
            index = len(objects) + len(refused)
            refused.append(index)
            if str(e).startswith(_UNKNOWN_FIELD):
                extended.append(index)
    return objects, refused, extended


def _widest(data_type: pa.DataType) -> int:
    """Return the number of fields of the widest struct in a type."""
    if pa.types.is_list(data_type):
        return _widest(data_type.value_type)
    return max([len(data_type), *(_widest(field.type) for field in data_type)]) if pa.types.is_struct(data_type) else 0


def _take_texts(texts: pa.StringArray, places: Places) -> pa.StringArray:
    """Return the texts at ascending positions; without a copy if these are contiguous."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return texts.slice(places[0], len(places))
    return texts.take(pa.array(places, pa.int64()))


_SAMPLED_VALUES: Final = 8
"""The first valid one of so many values at the start of a batch determines the spelling."""


class FoldedDecoder:
    """Decodes blocks where names ignore case. Fields are spelled as in the first valid value of the batch.

    A producer spells its fields in one way. Only values with this spelling are decoded here: so no value can have a field twice, in
    two spellings.
    """

    def __init__(self, spec: RecordSpec) -> None:
        self._spec: Final = spec
        self._spelling: dict[str, str] | None = None
        self._decoder: TypedDecoder | None = None

    def decode(self, values: pa.BinaryArray, step: StepSize | None = None) -> Block:
        """Return rows of those values of which the exact decoder surely makes the same rows; the others get no row here."""
        spelling = self._first_spelling(values)
        if spelling != self._spelling:
            self._spelling, self._decoder = spelling, self._decoder_for(spelling)
        if self._decoder is None:
            return Block(no_rows(self._spec.columns), pa.array([], pa.int64()))
        return self._decoder.decode(values, step)

    def _first_spelling(self, values: pa.BinaryArray) -> dict[str, str]:
        for value in values.slice(0, _SAMPLED_VALUES):
            try:
                return {name.casefold(): name for name in parse_object(value.as_py())}
            except Rejection:
                continue
        return {}

    def _decoder_for(self, spelling: dict[str, str]) -> TypedDecoder | None:
        sources = {
            column.name: (spelling.get(column.steps[0].casefold(), column.steps[0]), *column.steps[1:])
            for column in self._spec.column_specs
            if column.steps
        }
        return typed_decoder(replace(self._spec, sources={**self._spec.sources, **sources}))


Dead = dict[int, Reason]
"""Reasons by the position of the value, ascending."""


class JsonValues:
    """Decodes JSON objects to the declared columns, in blocks where the outcome is surely the same. It is a `Format`, too.

    Args:
        spec: How values become rows.
        blocks: False decodes each value alone: the outcome is the same, but takes longer.

    Raises:
        Terminal: the spec can't be met: a type without a JSON form, a default that does not fit.
    """

    def __init__(self, spec: RecordSpec, *, blocks: bool = True) -> None:
        self._exact: Final = ExactDecoder(spec)
        self._blocks: TypedDecoder | FoldedDecoder | None = None
        if blocks:
            self._blocks = FoldedDecoder(spec) if spec.field_names == "case_insensitive" else typed_decoder(spec)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values, none of them null. All have the same shape: the columns."""
        block, dead = self.rows(values)
        return Decoded((Shaped(block.rows, block.positions),), dead, block.unknown_fields)

    def rows(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return the rows of values, none of them null, and the reasons of those without a row. No value makes this fail."""
        step = StepSize(len(values))
        blocks = [self._blocks.decode(values, step) if self._blocks is not None else self._block([], [], {})]
        rows: list[Row] = []
        positions: list[int] = []
        unknown_names: dict[int, Collection[str]] = {}
        dead: Dead = {}
        for position in complement(len(values), blocks[0].positions).to_pylist():
            try:
                row, left_out = self._exact.read(values[position].as_py())
                rows.append(row)
                positions.append(position)
                if left_out:
                    unknown_names[position] = left_out
            except Rejection as verdict:
                dead[position] = verdict.reason
                continue
            if step.add_cells(self._exact.cells.total):
                blocks.append(self._block(rows, positions, unknown_names))
                step.hold(blocks[-1].rows)
                rows, positions, unknown_names = [], [], {}
        return in_order([*blocks, self._block(rows, positions, unknown_names)], blocks[0].rows.schema), dead

    def _block(self, rows: list[Row], positions: list[int], unknown_names: dict[int, Collection[str]]) -> Block:
        return Block(
            self._exact.table(rows), pa.array(positions, pa.int64()), UnknownFieldPairs.from_names(unknown_names)
        )
