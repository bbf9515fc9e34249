"""JSON that a registered schema describes: framed JSON text, validated, with the columns that the schema declares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, localcontext
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin

import pyarrow as pa
from jsonschema.exceptions import SchemaError, UnknownType, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from frazil.records.dead import DeadCode, Rejection
from frazil.records.formats.json_schema_check import quick_check
from frazil.records.formats.json_schema_types import Compiler
from frazil.records.formats.json_schema_words import Check
from frazil.records.formats.outside import Outside, outside
from frazil.records.formats.port import SchemaSource, WriterSchema
from frazil.records.formats.registered import Codec, Incomplete, RegistryFormat, row_codec, unusable
from frazil.records.json.convert import Converter
from frazil.records.json.exact import parse_object
from frazil.records.json.number import Number, scaled
from frazil.records.json.text import SHOWN_CHARACTERS, JsonValue, describe

_EXPONENTS: Final = 10_000
"""For validation, exponents saturate here: no schema tells larger ones apart."""

_EXACT: Final = Context(prec=3 * _EXPONENTS)
"""Remainders of all that is left."""

_INT_DIGITS: Final = 4_000
"""Python refuses to make integers of longer texts."""

_NO_VERDICT: Final = (Unresolvable, UnknownType, re.error, ArithmeticError, TypeError, ValueError, KeyError)
"""What a validator raises on schemas that it can't apply: a pattern of another language, a reference to nothing."""


class JsonSchemaFormat(RegistryFormat):
    """JSON values behind a Schema Registry's frame.

    Columns are the properties of the object; of any other schema there is the one column `port.BARE`. Schemas that don't
    say their draft are of draft 7, as the registry has it. Nothing is fetched: a schema refers to its references only.

    Args:
        source: Knows the writer schemas.
        validate: Whether values are held against their schemas (SCHEMA_VIOLATION), not only converted by them. It costs
            more than everything else together where a schema has keywords that `json_schema_check` leaves to the validator.
    """

    def __init__(self, source: SchemaSource, *, validate: bool = True) -> None:
        super().__init__(source, "JSON", partial(_codec, validate))


def _codec(validate: bool, writer: WriterSchema) -> Codec:  # noqa: FBT001  # bound once, above
    schema = _loaded(writer.text)
    chosen = validator_for(schema, default=Draft7Validator)
    root = Resource.from_contents(schema, default_specification=DRAFT7)
    registry = _registry(writer, root)
    try:
        chosen.check_schema(schema)
        data_type, convert = Compiler().node(schema, registry.resolver_with_root(root))
    except (SchemaError, RecursionError) as e:
        raise unusable(e.message if isinstance(e, SchemaError) else "too many levels") from e
    except _NO_VERDICT as e:
        raise unusable(f"{type(e).__name__}: {e}") from e
    bare = not pa.types.is_struct(data_type)
    quick = quick_check(schema, registry.resolver_with_root(root), chosen) if validate else None
    checked = partial(_check, chosen(schema, registry=registry), quick) if validate else _unchecked
    return row_codec(data_type, _reader(convert, checked, outside(data_type), bare=bare), bare=bare)


def _loaded(text: str) -> Any:
    try:
        # As the numbers of values are: 0.1 is a multiple of 0.01, and 2.0 is an integer.
        return json.loads(text, parse_float=lambda number: _number(Number(number)))
    except (ValueError, RecursionError) as e:
        raise unusable(f"{type(e).__name__}: {e}") from e


def _registry(writer: WriterSchema, root: Resource[Any]) -> Registry[Any]:
    """Return what the schema may refer to: under the name it is referred to by, as it is and next to the schema."""
    found: Registry[Any] = Registry()
    base = root.id() or ""
    for reference in writer.references:
        resource = Resource.from_contents(_loaded(reference.text), default_specification=DRAFT7)
        own = resource.id()
        names = {reference.name, urljoin(base, reference.name), *([own] if own else [])}
        found = found.with_resources((name, resource) for name in names)
    return found


def _reader(
    convert: Converter, check: Callable[[JsonValue], None], others: Outside | None, *, bare: bool
) -> Callable[[bytes], object]:
    def read(raw: bytes) -> object:
        document = _document(raw) if bare else parse_object(raw)
        check(document)
        value = convert(document)
        found = () if others is None else tuple(others(document))
        return Incomplete(value, found) if found else value

    return read


def _document(raw: bytes) -> JsonValue:
    try:
        return parse_object(raw)
    except Rejection as e:
        if e.reason.code is not DeadCode.NOT_AN_OBJECT:
            raise
        # It is JSON, and may be another value than an object.
        value: JsonValue = json.loads(raw.decode("utf-8-sig"), parse_int=Number, parse_float=Number)
        return value


def _unchecked(_: JsonValue) -> None:
    pass


def _check(validator: Validator, quick: Check | None, document: JsonValue) -> None:
    try:
        if quick is not None and quick(document):
            return
        with localcontext(_EXACT):
            error = next(validator.iter_errors(_plain(document)), None)
    except RecursionError as e:
        raise _too_deep() from e
    except _NO_VERDICT as e:
        raise unusable(f"{type(e).__name__}: {e}") from e
    except BaseException as e:
        # The validator's maps are of a native library: where the stack ends inside of one, it panics.
        if type(e).__name__ != "PanicException":
            raise
        raise _too_deep() from e
    if error is not None:
        raise _violation(error, document)


def _too_deep() -> Rejection:
    return Rejection(DeadCode.TOO_DEEP, "expected a value that can be validated, found too many levels")


def _violation(error: ValidationError, document: JsonValue) -> Rejection:
    rule = json.dumps(error.validator_value, default=str, ensure_ascii=False)
    shown = rule if len(rule) <= SHOWN_CHARACTERS else f"{rule[:SHOWN_CHARACTERS]}…"
    message = f"expected {error.validator or 'nothing'}: {shown}, found {_described(document, error.absolute_path)}"
    return Rejection(DeadCode.SCHEMA_VIOLATION, message, _path(error.absolute_path))


def _described(document: JsonValue, steps: Iterable[str | int]) -> str:
    found: Any = document
    for step in steps:
        if isinstance(found, dict) and step not in found:  # draft 3: the path of a missing field ends with its name
            return "no such field"
        found = found[step]
    return describe(found)


def _path(steps: Iterable[str | int]) -> str:
    at = Rejection(DeadCode.SCHEMA_VIOLATION, "")
    for step in reversed(list(steps)):
        at = at.within(f"[{step}]" if isinstance(step, int) else step)
    return at.reason.path


def _plain(value: JsonValue) -> Any:
    """Return a value with numbers as Python has them, exact: integers, also those written as 1.0, and decimals."""
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _number(text: Number) -> int | Decimal:
    exact = scaled(text)
    if exact.exponent >= 0 and exact.magnitude <= _INT_DIGITS:
        return exact.integer()
    exponent = max(-_EXPONENTS, min(_EXPONENTS, exact.exponent))
    return Decimal(f"{'-' if exact.negative else ''}{exact.digits or '0'}E{exponent}")
