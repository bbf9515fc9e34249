"""Types in Iceberg's spelling, in which demands travel: names of fields that are no words stand in backticks.

`@7` behind the name of a field says where it stood among its neighbours in the records, if the type does not say it.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from frazil.records.evolve.types import LARGE, list_of, map_of, placed, position_of
from frazil.records.fit.source import Kind, kind_of

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
