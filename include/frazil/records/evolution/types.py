"""Types of columns that records bring: in Iceberg's spelling, as Arrow types, and as evidence of JSON numbers. And the names that
new columns may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final
from unicodedata import ucd_3_2_0

import pyarrow as pa

from frazil.records.casting.source import Kind, child_fields, kind_of, plain_type
from frazil.records.model.json_number import Number, double_holds, exact_value

LARGE: Final = pa.uint64()
"""Evidence of a long that no double holds. No column has this type."""

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
    "large": LARGE,
}
_PRIMITIVE_NAMES: Final = {data_type: name for name, data_type in _PRIMITIVES.items()}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(rf"\s*({_WORD.pattern}|`(?:[^`]|``)+`|-?\d+|[<>(),:@\[\]])")


def write_type(data_type: pa.DataType) -> str:
    """Return a type that `column_type` or `infer` returned, but not `NO_TYPE`, in Iceberg's spelling."""
    match kind_of(data_type):
        case Kind.STRUCT:
            return f"struct<{', '.join(_write_field(field, index) for index, field in enumerate(data_type))}>"
        case Kind.LIST:
            return f"list<{write_type(data_type.value_type)}>"
        case Kind.MAP:
            return f"map<{write_type(data_type.key_type)}, {write_type(data_type.item_type)}>"
        case Kind.DECIMAL:
            name = "digits" if pa.types.is_decimal256(data_type) else "decimal"
            return f"{name}({data_type.precision},{data_type.scale})"
    return f"fixed[{data_type.byte_width}]" if pa.types.is_fixed_size_binary(data_type) else _PRIMITIVE_NAMES[data_type]


def _write_field(field: pa.Field, index: int) -> str:
    position = position_of(field, index)
    position_suffix = "" if position == index else f"@{position}"
    return f"{_quoted_name(field.name)}{position_suffix}: {write_type(field.type)}"


def _quoted_name(name: str) -> str:
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def read_type(text: str) -> pa.DataType:
    """Return the type from the text that `write_type` returned."""
    return _read_tokens(_TOKEN.findall(text)[::-1])


def _read_tokens(tokens: list[str]) -> pa.DataType:
    """Parse one type and remove its tokens; the list is reversed, so that the next token is the last one."""
    match tokens.pop():
        case "struct":
            return _read_struct(tokens)
        case "list":
            (element,) = _read_arguments(tokens, 1)
            return list_of(element)
        case "map":
            key, value = _read_arguments(tokens, 2)
            return map_of(key, value)
        case "decimal" | "digits" as name:
            _, precision, _, scale, _ = (tokens.pop() for _ in range(5))
            return (pa.decimal128 if name == "decimal" else pa.decimal256)(int(precision), int(scale))
        case "fixed":
            _, size, _ = (tokens.pop() for _ in range(3))
            return pa.binary(int(size))
        case name:
            return _PRIMITIVES[name]


def _read_arguments(tokens: list[str], count: int) -> list[pa.DataType]:
    arguments = []
    for _ in range(count):
        tokens.pop()
        arguments.append(_read_tokens(tokens))
    tokens.pop()
    return arguments


def _read_struct(tokens: list[str]) -> pa.DataType:
    fields: list[pa.Field] = []
    while tokens.pop() != ">":
        name, position = tokens.pop(), len(fields)
        if tokens.pop() == "@":
            position = int(tokens.pop())
            tokens.pop()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        fields.append(with_position(pa.field(name, _read_tokens(tokens)), position))
    return pa.struct(fields)


NO_TYPE: Final = pa.null()
"""The type of a value that shows none: null, `[]`, `{}`."""

MAX_PRECISION: Final = 38
"""Most digits of a decimal in Iceberg."""

WRITTEN_OUT: Final = -1
"""A scale that no decimal column has. It marks a whole number beyond long that a double holds exactly."""

MAX_EVIDENCE_PRECISION: Final = 76
"""Most digits of a decimal that is evidence of numbers that a double holds (`number_evidence`)."""

_MIN_FRACTION_DIGITS: Final = 9
"""The least scale of a new decimal column for fractions: Iceberg can't raise a scale later."""

_LONG_LIMIT: Final = 1 << 63

_UNSIGNED: Final = {8: pa.int32(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
_NARROW_BITS: Final = 32

_FIXED_TYPES: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.TEXT: pa.string(),
    Kind.UUID: pa.uuid(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
}


def number_evidence(number: Number) -> pa.DataType:
    """Return the evidence that a JSON number gives about the type of its column; `type_from_evidence` returns that type.

    A type holds a number if it keeps it exactly. The evidence is one of these types:

    - `long`: a whole number that both long and double hold; `LARGE`: one that only long holds.
    - decimal256: a number with a fraction or exponent that a double holds. The column is a double, or a decimal if other numbers fit
      no double.
    - decimal128: a number that neither long nor double holds. The column is a decimal.
    - decimal128 with the scale `WRITTEN_OUT`: a whole number beyond long that a double holds, as JavaScript writes doubles. The
      column is a decimal, since the number may be an unsigned integer, or a double if other numbers have fractions.
    """
    if number.lstrip("-").isdecimal():
        digits = len(number.lstrip("-"))
        if digits > MAX_PRECISION:
            return pa.int64()  # no column holds it: the record is a dead letter
        value = int(number)
        if not -_LONG_LIMIT <= value < _LONG_LIMIT:
            return pa.decimal128(digits, WRITTEN_OUT if double_holds(number, float(value)) else 0)
        return pa.int64() if double_holds(number, float(value)) else LARGE
    exact, double = exact_value(number), float(number)
    whole, scale = max(exact.magnitude, 0), max(-exact.exponent, 0)
    scale = max(scale, _MIN_FRACTION_DIGITS) if scale else 0
    is_double, digits = double_holds(number, double), max(1, whole + scale)
    if digits > (MAX_EVIDENCE_PRECISION if is_double else MAX_PRECISION):
        return pa.float64()
    return pa.decimal256(digits, scale) if is_double else pa.decimal128(digits, scale)


def type_from_evidence(evidence: pa.DataType) -> pa.DataType:
    """Return the column type for evidence. Fields keep their order, but no position metadata."""
    match kind_of(evidence):
        case Kind.STRUCT:
            return pa.struct([pa.field(field.name, type_from_evidence(field.type)) for field in evidence])
        case Kind.LIST:
            return list_of(type_from_evidence(evidence.value_type))
        case Kind.MAP:
            return map_of(evidence.key_type, type_from_evidence(evidence.item_type))
    if evidence == LARGE:
        return pa.int64()
    if pa.types.is_decimal128(evidence) and evidence.scale == WRITTEN_OUT:
        return pa.decimal128(evidence.precision, 0)
    return pa.float64() if pa.types.is_decimal256(evidence) else evidence


def list_of(element: pa.DataType) -> pa.DataType:
    """Return a list type with optional elements, as tables have it; `NO_TYPE` if the element has no type."""
    return NO_TYPE if element == NO_TYPE else pa.list_(pa.field("element", element))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return a map type with optional values; `NO_TYPE` if key or value has no type."""
    return NO_TYPE if NO_TYPE in {key, value} else pa.map_(key, value)


def struct_of(fields: Iterable[pa.Field]) -> pa.DataType:
    """Return a struct type of the fields that have a type, in their order; `NO_TYPE` if none has."""
    typed = [field for field in fields if field.type != NO_TYPE]
    return pa.struct(typed) if typed else NO_TYPE


_POSITION: Final = b"position"


def with_position(field: pa.Field, position: int) -> pa.Field:
    """Return a field whose metadata has its position among its siblings in the records."""
    return field.with_metadata({_POSITION: str(position).encode()})


def without_positions(data_type: pa.DataType) -> pa.DataType:
    """Return a type whose struct fields all have position 0, so that only their names order them."""
    match kind_of(data_type):
        case Kind.STRUCT:
            return pa.struct(
                [with_position(pa.field(field.name, without_positions(field.type)), 0) for field in data_type]
            )
        case Kind.LIST:
            return list_of(without_positions(data_type.value_type))
        case Kind.MAP:
            return map_of(data_type.key_type, without_positions(data_type.item_type))
    return data_type


def position_of(field: pa.Field, index: int) -> int:
    """Return a field's position among its siblings in the records, or else `index`, its position in the type."""
    return int(field.metadata[_POSITION]) if field.metadata and _POSITION in field.metadata else index


def order_key(name: str, position: int) -> tuple[bool, int, str]:
    """Return the sort key of sibling columns: their position in the records, with metadata columns (`__op`) last."""
    return name.startswith("__"), position, name


def column_type(arrow_type: pa.DataType, as_text: frozenset[str] = frozenset()) -> pa.DataType:
    """Return the table's column type for values of an Arrow type; `NO_TYPE` if no column can hold them.

    Kinds in `as_text` (`time`, `uuid`) become strings.
    """
    plain = plain_type(arrow_type)
    kind = kind_of(plain)
    if kind in {Kind.INT, Kind.FLOAT, Kind.DECIMAL}:
        return _number_type(kind, plain)
    element_type = partial(column_type, as_text=as_text)
    match kind:
        case Kind.LIST:
            return list_of(element_type(plain.value_type))
        case Kind.MAP:
            return map_of(element_type(plain.key_type), element_type(plain.item_type))
        case Kind.STRUCT:
            return struct_of([field.with_type(element_type(field.type)) for field in _with_positions(plain)])
        case Kind.TIME | Kind.UUID if kind.value in as_text:
            return pa.string()
    return _primitive_type(kind, plain)


def _primitive_type(kind: Kind, arrow_type: pa.DataType) -> pa.DataType:
    if kind is Kind.BYTES:
        return arrow_type if pa.types.is_fixed_size_binary(arrow_type) else pa.binary()
    if kind is Kind.STAMP:
        return pa.timestamp("us", None if arrow_type.tz is None else "UTC")
    return _FIXED_TYPES.get(kind, NO_TYPE)


def _number_type(kind: Kind, arrow_type: pa.DataType) -> pa.DataType:
    if kind is Kind.FLOAT:
        return pa.float32() if arrow_type.bit_width <= _NARROW_BITS else pa.float64()
    if kind is Kind.INT:
        if not pa.types.is_signed_integer(arrow_type):
            return _UNSIGNED[arrow_type.bit_width]
        return pa.int32() if arrow_type.bit_width <= _NARROW_BITS else pa.int64()
    digits = max(arrow_type.precision, arrow_type.scale)
    return pa.decimal128(digits, arrow_type.scale) if arrow_type.scale >= 0 and digits <= MAX_PRECISION else NO_TYPE


def _with_positions(struct_type: pa.StructType) -> list[pa.Field]:
    return [
        with_position(pa.field(field.name, field.type), position_of(field, index))
        for index, field in enumerate(struct_type)
    ]


def leaf_paths(data_type: pa.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a type's leaves: its parts at any depth that have no parts themselves."""
    children = child_fields(data_type)
    if not children:
        yield path
    for child in children:
        yield from leaf_paths(child.type, (*path, child.name))


def select_leaves(
    data_type: pa.DataType, selected: frozenset[tuple[str, ...]], path: tuple[str, ...] = ()
) -> pa.DataType:
    """Return a type without the leaves that are not selected; `NO_TYPE` if none is left."""
    match kind_of(data_type):
        case Kind.STRUCT:
            return struct_of(
                [
                    field.with_type(select_leaves(field.type, selected, (*path, field.name)))
                    for field in _with_positions(data_type)
                ]
            )
        case Kind.LIST:
            return list_of(select_leaves(data_type.value_type, selected, (*path, "element")))
        case Kind.MAP:
            return map_of(data_type.key_type, select_leaves(data_type.item_type, selected, (*path, "value")))
    return data_type if path in selected else NO_TYPE


def can_name_column(name: str, max_length: int, reserved: frozenset[str] = frozenset()) -> bool:
    """Return whether a new column can have this name.

    Dots separate names in paths, so a name with a dot could mean two fields. Data files spell names in another way, and two names
    with one spelling would collide: a new column has a name that can be read back from its spelling, which is not `reserved`.
    """
    if not 0 < len(name) <= max_length or "." in name or not name.isprintable():
        return False
    return _survives_file_names(name) and (not reserved or reserved.isdisjoint(names_in_files(name)))


def reserved_file_names(columns: Iterable[pa.Field]) -> frozenset[str]:
    """Return the spellings in data files of existing columns and nested fields whose names a new column could not have."""
    names = {step for column in columns for leaf in leaf_paths(column.type, (column.name,)) for step in leaf}
    return frozenset(written for name in names if not _survives_file_names(name) for written in names_in_files(name))


def names_in_files(name: str) -> list[str]:
    """Return the spellings of a name in Parquet and Avro files: Iceberg escapes all characters but letters and digits.

    Python and Java disagree about some letters. A character that one of them may escape is escaped here. So names that collide in
    the files of either collide here.
    """
    return [_escaped(form) for form in _unicode_forms(name)]


def _survives_file_names(name: str) -> bool:
    return bool(_UNESCAPED_NAME.fullmatch(name)) or all(
        _unescaped(_escaped(form)) == form for form in _unicode_forms(name)
    )


def _unicode_forms(name: str) -> set[str]:
    """Return a name as Python and as Java see it: in Java a character beyond 16 bits is two surrogates."""
    units = name.encode("utf-16-be")
    return {name, "".join(chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True))}


def _escaped(name: str) -> str:
    written = "".join(char if _is_letter(char) else f"_x{ord(char):X}" for char in name)
    return f"_{written}" if name[:1].isdigit() else written


def _is_letter(char: str) -> bool:
    # A letter of Unicode 3.2 is a letter in the newer versions that Python and Java use, too.
    return char == "_" or (category := ucd_3_2_0.category(char)).startswith("L") or category == "Nd"


def _unescaped(written: str) -> str:
    name = _ESCAPE.sub(_escape_to_char, written)
    return name[1:] if name.startswith("_") and name[1:2].isdigit() else name


def _escape_to_char(written: re.Match[str]) -> str:
    """Return the character of an escape, and the digits after it: `_x2D1` is `-1`.

    The escape is a surrogate, or else the shortest number of a character that Iceberg escapes.
    """
    digits = written[1]
    if _SURROGATE.match(digits):
        return chr(int(digits[:4], 16)) + digits[4:]
    for end in range(2, len(digits) + 1):
        char = chr(int(digits[:end], 16))
        if char.isprintable() and not _is_letter(char):
            return char + digits[end:]
    return written[0]


_UNESCAPED_NAME: Final = re.compile(r"(?!_[0-9])(?:(?!_x[0-9A-F]{2})[A-Za-z_]|(?!^)[0-9])+")
_ESCAPE: Final = re.compile(r"_x([0-9A-F]{2,5})")
_SURROGATE: Final = re.compile(r"D[89A-F][0-9A-F]{2}")


def variant_name(name: str, data_type: pa.DataType) -> str:
    """Return the name of the variant column: it takes values of a type that does not fit the column of their field."""
    return f"{name}__{_KIND_SUFFIXES.get(kind_of(data_type)) or _NUMBER_SUFFIXES[data_type]}"


_KIND_SUFFIXES: Final = {
    Kind.BOOL: "boolean",
    Kind.DECIMAL: "decimal",
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.UUID: "uuid",
    Kind.DATE: "date",
    Kind.TIME: "time",
    Kind.STAMP: "timestamp",
    Kind.STRUCT: "struct",
    Kind.LIST: "list",
    Kind.MAP: "map",
}
_NUMBER_SUFFIXES: Final = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double"}
