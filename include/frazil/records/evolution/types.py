"""Types of columns that records bring."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final
from unicodedata import ucd_3_2_0

import pyarrow as pa

from frazil.records.casting.source import Kind, kind_of, plain_type
from frazil.records.model.json_number import Number, is_held, scaled

LARGE: Final = pa.uint64()
"""Evidence: whole numbers of which some are no double, though all are longs. No column has this type."""

_PLAIN: Final = {
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
_NAMES: Final = {of: name for name, of in _PLAIN.items()}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`|-?\d+|[<>(),:@\[\]])")


def spelled(of: pa.DataType) -> str:
    """Return a type as Iceberg writes it; it is one that `column_type` or `infer` returns, and not `NOTHING`."""
    match kind_of(of):
        case Kind.STRUCT:
            return f"struct<{', '.join(_field(field, index) for index, field in enumerate(of))}>"
        case Kind.LIST:
            return f"list<{spelled(of.value_type)}>"
        case Kind.MAP:
            return f"map<{spelled(of.key_type)}, {spelled(of.item_type)}>"
        case Kind.DECIMAL:
            name = "digits" if pa.types.is_decimal256(of) else "decimal"
            return f"{name}({of.precision},{of.scale})"
    return f"fixed[{of.byte_width}]" if pa.types.is_fixed_size_binary(of) else _NAMES[of]


def _field(field: pa.Field, index: int) -> str:
    position = position_of(field, index)
    place = "" if position == index else f"@{position}"
    return f"{_name(field.name)}{place}: {spelled(field.type)}"


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def read_type(text: str) -> pa.DataType:
    """Return the type that `spelled` wrote."""
    return _read(_TOKEN.findall(text)[::-1])


def _read(tokens: list[str]) -> pa.DataType:
    """Take one type off the tokens, of which the next one is the last."""
    match tokens.pop():
        case "struct":
            return _struct(tokens)
        case "list":
            (element,) = _inside(tokens, 1)
            return list_of(element)
        case "map":
            key, value = _inside(tokens, 2)
            return map_of(key, value)
        case "decimal" | "digits" as name:
            _, precision, _, scale, _ = (tokens.pop() for _ in range(5))
            return (pa.decimal128 if name == "decimal" else pa.decimal256)(int(precision), int(scale))
        case "fixed":
            _, size, _ = (tokens.pop() for _ in range(3))
            return pa.binary(int(size))
        case name:
            return _PLAIN[name]


def _inside(tokens: list[str], count: int) -> list[pa.DataType]:
    found = []
    for _ in range(count):
        tokens.pop()
        found.append(_read(tokens))
    tokens.pop()
    return found


def _struct(tokens: list[str]) -> pa.DataType:
    fields: list[pa.Field] = []
    while tokens.pop() != ">":
        name, position = tokens.pop(), len(fields)
        if tokens.pop() == "@":
            position = int(tokens.pop())
            tokens.pop()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        fields.append(placed(pa.field(name, _read(tokens)), position))
    return pa.struct(fields)


NOTHING: Final = pa.null()
"""The type of what tells none: null, `[]`, `{}`."""

_MOST_DIGITS: Final = 38
"""Of a decimal in Iceberg."""


WRITTEN_OUT: Final = -1
"""A scale that no column has: evidence of a whole number that no long holds, and a double does."""

_MOST_SCALE: Final = 76

_ROOM: Final = 9
"""Digits after the point that a decimal made for numbers has at least, if it has any: Iceberg can't add more later."""

_LONG: Final = 1 << 63

_UNSIGNED: Final = {8: pa.int32(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
_SINGLE: Final = 32

_SAME: Final = {
    Kind.BOOL: pa.bool_(),
    Kind.TEXT: pa.string(),
    Kind.UUID: pa.uuid(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
}


def number_evidence(number: Number) -> pa.DataType:
    """Return what a JSON number says of its column.

    `long` and `LARGE` are whole numbers, `LARGE` one that no double holds. A decimal256 is one that a double holds, with its digits before and after the point:
    beside numbers that no double holds the column is a decimal. A decimal128 is a number that neither long nor double holds; with
    the scale `WRITTEN_OUT` it is one beyond long, without exponent, that a double holds: JavaScript writes doubles so. Alone it is a
    decimal, since it may be an unsigned integer; beside fractions it is a double.
    """
    if number.lstrip("-").isdecimal():
        digits = len(number.lstrip("-"))
        if digits > _MOST_DIGITS:
            return pa.int64()  # no column holds it: a dead letter
        value = int(number)
        if not -_LONG <= value < _LONG:
            return pa.decimal128(digits, WRITTEN_OUT if is_held(number, float(value)) else 0)
        return pa.int64() if is_held(number, float(value)) else LARGE
    exact, double = scaled(number), float(number)
    whole, scale = max(exact.magnitude, 0), max(-exact.exponent, 0)
    scale = max(scale, _ROOM) if scale else 0
    held, digits = is_held(number, double), max(1, whole + scale)
    if digits > (_MOST_SCALE if held else _MOST_DIGITS):
        return pa.float64()
    return pa.decimal256(digits, scale) if held else pa.decimal128(digits, scale)


def settled(of: pa.DataType) -> pa.DataType:
    """Return the type of a column for all that evidence says: its fields are in order, and have no other place."""
    match kind_of(of):
        case Kind.STRUCT:
            return pa.struct([pa.field(field.name, settled(field.type)) for field in of])
        case Kind.LIST:
            return list_of(settled(of.value_type))
        case Kind.MAP:
            return map_of(of.key_type, settled(of.item_type))
    if of == LARGE:
        return pa.int64()
    if pa.types.is_decimal128(of) and of.scale == WRITTEN_OUT:
        return pa.decimal128(of.precision, 0)
    return pa.float64() if pa.types.is_decimal256(of) else of


def list_of(element: pa.DataType) -> pa.DataType:
    """Return the list of optional elements, as tables have it; of elements without a type it has none either."""
    return NOTHING if element == NOTHING else pa.list_(pa.field("element", element))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return the map of optional values."""
    return NOTHING if NOTHING in {key, value} else pa.map_(key, value)


def struct_of(fields: Iterable[pa.Field]) -> pa.DataType:
    """Return the struct of those fields, in their order, that have a type."""
    typed = [field for field in fields if field.type != NOTHING]
    return pa.struct(typed) if typed else NOTHING


_POSITION: Final = b"position"


def placed(field: pa.Field, position: int) -> pa.Field:
    """Return a field that remembers where it stood among its neighbours in the records."""
    return field.with_metadata({_POSITION: str(position).encode()})


def unplaced(of: pa.DataType) -> pa.DataType:
    """Return a type whose fields have no order but that of their names."""
    match kind_of(of):
        case Kind.STRUCT:
            return pa.struct([placed(pa.field(field.name, unplaced(field.type)), 0) for field in of])
        case Kind.LIST:
            return list_of(unplaced(of.value_type))
        case Kind.MAP:
            return map_of(of.key_type, unplaced(of.item_type))
    return of


def position_of(field: pa.Field, index: int) -> int:
    """Return where a field stood among its neighbours; `index` is where it stands in the type."""
    return int(field.metadata[_POSITION]) if field.metadata and _POSITION in field.metadata else index


def order_key(name: str, position: int) -> tuple[bool, int, str]:
    """Return what columns beside each other are ordered by: their order in the records, and metadata (`__op`) last."""
    return name.startswith("__"), position, name


def column_type(of: pa.DataType, as_text: frozenset[str] = frozenset()) -> pa.DataType:
    """Return the type that a column for values of any Arrow type has in a table; `NOTHING` if there is none.

    Args:
        of: The type of the values.
        as_text: Kinds of values that are texts there (`time`, `uuid`).
    """
    found = plain_type(of)
    kind = kind_of(found)
    if kind in {Kind.INT, Kind.FLOAT, Kind.DECIMAL}:
        return _number(kind, found)
    inner = partial(column_type, as_text=as_text)
    match kind:
        case Kind.LIST:
            return list_of(inner(found.value_type))
        case Kind.MAP:
            return map_of(inner(found.key_type), inner(found.item_type))
        case Kind.STRUCT:
            return struct_of([field.with_type(inner(field.type)) for field in _placed_by_index(found)])
        case Kind.TIME | Kind.UUID if kind.value in as_text:
            return pa.string()
    return _plain(kind, found)


def _plain(kind: Kind, of: pa.DataType) -> pa.DataType:
    if kind is Kind.BYTES:
        return of if pa.types.is_fixed_size_binary(of) else pa.binary()
    if kind is Kind.STAMP:
        return pa.timestamp("us", None if of.tz is None else "UTC")
    return _SAME.get(kind, NOTHING)


def _number(kind: Kind, of: pa.DataType) -> pa.DataType:
    if kind is Kind.FLOAT:
        return pa.float32() if of.bit_width <= _SINGLE else pa.float64()
    if kind is Kind.INT:
        if not pa.types.is_signed_integer(of):
            return _UNSIGNED[of.bit_width]
        return pa.int32() if of.bit_width <= _SINGLE else pa.int64()
    fits = of.scale >= 0 and max(of.precision, of.scale) <= _MOST_DIGITS
    return pa.decimal128(max(of.precision, of.scale), of.scale) if fits else NOTHING


def _placed_by_index(of: pa.StructType) -> list[pa.Field]:
    return [placed(pa.field(field.name, field.type), position_of(field, index)) for index, field in enumerate(of)]


def parts_of(of: pa.DataType) -> list[pa.Field]:
    """Return the parts of a type, as Iceberg names them. A map has its values, keys go along."""
    match kind_of(of):
        case Kind.STRUCT:
            return list(of)
        case Kind.LIST:
            return [pa.field("element", of.value_type)]
        case Kind.MAP:
            return [pa.field("value", of.item_type)]
    return []


def leaves(of: pa.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a type's parts that have no parts."""
    parts = parts_of(of)
    if not parts:
        yield path
    for part in parts:
        yield from leaves(part.type, (*path, part.name))


def only(of: pa.DataType, kept: frozenset[tuple[str, ...]], path: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of some of a type's leaves."""
    match kind_of(of):
        case Kind.STRUCT:
            return struct_of(
                [field.with_type(only(field.type, kept, (*path, field.name))) for field in _placed_by_index(of)]
            )
        case Kind.LIST:
            return list_of(only(of.value_type, kept, (*path, "element")))
        case Kind.MAP:
            return map_of(of.key_type, only(of.item_type, kept, (*path, "value")))
    return of if path in kept else NOTHING


def placeable(name: str, longest: int, held: frozenset[str] = frozenset()) -> bool:
    """Return whether a column made for records can have a name of at most `longest` characters, and none that is `held` in files.

    Dots part names in paths, so a name with dots may be two fields at once. Of names that are one in files one alone is
    read back from it: no two columns made for records meet there.
    """
    if not 0 < len(name) <= longest or "." in name or not name.isprintable():
        return False
    return _is_read_back(name) and (not held or held.isdisjoint(file_names(name)))


def held_names(columns: Iterable[pa.Field]) -> frozenset[str]:
    """Return the names in files of those columns, and fields of columns, that records could not have brought."""
    names = {step for column in columns for leaf in leaves(column.type, (column.name,)) for step in leaf}
    return frozenset(written for name in names if not _is_read_back(name) for written in file_names(name))


def file_names(name: str) -> list[str]:
    """Return what a column is named in Parquet and Avro files by Python and by Java: Iceberg writes out all but letters and digits.

    They differ in what else is a letter: what may be written out by one of them is written out here. Names that are one
    in the files of either are one here.
    """
    return [_written(spelled) for spelled in _spellings(name)]


def _is_read_back(name: str) -> bool:
    return bool(_ORDINARY.fullmatch(name)) or all(_read_back(_written(of)) == of for of in _spellings(name))


def _spellings(name: str) -> set[str]:
    """Return a name as Python has it and, in halves of characters beyond 16 bits, as Java has it."""
    units = name.encode("utf-16-be")
    return {name, "".join(chr(high << 8 | low) for high, low in zip(units[::2], units[1::2], strict=True))}


def _written(name: str) -> str:
    written = "".join(char if _is_letter(char) else f"_x{ord(char):X}" for char in name)
    return f"_{written}" if name[:1].isdigit() else written


def _is_letter(char: str) -> bool:
    # A letter of that old Unicode is one in the tables of all engines.
    return char == "_" or (of := ucd_3_2_0.category(char)).startswith("L") or of == "Nd"


def _read_back(written: str) -> str:
    name = _WRITTEN.sub(_char, written)
    return name[1:] if name.startswith("_") and name[1:2].isdigit() else name


def _char(written: re.Match[str]) -> str:
    """Return half a character, or that with the shortest number, and the digits after it: `_x2D1` is `-1`."""
    digits = written[1]
    if _HALF.match(digits):
        return chr(int(digits[:4], 16)) + digits[4:]
    for end in range(2, len(digits) + 1):
        char = chr(int(digits[:end], 16))
        if char.isprintable() and not _is_letter(char):
            return char + digits[end:]
    return written[0]


_ORDINARY: Final = re.compile(r"(?!_[0-9])(?:(?!_x[0-9A-F]{2})[A-Za-z_]|(?!^)[0-9])+")
_WRITTEN: Final = re.compile(r"_x([0-9A-F]{2,5})")
_HALF: Final = re.compile(r"D[89A-F][0-9A-F]{2}")


def variant_name(name: str, of: pa.DataType) -> str:
    """Return the name of the column beside another one that takes its values of a type."""
    return f"{name}__{_WORDS.get(kind_of(of)) or _SIZED[of]}"


_WORDS: Final = {
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
_SIZED: Final = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double"}
