"""Random chains of transforms, and columns behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, get_args, get_type_hints

import pyarrow as pa
from hypothesis import strategies as st

from frazil.records.model.format import Transform
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.catalogue import TRANSFORMS
from frazil.records.transforms.kinds.conditions import HasHeaderKey, TopicNameMatches, When, WithKey
from tests.format_specs import format_spec
from tests.unit.records.random_records import ENCODERS, FIELDS, KEY_FIELDS, PLACE

_TRANSFORMS = [
    ("InsertField", {"static_field": "name", "static_value": "s"}),
    ("InsertField", {"topic_field": "topic", "offset_field": "id", "timestamp_field": "when!"}),
    ("ReplaceField", {"renames": {"id": "key", "name": "id"}}),
    ("ReplaceField", {"exclude": ("tags", "price", "doc")}),
    ("ReplaceField", {"include": ("id", "name", "items", "place", "op")}),
    ("ReplaceField", {"renames": {"place": "after", "name": "op"}}),
    ("MaskField", {"fields": ("name", "id")}),
    ("MaskField", {"fields": ("name", "score"), "replacement": "5"}),
    ("Cast", {"spec": {"name": "int32", "id": "string"}}),
    ("Cast", {"spec": {"id": "int8", "score": "float32", "good": "string"}}),
    ("Cast", {"spec": {"price": "float64", "at": "boolean", "name": "float64"}}),
    ("Cast", {"spec": "string"}),
    ("Flatten", {}),
    ("Flatten", {"delimiter": "_", "depth": 1, "lists": "json"}),
    ("Explode", {"field": "tags"}),
    ("Explode", {"field": "items", "outer": False, "spread": True}),
    ("Explode", {"field": "items", "position_field": "pos"}),
    ("ExtractField", {"field": "place"}),
    ("ExtractField", {"field": "place.city"}),
    ("ExtractField", {"field": "id"}),
    ("HoistField", {"field": "place"}),
    ("HoistField", {"field": "name"}),
    ("ValueToKey", {"fields": ("name",)}),
    ("ValueToKey", {"fields": ("id", "place")}),
    ("TimestampConverter", {"field": "at", "target_type": "Timestamp", "format": "yyyy-MM-dd"}),
    ("TimestampConverter", {"field": "ms", "target_type": "string", "format": "yyyy-MM-dd HH:mm"}),
    ("TimestampConverter", {"field": "ms", "target_type": "unix", "unix_precision": "nanoseconds"}),
    ("RegexRouter", {"regex": "(.)", "replacement": "$1$1"}),
    ("RegexRouter", {"regex": "p+", "replacement": "q"}),
    ("TimestampRouter", {}),
    ("Filter", {}),
    ("HeaderFrom", {"fields": ("name",), "headers": ("h",), "operation": "move"}),
    ("HeaderFrom", {"fields": ("place", "id"), "headers": ("x", "g"), "operation": "copy"}),
    ("InsertHeader", {"header": "h", "value_literal": "1"}),
    ("DropHeaders", {"headers": ("h",)}),
    ("SetSchemaMetadata", {"schema_name": "n"}),
    ("CopyValue", {"source_field": "id", "target_field": "name"}),
    ("CopyValue", {"source_field": "tags", "target_field": "more"}),
    ("KafkaMetadata", {"nested": True}),
    ("KafkaMetadata", {"field_name": "place", "external_field": "a,b"}),
    ("JsonToMap", {"field": "doc"}),
    ("JsonToMap", {"field": "doc", "json_root": True}),
    ("ExtractNewRecordState", {"add_fields": ("op",), "delete_handling": "rewrite"}),
    ("JsonToMap", {"field": "doc", "types": pa.struct([("a", pa.int64()), ("b", pa.string())])}),
    ("DebeziumTransform", {}),
    ("DebeziumTransform", {"delete_handling": "rewrite"}),
    ("DebeziumTransform", {"delete_handling": "drop"}),
    ("DmsTransform", {}),
    ("MongoDebezium", {}),
    ("Sql", {"select": "*, name || '!' AS more"}),
    ("Sql", {"select": "id + 1 AS id, name::INT AS score", "where": "id > 0 AND name::INT > 0"}),
    ("Sql", {"where": "name::INT > 0 OR id IS NULL"}),
    ("Sql", {"select": "name, CASE WHEN good THEN at::DATE END AS at, 10 // id AS ms", "where": "good IS NOT NULL"}),
]
_OF_KEYS = [
    ("ReplaceField", {"renames": {"k": "t"}, "exclude": ("t",)}),
    ("Cast", {"spec": {"k": "string", "t": "string"}}),
    ("MaskField", {"fields": ("t",)}),
    ("HoistField", {"field": "k"}),
    ("ExtractField", {"field": "t"}),
    ("InsertField", {"topic_field": "t"}),
    ("Flatten", {}),
]


def any_options(name: str, field: str = "name") -> dict[str, Any]:
    """Options of a transform that a table of the tests does not have yet: what must be said names a field."""
    by_form = {"names": (field,), "pairs": {field: "string"}, "expression": ".*"}
    needed = [option for option in dataclasses.fields(TRANSFORMS[name]) if option.default is option.default_factory]
    kinds = get_type_hints(TRANSFORMS[name])
    return {
        option.name: by_form.get(option.metadata["form"])
        or next(iter(get_args(kinds[option.name])), 1 if kinds[option.name] is int else field)
        for option in needed
    }


_TRANSFORMS += [(name, any_options(name)) for name in TRANSFORMS if name not in dict(_TRANSFORMS)]
_PREDICATES = [TopicNameMatches("p"), TopicNameMatches("(pp|q)"), HasHeaderKey("h"), HasHeaderKey("g")]


@st.composite
def _step(draw: st.DrawFn) -> Transform:
    of_key = draw(st.integers(0, 5)) == 0
    name, options = draw(st.sampled_from(_OF_KEYS if of_key else _TRANSFORMS))
    make: Callable[..., Transform] = TRANSFORMS[name]
    transform = make(**options, target="key") if of_key else make(**options)
    if draw(st.booleans()) or name == "Filter":
        transform = When(transform, draw(st.sampled_from(_PREDICATES)), draw(st.booleans()))
    return WithKey(transform) if of_key else transform


_COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("place", PLACE),
        ("score", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("more", pa.string()),
    ]
)
_WHOLE = RecordSpec(pa.schema([("all", pa.string())]), sources={"all": ()})
_OF_KEY = pa.schema([*_COLUMNS, pa.field("k", pa.int64()), pa.field("whole", pa.string())])
SPECS: Final = {
    "columns": RecordSpec(_COLUMNS, defaults={"id": -1, "more": "none", "score": 0.5}, casts="text"),
    "whole": _WHOLE,
    "rescued": RecordSpec(
        pa.schema([("id", pa.string()), ("_rescued", pa.string())]), unknown_fields="rescue", casts="text"
    ),
    "refused": RecordSpec(FIELDS, unknown_fields="fail", casts="text"),
    "keys": RecordSpec(
        _OF_KEY, sources={"whole": ()}, of_key=frozenset({"k", "whole"}), defaults={"k": 7}, casts="text"
    ),
}


@st.composite
def specs(draw: st.DrawFn, encoder: str) -> RecordSpec:
    """Columns of some kind behind a random chain."""
    chain = tuple(draw(st.lists(_step(), max_size=5)))
    keyed = draw(st.sampled_from(sorted(SPECS)))
    spec = replace(SPECS[keyed], format=ENCODERS[encoder][0], transforms=chain)
    key = format_spec("json") if keyed == "keys" or any(isinstance(step, WithKey) for step in chain) else None
    fields = FIELDS if encoder == "json" else None
    return replace(spec, fields=fields, key=key, key_fields=None if key is None else KEY_FIELDS)
