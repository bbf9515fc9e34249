"""What `frazil validate` finds in a chain of transforms without records: fields that no record has at that step."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.transforms import catalogue
from frazil.records.transforms.definition import TransformDefinition
from frazil.records.transforms.missing_fields import missing_fields
from tests.unit.records.chains import any_options
from tests.unit.run.staging.transform_problems import JSON, SUGGESTION, problems

CSV = {"format": "delimited", "fields": ["id", "customer"]}
KEY = {"fields": {"number": "string"}}
NAMING = [
    ("ReplaceField", {"include": "id, @"}, "include", SUGGESTION),
    ("ReplaceField", {"renames": "@:buyer"}, "renames", SUGGESTION),
    ("MaskField", {"fields": "@"}, "fields", SUGGESTION),
    ("Cast", {"spec": "@:string"}, "spec", SUGGESTION),
    ("ExtractField", {"field": "@"}, "field", SUGGESTION),
    ("ValueToKey", {"fields": "id, @"}, "fields", SUGGESTION),
    ("TimestampConverter", {"field": "@", "target.type": "Date", "format": "yyyy"}, "field", SUGGESTION),
    ("HeaderFrom", {"fields": "@", "headers": "h", "operation": "copy"}, "fields", SUGGESTION),
    ("CopyValue", {"source.field": "@", "target.field": "buyer"}, "source.field", SUGGESTION),
    ("JsonToMap", {"json.root": True, "field": "@"}, "field", SUGGESTION),
    ("Sql", {"select": "id, @"}, "select", 'Referenced column "custmer" not found'),
    ("Sql", {"where": "@ = 'ann'"}, "where", 'Referenced column "custmer" not found'),
]
"""Transform, options with `@` for the name of a field, the option's key, what is said of a misspelled one."""
IMAGE = "struct<id: long>"
SOURCE = "struct<db: string, table: string>"
ENVELOPES = [
    ("DebeziumTransform", {"op": "string", "after": IMAGE, "source": SOURCE}),
    ("DebeziumTransform", {"op": "string", "before": IMAGE, "source": "struct<schema: string, collection: string>"}),
    ("MongoDebezium", {"after": "string"}),
    ("MongoDebezium", {"updateDescription": "struct<updatedFields: string>"}),
]


def named(options: dict[str, Any], name: str) -> dict[str, Any]:
    """Options with the name of a field."""
    return dict(json.loads(json.dumps(options).replace("@", name)))


@pytest.mark.parametrize(("kind", "options", "key", "message"), NAMING)
def test_misspelled_field_is_reported(kind: str, options: dict[str, Any], key: str, message: str) -> None:
    """The step, its option and the near name are told; the right name is not refused."""
    (problem,) = problems({"type": kind, **named(options, "custmer")})

    assert problem.startswith(f"transforms.0.{key}: {kind}: ")
    assert message in problem
    assert problems({"type": kind, **named(options, "customer")}) == ()


def test_misspelled_list_is_reported() -> None:
    """Only a list can be exploded, so it has a field of its own here."""
    assert problems({"type": "Explode", "field": "line"}) == (
        "transforms.0.field: Explode: no field 'line' here; did you mean lines?",
    )
    assert problems({"type": "Explode", "field": "lines"}) == ()


@pytest.mark.parametrize(("kind", "fields"), ENVELOPES)
def test_envelope_without_its_fields_is_reported(kind: str, fields: dict[str, str]) -> None:
    """Nobody names these fields in the transform, and without one of them no record becomes a row."""
    assert problems({"type": kind}, value={"fields": fields}) == ()
    for name in fields:
        fields_left = {
            "other": "long",
            **{name_left: data_type for name_left, data_type in fields.items() if name_left != name},
        }
        messages = problems({"type": kind}, value={"fields": fields_left})
        assert messages
        assert all(line.startswith(f"transforms.0: {kind}: no field ") for line in messages)


@pytest.mark.parametrize("name", ["data", "metadata", "metadata.schema-name", "metadata.table-name"])
def test_change_of_dms_without_its_fields_is_reported(name: str) -> None:
    """Its names have a hyphen, which the types of a pipeline file take between backticks."""
    parts = [part for part in ("schema-name", "table-name") if f"metadata.{part}" != name]
    fields = {"data": pa.struct([("id", pa.int64())]), "metadata": pa.struct([(part, pa.string()) for part in parts])}
    dms = catalogue.transform("DmsTransform", {})

    messages = list(
        missing_fields(
            [dms],
            pa.schema([(name_of_field, kind) for name_of_field, kind in fields.items() if name_of_field != name]),
            None,
        )
    )

    assert (0, name) == (messages[0][0], messages[0][1].message.split("'")[1])
    whole = fields | {"metadata": pa.struct([("schema-name", pa.string()), ("table-name", pa.string())])}
    assert list(missing_fields([dms], pa.schema(whole), None)) == []


def test_transform_in_no_table_tells_what_it_misses() -> None:
    """Those that say what they miss are in a table above, or say it of any field that they have to name."""
    tabled = {kind for kind, *_ in [*NAMING, *ENVELOPES]} | {"Explode", "DmsTransform"}
    silent = TransformDefinition.lacks
    telling = {name for name, kind in catalogue.TRANSFORMS.items() if kind.reads or kind.lacks is not silent}

    assert tabled <= telling
    for kind in telling - tabled:
        assert problems({"type": kind, **any_options(kind, "custmer")})[0].startswith("transforms.0")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            [{"type": "ReplaceField", "renames": "customer:buyer"}, {"type": "MaskField", "fields": "customer"}],
            "transforms.1.fields: MaskField: no field 'customer' here; there are id, buyer, address, lines",
        ),
        (
            [{"type": "Flatten", "delimiter": "_"}, {"type": "Cast", "spec": "address_zp:int64"}],
            "transforms.1.spec: Cast: no field 'address_zp' here; did you mean address_zip?",
        ),
        (
            [
                {"type": "Explode", "field": "lines", "spread": True, "outer": False},
                {"type": "MaskField", "fields": "sk"},
            ],
            "transforms.1.fields: MaskField: no field 'sk' here; did you mean sku?",
        ),
        (
            [{"type": "Sql", "select": "id AS n", "where": "id > 0"}, {"type": "ExtractField", "field": "id"}],
            "transforms.1.field: ExtractField: no field 'id' here; there are n",
        ),
        (
            [
                {"type": "ExtractField", "field": "address"},
                {"type": "Cast", "spec": "city:string"},
                {"type": "Cast", "spec": "id:string"},
            ],
            "transforms.2.spec: Cast: no field 'id' here; there are city, zip",
        ),
        (
            [{"type": "ExtractField", "field": "address.ctiy"}],
            "transforms.0.field: ExtractField: no field 'address.ctiy' here; did you mean address.city?",
        ),
        (
            [{"type": "ExtractField", "field": "address.city", "field.syntax.version": "V1"}],
            "transforms.0.field: ExtractField: no field 'address.city' here; did you mean address?",
        ),
        ([{"type": "Cast", "spec": "int64"}], "transforms.0.spec: Cast: one type, int64, is for values without fields"),
        (
            [{"type": "TimestampConverter", "target.type": "Date"}],
            "transforms.0.field: TimestampConverter: it is missing, and the values have fields",
        ),
        (
            [{"type": "Explode", "field": "customer"}],
            "transforms.0: Explode: expected customer as a list, found string",
        ),
    ],
)
def test_field_dropped_by_an_earlier_step_is_reported(steps: list[dict[str, Any]], expected: str) -> None:
    """Each step is held against what the one before it left."""
    (problem,) = problems(*steps)

    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("value", "name"),
    [(JSON, "custmer"), (CSV, "custmer"), ({"format": "string"}, "valeu"), ({"fields": {"a": "long"}}, "x")],
)
def test_fields_of_every_shape_are_known(value: dict[str, Any], name: str) -> None:
    """Declared fields, the columns of a line and values without fields are all there is."""
    assert problems({"type": "ExtractField", "field": name}, value=value)[0].startswith("transforms.0.field: ")


def test_field_that_is_not_decoded_is_reported() -> None:
    """Without declared fields a JSON value is read as the columns are, and no other field gets to transforms."""
    step = {"type": "CopyValue", "source.field": "other", "target.field": "all"}

    assert problems(step, value={}) == (
        "transforms.0.source.field: CopyValue: no field 'other' here; there are all",
        "value.fields: not declared, so a JSON value has the fields of the columns before transforms, and no others",
    )


def test_misspelled_field_of_the_key_is_reported() -> None:
    """Keys have fields of their own, or those that ValueToKey gave them."""
    wrong = {"type": "ExtractField$Key", "field": "numbr"}

    assert problems(wrong, key=KEY) == (
        "transforms.0.field: ExtractField: no field 'numbr' here; did you mean number?",
    )
    messages = problems({"type": "ValueToKey", "fields": "customer"}, {"type": "Cast$Key", "spec": "id:string"})
    assert messages == ("transforms.1.spec: Cast: no field 'id' here; there are customer",)


WHEN = {"predicate": "TopicNameMatches", "pattern": "other"}


def test_transform_under_a_predicate_is_checked() -> None:
    """A predicate can't be asked without records, so the transform counts as applied, and as not applied."""
    rename = {"type": "ReplaceField", "renames": "customer:buyer", "when": WHEN}
    mask = {"type": "MaskField", "fields": "customer, buyer"}

    assert problems({**mask, "when": WHEN}) == (
        "transforms.0.fields: MaskField: no field 'buyer' here; there are id, customer, address, lines",
    )
    assert problems(rename, mask) == ()
    messages = problems(rename, mask | {"fields": "custmer"})
    assert messages == ("transforms.1.fields: MaskField: no field 'custmer' here; did you mean customer?",)
    cast = {"type": "Cast", "spec": "id:string", "when": WHEN}
    assert problems(cast, mask | {"fields": "custmer"}) == messages
    assert problems({"type": "Filter", "when": WHEN}, {"type": "MaskField", "fields": "custmer"})
    assert problems({"type": "Filter", "when": WHEN}, mask | {"fields": "customer"}) == ()


def test_column_that_only_some_records_fill_is_accepted() -> None:
    """Records of another topic may be the only ones; a column that nobody fills is told, whatever the topic."""
    rename = {"type": "ReplaceField", "renames": "customer:buyer", "when": WHEN}
    columns = {"buyer": {"type": "string", "required": True}}

    assert problems(rename, destinations=[{"table": "a.b", "columns": columns}]) == ()
    (problem,) = problems(rename, destinations=[{"table": "a.b", "columns": {"byer": columns["buyer"]}}])
    assert problem == "destinations.0.columns.byer: no value has the field 'byer', did you mean 'buyer'?"


@pytest.mark.parametrize(
    ("steps", "more"),
    [
        ([{"type": "ReplaceField", "exclude": "custmer"}], {}),
        ([{"type": "ExtractField", "field": "anything"}], {"value": {"format": "avro", "registry": "main"}}),
        ([{"type": "ExtractField$Key", "field": "any"}], {"key": {"format": "avro", "registry": "main"}}),
        ([{"type": "Sql", "select": "customer, _kafka_key, address.city"}], {}),
        ([{"type": "Sql", "select": "CUSTOMER AS c"}, {"type": "MaskField", "fields": "c"}], {}),
        ([{"type": "ExtractField", "field": "tags.colour"}], {"value": {"fields": {"tags": "map<string, string>"}}}),
        (
            [
                {"type": "ReplaceField", "renames": "customer:buyer", "when": WHEN},
                {"type": "CopyValue", "source.field": "buyer", "target.field": "b"},
                {"type": "MaskField", "fields": "b"},
            ],
            {},  # of some records, of which there may be no others
        ),
    ],
)
def test_possible_transforms_are_accepted(steps: list[dict[str, Any]], more: dict[str, Any]) -> None:
    """Nothing is told unless it is sure."""
    assert problems(*steps, **more) == ()
