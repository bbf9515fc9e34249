"""JSON Schemas of an attacker: each value has an outcome, within bounded time."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest

from frazil.records.formats.json_schema.types import JsonSchemaFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import NamedSchema

pytestmark = pytest.mark.timeout(60)

HEAD: Final = b"\0\0\0\0\1"
D19: Final = "https://json-schema.org/draft/2019-09/schema"
D20: Final = "https://json-schema.org/draft/2020-12/schema"
VIOLATION, UNUSABLE = DeadCode.SCHEMA_VIOLATION, DeadCode.UNUSABLE_SCHEMA


def doubled(keyword: str, count: int = 40) -> dict[str, Any]:
    """A schema of which each part applies the next one twice: its rules are two to the power of `count`."""
    parts: dict[str, Any] = {
        f"a{number}": {keyword: [{"$ref": f"#/definitions/a{number + 1}"}] * 2} for number in range(count)
    }
    return {"$ref": "#/definitions/a0", "definitions": {**parts, f"a{count}": {"type": "string"}}}


def within_itself(twice: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A schema that holds its field `a` against itself, twice."""
    return {"properties": {"a": twice}, "additionalProperties": False, **more}


def tower(inner: dict[str, Any], levels: int, **around: Any) -> dict[str, Any]:
    """A schema within as many others, all about one place."""
    for _ in range(levels):
        inner = {"allOf": [inner], **around}
    return inner


def nested(levels: int) -> dict[str, Any]:
    """A value that a schema within itself follows to its end, where it is wrong."""
    value: dict[str, Any] = {"wrong": 1}
    for _ in range(levels):
        value = {"a": value}
    return value


SELF = {"$ref": "#"}
OBJECTS = [{"a": number} for number in range(20_000)]
LINKS: dict[str, Any] = {
    f"a{number}": {"anyOf": [{"type": "null"}, {"$ref": f"#/definitions/a{number + 1}"}]} for number in range(4_000)
}

HOSTILE: list[tuple[str, Any, Any, DeadCode | None]] = [
    ("a pattern that backtracks", {"pattern": "^(a+)+$"}, "a" * 40 + "b", VIOLATION),
    ("a pattern that looks ahead", {"pattern": "^(?=b|a)(a|aa)+$(?!x)"}, "a" * 60 + "b", VIOLATION),
    ("a back reference", {"pattern": r"^(a|aa)+\1(a|aa)+\1$"}, "a" * 60 + "b", VIOLATION),
    ("a pattern of fields", {"patternProperties": {"^(a+)+$": False}}, {"a" * 40 + "b": 1}, None),
    (
        "a pattern of further fields",
        within_itself({}, patternProperties={"^(a+)+$": {}}),
        {"a" * 40 + "b": 1},
        VIOLATION,
    ),
    ("a huge pattern", {"pattern": "((a{1000}){1000}){1000}"}, "a", UNUSABLE),
    (
        "huge patterns",
        {"properties": {f"a{number}": {"pattern": f"[\\w{number}]{{900}}"} for number in range(999)}},
        {},
        UNUSABLE,
    ),
    ("a text without end", {"pattern": "(x|xx|y){1,200}z"}, "xy" * 100_000, VIOLATION),
    ("a slow format", {"format": "email"}, "a@" + "a." * 100_000, None),
    *((f"doubled {word}", doubled(word), 1, UNUSABLE) for word in ("anyOf", "allOf", "oneOf")),
    ("as many schemas as rules", {"anyOf": [{"type": "null"}] * 6_000}, 1, UNUSABLE),
    ("items to compare", {"uniqueItems": True}, OBJECTS, None),
    ("items to compare, one twice", {"uniqueItems": True}, [*OBJECTS, OBJECTS[-1]], VIOLATION),
    ("an enum of objects", {"items": {"enum": OBJECTS}}, OBJECTS, UNUSABLE),
    ("an enum of kinds", {"items": {"enum": [*range(9_999), "x"]}}, [*range(9_999)], UNUSABLE),
    ("a large enum", {"items": {"enum": [f"v{number}" for number in range(99_999)]}}, ["v99998"] * 9_999, None),
    (
        "dependencies",
        {"items": {"dependencies": {f"a{number}": ["b"] for number in range(9_999)}}},
        [{}] * 9_999,
        UNUSABLE,
    ),
    ("itself", SELF, 1, None),
    ("itself in itself", {"allOf": [SELF], "type": "string"}, 1, VIOLATION),
    ("not itself", {"not": SELF}, 1, VIOLATION),
    ("twice within itself", within_itself({"anyOf": [SELF, SELF]}), nested(45), VIOLATION),
    ("twice in all of itself", within_itself({"allOf": [SELF, SELF], "oneOf": [SELF, SELF]}), nested(45), VIOLATION),
    ("if itself", within_itself({"if": SELF, "then": SELF, "else": SELF}), nested(45), VIOLATION),
    ("contains itself", {"contains": SELF, "items": SELF, "type": "array"}, [[[[[[1]]]]]], VIOLATION),
    (
        "itself by a dynamic reference",
        within_itself({"anyOf": [{"$dynamicRef": "#x"}] * 2}, **{"$schema": D20, "$dynamicAnchor": "x"}),
        nested(45),
        VIOLATION,
    ),
    (
        "itself by a recursive reference",
        within_itself({"anyOf": [{"$recursiveRef": "#"}] * 2}, **{"$schema": D19, "$recursiveAnchor": True}),
        nested(45),
        VIOLATION,
    ),
    (
        "a dynamic reference to whom it may concern",
        {"$schema": D20, "$defs": {"a": {"$dynamicAnchor": "x"}, "b": {"$dynamicAnchor": "x", "$id": "b"}}},
        1,
        UNUSABLE,
    ),
    (
        "unevaluated fields of each level",
        {"$schema": D20, **tower({}, 25, unevaluatedProperties=False)},
        {"a": 1},
        UNUSABLE,
    ),
    ("unevaluated items of each level", {"$schema": D20, **tower({}, 25, unevaluatedItems=False)}, [1], UNUSABLE),
    (
        "a chain of references",
        {"$ref": "#/definitions/a0", "definitions": {**LINKS, "a4000": SELF}},
        nested(45),
        UNUSABLE,
    ),
    ("a deep schema", tower({}, 240), 1, UNUSABLE),
    ("a remote reference", {"$ref": "http://127.0.0.1:9/schema.json"}, 1, UNUSABLE),
    ("a reference to a file", {"allOf": [{"$ref": "file:///etc/hostname"}]}, 1, UNUSABLE),
    ("a reference to nothing", {"not": {"$ref": "#/definitions/nothing"}}, 1, UNUSABLE),
    ("numbers of many digits", {"items": {"minimum": 0.1, "multipleOf": 0.01}}, [float("1" * 17)] * 9, None),
    ("multiples", {"items": {"multipleOf": 1e-300}}, [1e300] * 99_999, UNUSABLE),
]


@pytest.mark.parametrize(("schema", "value", "code"), [c[1:] for c in HOSTILE], ids=[c[0] for c in HOSTILE])
def test_every_record_of_a_hostile_schema_has_an_outcome(
    schema: Any, value: Any, code: DeadCode | None, schemas: Any, decode: Any
) -> None:
    """Valid, dead or unusable, but never a task that hangs; records of another schema land."""
    schemas.add(1, "JSON", json.dumps(schema))
    schemas.add(2, "JSON", '{"type": "integer"}')

    first, second = decode(JsonSchemaFormat(schemas), [HEAD + json.dumps(value).encode(), b"\0\0\0\0\x027"])
    assert (first if isinstance(first, DeadCode) else None) is code
    assert second == {"value": 7}


def test_recursive_reference_has_an_outcome(schemas: Any, decode: Any) -> None:
    """What a schema refers to is bounded as the schema is."""
    twice = within_itself({"anyOf": [{"$ref": "other.json"}] * 2})
    schemas.add(
        1, "JSON", '{"properties": {"f": {"$ref": "other.json"}}}', NamedSchema("other.json", json.dumps(twice))
    )

    assert decode(JsonSchemaFormat(schemas), [HEAD + json.dumps({"f": nested(45)}).encode()]) == [VIOLATION]


@pytest.mark.parametrize(
    "number", ["1." + "3" * 9_999, "1" * 9_999, "1e999999999999999999999", "-1E-999999999999999999"]
)
def test_a_number_of_any_length_is_compared(number: str, schemas: Any, decode: Any) -> None:
    """Digits and exponents are without bound in JSON."""
    schema = {"items": {"minimum": 0.1, "not": {"enum": [0.1, 0.2, 3]}}}
    schemas.add(1, "JSON", json.dumps(schema))
    value = f"[{','.join([number] * 99)}]".encode()

    (outcome,) = decode(JsonSchemaFormat(schemas), [HEAD + value])
    assert (outcome == VIOLATION) is number.startswith("-")


def test_value_too_large_for_its_rules_is_dead_and_names_both(schemas: Any) -> None:
    """Rules times bytes are bounded; a smaller value of the same schema lands."""
    schemas.add(1, "JSON", json.dumps({"items": {"anyOf": [{"const": str(number)} for number in range(1_000)]}}))
    large = HEAD + json.dumps(["0"] * 30_000).encode()
    decoder = JsonSchemaFormat(schemas)

    decoded = decoder.decode(pa.array([large, HEAD + b'["0"]']))
    assert [*decoded.dead] == [0]
    assert decoded.dead[0].code is UNUSABLE
    assert "rules, found 150000" in decoded.dead[0].message
    assert not JsonSchemaFormat(schemas, validate=False).decode(pa.array([large])).dead


def test_violation_under_many_rules_is_dead_without_a_place(schemas: Any) -> None:
    """To look for the place costs much more than the verdict."""
    schemas.add(1, "JSON", json.dumps({"items": {"anyOf": [{"const": str(number)} for number in range(300)]}}))
    (reason,) = JsonSchemaFormat(schemas).decode(pa.array([HEAD + b'["x"]'])).dead.values()

    assert (reason.code, reason.path) == (VIOLATION, "")
    assert reason.message == 'expected a value that its schema allows, found list ["x"]'


@pytest.mark.parametrize("number", ["1e27", "1e28", "1e99", "12345678901234567890123456789.5", "-1.0e30"])
def test_number_of_many_digits_has_an_outcome_under_draft_4(number: str, schemas: Any, decode: Any) -> None:
    """To draft 4 alone 1.0 is no integer, so a number is looked at digit by digit."""
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"type": "number"}}}
    schemas.add(1, "JSON", json.dumps(schema | {"type": "object"}))

    (outcome,) = decode(JsonSchemaFormat(schemas), [HEAD + b'{"a":%b}' % number.encode()])
    assert outcome == (DeadCode.LOSSY_CAST if "." in number[2:] and "e" not in number else {"a": float(number)})
