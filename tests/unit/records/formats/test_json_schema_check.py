"""The quick look at values before the validator: it may leave any value to it, and must pass none that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import exceptions, validators
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from frazil.records.formats.json_schema import _EXACT, _plain
from frazil.records.formats.json_schema_check import quick_check
from frazil.records.json.number import Number

DRAFTS = {
    "4": "http://json-schema.org/draft-04/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
    "7": "http://json-schema.org/draft-07/schema#",
    "2019": "https://json-schema.org/draft/2019-09/schema",
    "2020": "https://json-schema.org/draft/2020-12/schema",
}


def loaded(text: str) -> Any:
    """A value as the decoder has it."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def both(schema: Any) -> tuple[Callable[[Any], bool] | None, Callable[[Any], bool]]:
    """The quick check of a schema, and what the validator says."""
    schema = json.loads(json.dumps(schema), parse_float=Decimal)
    draft = validators.validator_for(schema, default=validators.Draft7Validator)
    draft.check_schema(schema)
    root = Resource.from_contents(schema, default_specification=DRAFT7)
    registry = Registry()
    validator = draft(schema, registry=registry)

    def is_valid(value: Any) -> bool:
        with localcontext(_EXACT):
            return bool(validator.is_valid(_plain(value)))

    return quick_check(schema, registry.resolver_with_root(root), draft), is_valid


NAMES = ["a", "b", "c"]
ORDER = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "exclusiveMaximum": 1e3, "title": "count", "connect.type": "int32"},
        "b": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3, "pattern": "^x", "format": "email"}]},
        "c": {"type": "array", "items": {"$ref": "#/definitions/kind"}, "minItems": 1},
    },
    "required": ["a"],
    "additionalProperties": False,
    "definitions": {"kind": {"enum": ["x", 1, None]}},
}


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ('{"a": 7}', True),
        ('{"a": 7, "b": null, "c": ["x", 1, null]}', True),
        ('{"a": 7, "b": "xyz"}', True),
        ('{"a": 7, "b": "xyzz"}', False),
        ('{"a": 7, "b": "y"}', False),
        ('{"a": 1000}', False),
        ('{"a": -1}', False),
        ('{"a": "7"}', False),
        ('{"a": true}', False),
        ('{"a": 7, "c": []}', False),
        ('{"a": 7, "c": ["y"]}', False),
        ('{"a": 7, "c": [true]}', False),
        ('{"a": 7, "d": 1}', False),
        ("{}", False),
        ("[]", False),
        ('"x"', False),
    ],
)
def test_usual_values_are_told_without_the_validator(value: str, passes: bool) -> None:
    """What a good producer sends takes the short way, or decoding is ten times as slow."""
    quick, is_valid = both(ORDER)

    assert quick is not None
    assert quick(loaded(value)) is passes
    assert is_valid(loaded(value)) is passes


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "null"}},
        {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"if": {"type": "null"}, "then": False},
        {"items": [{"type": "null"}]},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$id": "http://other/", "$ref": "#/definitions/b"}}, "definitions": {"b": {}}},
        {"$schema": DRAFTS["4"], "minimum": 1, "exclusiveMinimum": True},
        {"$schema": DRAFTS["2020"], "prefixItems": [{"type": "null"}], "items": False},
        {"properties": {"a": {"uniqueItems": True}}},
    ],
)
def test_a_keyword_without_a_check_is_left_out(schema: dict[str, Any]) -> None:
    """One word that is passed over would let values through that the schema forbids."""
    assert both(schema)[0] is None


NUMBERS = st.sampled_from(
    ["0", "1", "2", "-1", "1.0", "1.5", "-0", "1e0", "10e-1", "5", "12345678901234567890", "1e400"]
)
SCALARS = st.sampled_from(["null", "true", "false", '""', '"a"', '"ab"', '"1"', '"é🧊"', r'"\ud800"']) | NUMBERS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.dictionaries(st.sampled_from([*NAMES, "d"]), inner, max_size=3).map(
            lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
        )
    ),
    max_leaves=6,
)
BOUNDS = st.sampled_from([0, 1, 2, 1.0, 1.5, -1, 5])
SIZES = st.integers(0, 3)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array"])
SAMPLES = st.sampled_from(["a", "1", "", 1, 0, 1.0, 1.5, True, False, None, [], {}, [1], {"a": True}])
REFERENCES = st.sampled_from(["#/definitions/a", "#/definitions/b", "#", "#/definitions/none", "other"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    words = {
        "type": TYPES | TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(SAMPLES, min_size=1, max_size=3, unique_by=repr),
        "const": SAMPLES,
        "pattern": st.sampled_from(["^a", "b$", ".", "é"]),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], SIZES),
        **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], BOUNDS),
        "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        "required": st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        **dict.fromkeys(["allOf", "anyOf", "oneOf"], several),
        "$ref": REFERENCES,
        "format": st.just("email"),
        "title": st.just("x"),
        "not": inner,
        "multipleOf": st.just(2),
    }
    common = [name for name in words if name not in {"not", "multipleOf", "$ref"}]
    chosen = st.lists(st.sampled_from([*common, *common, *words]), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: words[name] for name in names}))


LEAVES = st.booleans() | _schemas(st.just({}))
INNER = st.recursive(LEAVES, _schemas, max_leaves=4)
SCHEMAS = st.builds(
    lambda root, draft, definitions: {**root, "$schema": draft, "definitions": definitions},
    _schemas(INNER),
    st.sampled_from([*DRAFTS.values()]),
    st.fixed_dictionaries({"a": INNER, "b": INNER}),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=8))
def test_no_value_passes_that_the_validator_refuses(schema: dict[str, Any], texts: list[str]) -> None:
    """Whatever the schema: a value that passes is valid."""
    try:
        quick, is_valid = both(schema)
    except exceptions.SchemaError:
        return
    for value in map(loaded, texts):
        if quick is not None and quick(value):
            assert is_valid(value)


def test_a_schema_that_refers_to_nothing_has_no_check() -> None:
    """The validator says what is missing, where it comes to it."""
    quick, is_valid = both({"properties": {"a": {"$ref": "#/definitions/none"}}})

    assert quick is None
    with pytest.raises(Unresolvable):
        is_valid(loaded('{"a": 1}'))
