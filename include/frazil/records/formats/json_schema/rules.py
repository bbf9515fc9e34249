"""Checks whether JSON values keep the rules of their schema, with a native validator whose work is bounded.

Anyone may have registered the schema, and nothing stops the validator once it works on a value. So its work is bounded before:
regular expressions take linear time or give up, and `RuleCount` counts against how many rules one place of a value is checked.
A schema with too many rules is unusable, and a value too large for its schema's rules becomes a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_05UP, Context, Decimal
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

import jsonschema_rs
import msgspec
from referencing import Resource
from referencing.jsonschema import DRAFT7

from frazil.records.formats.registered import unusable_schema
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.json_number import SHOWN_CHARACTERS, JsonValue, describe

MAX_RULES: Final = 5_000
"""Rules against which one place of a value may be checked. A rule takes some 70 ns."""

MAX_STEPS: Final = 200_000_000
"""Rules times bytes of one value: some seconds at worst."""

MAX_CHAIN: Final = 100
"""Schemas within each other about the same part of a value: the validator's stack grows with each, at each level of a value."""

_EXPLAINED_RULES: Final = 500
"""Rules of a schema whose violations are explained: finding the place takes ten times as long as validation."""

_PATTERN_BYTES: Final = 64 << 20
"""Bytes that the regular expressions of a schema together take before they are used."""

_LARGEST_PATTERN: Final = 2 << 20
"""Bytes that one regular expression takes."""

_BACKTRACKS: Final = 10_000
"""Steps of an expression with look-arounds or back references; all others take linear time."""

_PATTERN_RULES: Final = 50
_MULTIPLE_RULES: Final = 100
_DIGIT_RULES: Final = 10
_ENUM_RULES: Final = 10
"""The cost of keywords as a number of rules: of `pattern`; of `multipleOf` and of each digit of it; of each part of an `enum` of several
types."""

_UNEVALUATED_TIMES: Final = 3
"""How often rules are checked where `unevaluatedProperties` depends on which fields they name."""

_NUMBERS: Final = Context(prec=100, Emax=1_000, Emin=-1_000, rounding=ROUND_05UP, traps=[])
"""Rounds a number so that it stays on the same side of each limit that a schema can have."""

_INTEGER_DIGITS: Final = 100

_DRAFTS: Final[Mapping[str, type[jsonschema_rs.Validator]]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_FIELDS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS: Final = ("additionalItems", "unevaluatedItems", "contains")


class _Unchecked:
    """A keyword that is not checked, as in most validators: the encoding of a text (`contentEncoding`)."""

    def __init__(self, *_: object) -> None:
        pass

    def validate(self, _: object) -> None:
        """Allow anything."""


class Rules:
    """The rules of one schema.

    Args:
        schema: The schema, in which numbers with a point are `Decimal`.
        references: Name and content of the schemas that it may refer to.
        resolver: Finds them (a resolver of `referencing`).

    Raises:
        Rejection: UNUSABLE_SCHEMA.
    """

    def __init__(self, schema: Any, references: Iterable[tuple[str, Any]], resolver: Any) -> None:
        named = list(references)
        _check_dynamic_references([schema, *(document for _, document in named)])
        count = RuleCount()
        self._schema: Final = schema
        self._load: Final = count.load(schema, resolver)
        size = min(_LARGEST_PATTERN, _PATTERN_BYTES // max(1, len(count.patterns)))
        patterns = jsonschema_rs.FancyRegexOptions(_BACKTRACKS, size_limit=size, dfa_size_limit=size)
        draft = _DRAFTS.get(_draft(schema), jsonschema_rs.Draft7Validator)
        number = _whole if draft is jsonschema_rs.Draft4Validator else _NUMBERS.create_decimal
        self._values: Final = json.JSONDecoder(parse_float=number)
        self._read: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(float_hook=number).decode
        try:
            self._validator: Final = draft(
                schema,
                validate_formats=False,
                registry=jsonschema_rs.Registry(
                    [(_uri(name), part) for name, part in named], draft=jsonschema_rs.Draft7
                ),
                mask="the value",
                pattern_options=patterns,
                keywords={"contentEncoding": _Unchecked, "contentMediaType": _Unchecked},
                offline=True,
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as e:
            raise unusable_schema(e.message) from e
        except ValueError as e:
            raise unusable_schema(e) from e
        except BaseException as e:
            raise _panic_as_rejection(e) from e

    def check(self, text: str, document: JsonValue) -> None:
        """Check a value against the rules.

        Args:
            text: The value, as JSON.
            document: The same, parsed.

        Raises:
            Rejection: SCHEMA_VIOLATION, LONE_SURROGATE, TOO_DEEP; UNUSABLE_SCHEMA if the value is too large for so many rules.
        """
        if len(text) * self._load.rules > MAX_STEPS:
            most = MAX_STEPS // self._load.rules
            expected = f"expected at most {most} characters of a value under {self._load.rules} rules"
            raise Rejection(
                DeadCode.UNUSABLE_SCHEMA, f"{expected}, found {len(text)}; `validate_schema: false` checks none"
            )
        try:
            value = self._values.decode(text)
        except ValueError:  # an integer of more digits than Python reads
            value = _LONG_VALUES.decode(text)
        if not self._is_valid(value):
            raise self._violation(value, document)

    def allow(self, raw: bytes) -> bool:
        """Return whether a value surely keeps the rules. `check` decides about the others, and tells which rule they break.

        Args:
            raw: One JSON document without a byte order mark.
        """
        if len(raw) * self._load.rules > MAX_STEPS:
            return False
        try:
            return self._is_valid(self._read(raw))
        except (msgspec.DecodeError, Rejection):  # a number of thousands of digits; or `check` refuses the value too
            return False

    def _is_valid(self, value: Any) -> bool:
        try:
            return bool(self._validator.is_valid(value))
        except UnicodeEncodeError as e:
            raise Rejection(DeadCode.LONE_SURROGATE, "expected characters, found half a surrogate pair") from e
        except ValueError as e:
            raise Rejection(DeadCode.TOO_DEEP, f"expected a value that can be validated: {e}") from e
        except BaseException as e:
            raise _panic_as_rejection(e) from e

    def _violation(self, value: Any, document: JsonValue) -> Rejection:
        message = f"expected a value that its schema allows, found {describe(document)}"
        violation = Rejection(DeadCode.SCHEMA_VIOLATION, message)
        if self._load.recursions <= 1 and self._load.rules <= _EXPLAINED_RULES:
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return _explain(error, self._schema, document)
            except ValueError:  # the explanation would have to show half a surrogate pair
                return violation
        return violation


def load_schema(text: str) -> Any:
    """Return a schema with its numbers as those of values are read.

    Raises:
        Rejection: UNUSABLE_SCHEMA, it is no JSON.
    """
    try:
        return _VALUES.decode(text)
    except (ValueError, RecursionError) as e:
        raise unusable_schema(f"{type(e).__name__}: {e}") from e


def _whole(text: str) -> int | Decimal:
    """Return a number as draft 4 needs it: 1.0 is no integer to that draft alone, which producers don't know."""
    number = _NUMBERS.create_decimal(text)
    return int(number) if number.adjusted() < _INTEGER_DIGITS and number == number.to_integral_value() else number


_VALUES: Final = json.JSONDecoder(parse_float=_NUMBERS.create_decimal)
_LONG_VALUES: Final = json.JSONDecoder(parse_float=_NUMBERS.create_decimal, parse_int=_NUMBERS.create_decimal)


def _panic_as_rejection(error: BaseException) -> BaseException:
    """Return the rejection of a schema on which the native code panicked; any other error, such as an interruption, as it is."""
    return unusable_schema("one that the validator fails on") if type(error).__name__ == "PanicException" else error


def _draft(schema: Any) -> str:
    return str(schema.get("$schema", "")).rstrip("#") if isinstance(schema, Mapping) else ""


def _uri(name: str) -> str:
    return quote(name.removesuffix("#"), safe="/:?#[]@!$&'()*+,;=%~")


def _explain(error: jsonschema_rs.ValidationError, schema: Any, document: JsonValue) -> Rejection:
    """Return the rejection that tells which rule forbids what. Rules about field names show the name, not all fields."""
    kind, steps = error.kind, list(error.instance_path)
    if isinstance(kind, jsonschema_rs.ValidationErrorKind.Required):
        message = f"expected the field {_shown(kind.property)}, which is required, found none"
    elif isinstance(kind, jsonschema_rs.ValidationErrorKind.AdditionalProperties):
        steps.append(next(iter(kind.unexpected)))
        message = f"expected no field but those of the schema, found {_shown(kind.unexpected)}"
    else:
        rule = _shown(_rule_at(schema, error.schema_path))
        keyword = next((step for step in reversed(error.schema_path) if isinstance(step, str)), "nothing")
        place: Any = document
        for step in steps:
            place = place[step]
        message = f"expected {keyword}: {rule}, found {describe(place)}"
    rejection = Rejection(DeadCode.SCHEMA_VIOLATION, message)
    for step in reversed(steps):
        rejection = rejection.with_parent(f"[{step}]" if isinstance(step, int) else step)
    return rejection


def _rule_at(schema: Any, steps: Iterable[str | int]) -> Any:
    for step in steps:
        try:
            schema = schema[step]
        except (KeyError, IndexError, TypeError):  # the rule is in another schema, to which this one refers
            return "a rule of a schema that it refers to"
    return schema


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Load:
    """The cost of validating one place of a value.

    Attributes:
        rules: Number of rules that the place is checked against.
        recursions: Number of recursive schemas among them.
    """

    rules: int = 0
    recursions: int = 0

    def __add__(self, load: Load) -> Load:
        return Load(self.rules + load.rules, self.recursions + load.recursions)

    def __or__(self, load: Load) -> Load:
        return Load(max(self.rules, load.rules), max(self.recursions, load.recursions))

    def __mul__(self, times: int) -> Load:
        return Load(self.rules * times, self.recursions * times)


@dataclass(frozen=True, slots=True)
class _Measure:
    """The load of a place itself, the largest load of the places inside it, and how many schemas lie within each other about it."""

    own: Load
    inner: Load
    chain: int = 1


_WITHIN_ITSELF: Final = _Measure(Load(1, 1), Load())
"""A schema within itself: the validator caches its result for a place, so it counts once."""


class RuleCount:
    """Counts the rules of a schema and of the schemas that it refers to.

    Schemas about the same place add up (`allOf`, `$ref`, …). If fields, or items, have schemas of their own, the most costly one
    counts.

    Attributes:
        patterns: The regular expressions.
    """

    def __init__(self) -> None:
        self.patterns: Final[set[str]] = set()
        self._measures: Final[dict[int, _Measure | None]] = {}

    def load(self, schema: Any, resolver: Any) -> Load:
        """Return the largest load of any place.

        Raises:
            Rejection: UNUSABLE_SCHEMA, there are too many rules.
            Unresolvable: a reference leads nowhere.
        """
        measure = self._measure(schema, resolver)
        return measure.own | measure.inner

    def _measure(self, schema: Any, resolver: Any) -> _Measure:
        if not isinstance(schema, Mapping):
            return _Measure(Load(1), Load())
        if id(schema) in self._measures:
            return self._measures[id(schema)] or _WITHIN_ITSELF
        self._measures[id(schema)] = None
        if "$id" in schema or "id" in schema:
            resolver = resolver.in_subresource(Resource.from_contents(schema, default_specification=DRAFT7))
        parts = [self._measure(part, part_resolver) for part, part_resolver in _same_place(schema, resolver)]
        times = _UNEVALUATED_TIMES if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else 1
        own, inner = Load(self._own_rules(schema)), self._fields(schema, resolver) | self._items(schema, resolver)
        for part in parts:
            own, inner = own + part.own * times, inner + part.inner * times
        measure = _Measure(own, inner, 1 + max((part.chain for part in parts), default=0))
        if max(own.rules, inner.rules) > MAX_RULES:
            raise unusable_schema(f"more than {MAX_RULES} rules for one place of a value")
        if measure.chain > MAX_CHAIN:
            raise unusable_schema(f"more than {MAX_CHAIN} schemas within each other for one place of a value")
        self._measures[id(schema)] = measure
        return measure

    def _own_rules(self, schema: Mapping[str, Any]) -> int:
        rules = 1 + sum(name not in _REFERENCES for name in schema)
        if isinstance(pattern := schema.get("pattern"), str):
            self.patterns.add(pattern)
            rules += _PATTERN_RULES
        if isinstance(step := schema.get("multipleOf"), int | Decimal):
            rules += _MULTIPLE_RULES + _DIGIT_RULES * abs(Decimal(step).adjusted())
        rules += len(_map(schema, "dependencies")) + len(_map(schema, "dependentRequired"))
        values = schema.get("enum")
        if isinstance(values, list) and {type(value) for value in values} not in ({str}, {int}):
            rules += _ENUM_RULES * _size(values)
        return rules + (_size(schema["const"]) if "const" in schema else 0)

    def _fields(self, schema: Mapping[str, Any], resolver: Any) -> Load:
        expressions = _map(schema, "patternProperties")
        self.patterns.update(expressions)
        every = [*expressions.values(), *(schema[name] for name in _FIELDS if name in schema)]
        own = self._most(_map(schema, "properties").values(), resolver)
        return own + self._sum(every, resolver) + Load(_PATTERN_RULES * len(expressions))

    def _items(self, schema: Mapping[str, Any], resolver: Any) -> Load:
        own = self._sum([schema[name] for name in _ITEMS if name in schema], resolver)
        for name in ("items", "prefixItems"):
            items = schema.get(name, [])
            own += self._most(items if isinstance(items, list) else [items], resolver)
        return own

    def _most(self, schemas: Iterable[Any], resolver: Any) -> Load:
        most = Load()
        for schema in schemas:
            most |= self.load(schema, resolver)
        return most

    def _sum(self, schemas: Iterable[Any], resolver: Any) -> Load:
        return sum((self.load(schema, resolver) for schema in schemas), Load())


def _same_place(schema: Mapping[str, Any], resolver: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas within a schema that are about the same place, each with the resolver of its references."""
    for name in _REFERENCES:
        if isinstance(reference := schema.get(name), str):
            resolved = resolver.lookup(reference)
            yield resolved.contents, resolved.resolver
    lists = (schema[name] for name in _SAME_PLACE_LISTS if isinstance(schema.get(name), list))
    maps = (_map(schema, name).values() for name in _SAME_PLACE_MAPS)
    for part in chain((schema[name] for name in _SAME_PLACE if name in schema), *lists, *maps):
        yield part, resolver


def _map(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    keyword_value = schema.get(name)
    return keyword_value if isinstance(keyword_value, Mapping) else {}


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _check_dynamic_references(documents: Iterable[Any]) -> None:
    """Refuse dynamic references that may mean several schemas: their rules can't be counted."""
    anchors: set[str] = set()
    for name in chain.from_iterable(map(_dynamic_anchors, documents)):
        if name in anchors:
            raise unusable_schema(f"the dynamic anchor {name!r} twice")
        anchors.add(name)


def _dynamic_anchors(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(name := value.get("$dynamicAnchor"), str):
            yield name
        if value.get("$recursiveAnchor") is True:
            yield "$recursiveAnchor"
    for part in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _dynamic_anchors(part)
