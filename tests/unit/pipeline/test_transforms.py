"""The `transforms:` of a pipeline file: Kafka Connect's keys are taken, and what can't work is refused by its key."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from frazil.pipeline import transforms
from frazil.pipeline.transforms import KINDS, TransformStep
from frazil.records.transforms.catalogue import TRANSFORMS, predicate, transform
from tests.unit.records.chains import any_options

STEPS = TypeAdapter(tuple[TransformStep, ...])

EVERY_KIND = [
    {"type": "InsertField", "topic.field": "t!", "timestamp_field": "at?", "static.field": "s", "static.value": "x"},
    {"type": "InsertField$Key", "offset.field": "o"},
    {"type": "ReplaceField", "include": "a, b", "renames": "a:x,b:y"},
    {"type": "ReplaceField$Value", "exclude": ["a"], "renames": {"c:d": "e"}},
    {"type": "MaskField", "fields": "card", "replacement": 0},
    {"type": "Cast", "spec": "a:int32,b:string"},
    {"type": "Cast", "spec": {"a": "boolean"}, "target": "key"},
    {"type": "Cast$Key", "spec": "int64"},
    {"type": "ExtractField", "field": "a.b", "field.syntax.version": "V1"},
    {"type": "HoistField", "field": "a"},
    {"type": "ValueToKey", "fields": ["a", "b"]},
    {
        "type": "TimestampConverter",
        "field": "a",
        "target.type": "string",
        "format": "yyyy",
        "unix.precision": "seconds",
    },
    {"type": "RegexRouter", "regex": "(?<name>[a-z]+)-.*", "replacement": "${name}"},
    {"type": "TimestampRouter", "topic.format": "${topic}_${timestamp}", "timestamp.format": "yyyy"},
    {"type": "MaskField", "fields": "a", "when": {"predicate": "RecordIsTombstone", "negate": True}},
    {"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": "a.*", "negate": True}},
    {"type": "HeaderFrom", "fields": "a,b", "headers": "x,y", "operation": "move"},
    {"type": "InsertHeader", "header": "h", "value.literal": "", "when": {"predicate": "HasHeaderKey", "name": "x"}},
    {"type": "DropHeaders", "headers": "a"},
    {"type": "SetSchemaMetadata", "schema.name": "n", "schema.version": 2},
    {"type": "Flatten", "delimiter": "_", "depth": 2, "lists": "json"},
    {"type": "Explode", "field": "items", "position.field": "at"},
    {"type": "CopyValue", "source.field": "a", "target.field": "b"},
    {"type": "KafkaMetadata", "nested": True, "external_field": "a,b"},
    {"type": "JsonToMap", "json.root": True},
    {"type": "ExtractNewRecordState", "add.fields": "op,table:t", "delete.handling.mode": "Rewrite"},
    {"type": "DebeziumTransform", "cdc.target.pattern": "{db}_{table}", "delete.handling": "drop"},
    {"type": "DmsTransform"},
    {"type": "MongoDebezium", "array_handling_mode": "document"},
    {"type": "Sql", "select": "a + 1 as b", "where": "a > 0"},
]
EVERY_KIND += [
    {"type": kind} | any_options(kind)
    for kind in KINDS.keys() - {step["type"].partition("$")[0] for step in EVERY_KIND}
]


@pytest.mark.parametrize("definition", EVERY_KIND, ids=lambda definition: definition["type"])
def test_every_transform_of_the_model_is_in_the_catalogue(definition: dict[str, Any]) -> None:
    """Every entry that the model takes makes a transform of the catalogue, or a predicate."""
    (step,) = STEPS.validate_python([definition])
    when = step.when and predicate(step.when.predicate, step.when.options)
    implementation = transform(step.name, step.options, when=when, negate=bool(step.when and step.when.negate))
    plain = implementation.transform if step.when else implementation
    assert type(plain) is TRANSFORMS[definition["type"].partition("$")[0]]
    assert {name: getattr(plain, name) for name in step.options} == step.options
    assert pickle.loads(pickle.dumps(implementation)) == implementation  # noqa: S301 - what was pickled here; executors get it that way


def test_definitions_are_read_without_arrow() -> None:
    """They are read wherever a DAG is parsed: a constant that holds a type of Arrow would load it each time."""
    code = "import sys, frazil.pipeline.models.pipeline_file; print({'pyarrow', 'numpy', 'duckdb'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    "definition", [*KINDS.values(), transforms.OwnTransform], ids=lambda definition: definition.__name__
)
def test_every_key_has_a_description(definition: Any) -> None:
    """Every key has a sentence, and every model."""
    assert definition.__doc__
    assert all(field.description for field in definition.model_fields.values())


@pytest.mark.parametrize(
    ("definition", "where", "message"),
    [
        ({"type": "InsertFeild"}, ("OwnTransform", "type"), "did you mean 'InsertField'"),
        ({"topic.field": "a"}, (), "expected a mapping with the key `type`"),
        ("InsertField", (), "expected a mapping with the key `type`"),
        ({"type": "InsertField"}, ("InsertField",), "at least one field"),
        ({"type": "InsertField", "topic.field": "!"}, ("InsertField",), "at least one field"),
        ({"type": "InsertField", "topic.field": "a!", "offset.field": "a"}, ("InsertField",), "same field"),
        ({"type": "InsertField", "static.field": "a"}, ("InsertField",), "need each other"),
        ({"type": "InsertField", "topic.field": "a", "topic_field": "a"}, ("InsertField",), "written twice"),
        ({"type": "InsertField", "topic.feild": "a"}, ("InsertField", "topic.feild"), "not permitted"),
        ({"type": "RegexRouter$Key", "regex": "a", "replacement": "b"}, ("RegexRouter",), "no form"),
        ({"type": "Cast$key", "spec": "int8"}, ("Cast",), "no form"),
        ({"type": "Cast$Key", "spec": "int8", "target": "value"}, ("Cast",), "beside a target"),
        ({"type": "ReplaceField"}, ("ReplaceField",), "nothing to do"),
        ({"type": "ReplaceField", "renames": "a"}, ("ReplaceField", "renames"), "expected a pair"),
        ({"type": "ReplaceField", "renames": "a:b,a:c"}, ("ReplaceField", "renames"), "named twice"),
        ({"type": "ReplaceField", "renames": "a:x,b:x"}, ("ReplaceField",), "one name"),
        ({"type": "ReplaceField", "renames": "a:x", "exclude": "a"}, ("ReplaceField",), "renamed and excluded"),
        ({"type": "MaskField", "fields": []}, ("MaskField", "fields"), "at least 1"),
        ({"type": "MaskField", "fields": "a,,b"}, ("MaskField", "fields"), "empty"),
        ({"type": "MaskField", "fields": "a,a"}, ("MaskField", "fields"), "named twice"),
        ({"type": "MaskField", "fields": "a", "replacement": ""}, ("MaskField", "replacement"), "at least 1"),
        ({"type": "Cast", "spec": {}}, ("Cast", "spec"), "nothing to cast"),
        ({"type": "Cast", "spec": "a:int33"}, ("Cast", "spec"), "known: int8"),
        ({"type": "TimestampConverter", "target.type": "string"}, ("TimestampConverter",), "needs a format"),
        ({"type": "RegexRouter", "regex": "(", "replacement": ""}, ("RegexRouter", "regex"), "not a regular"),
        ({"type": "TimestampRouter", "topic.format": "a"}, ("TimestampRouter", "topic.format"), "has neither"),
        ({"type": "Filter"}, ("Filter",), "every record"),
        ({"type": "Filter", "when": {"predicate": "Tombstone"}}, ("Filter", "when"), "RecordIsTombstone"),
        (
            {"type": "Filter", "when": {"predicate": "RecordIsTombstone"}},
            ("Filter", "when", "RecordIsTombstone"),
            "value.null_value decides",
        ),
        ({"type": "HeaderFrom", "fields": "a,b", "headers": "x", "operation": "move"}, ("HeaderFrom",), "2 fields"),
        ({"type": "JsonToMap", "json.root": True, "types": "struct<a: long>"}, ("JsonToMap",), "either"),
        ({"type": "JsonToMap", "types": "long"}, ("JsonToMap", "types"), "no struct"),
        *(
            ({"type": "KafkaMetadata", "external_field": text}, ("KafkaMetadata", "external_field"), "name,text")
            for text in ("", "a", "a,b,c", ",b", "a,")
        ),
        ({"type": "ValueToKey", "fields": []}, ("ValueToKey", "fields"), "at least 1"),
        ({"type": "TimestampConverter", "target.type": "date"}, ("TimestampConverter", "target.type"), "'Date'"),
        ({"type": "Flatten", "depth": 0}, ("Flatten", "depth"), "greater than or equal to 1"),
        ({"type": "Sql"}, ("Sql",), "nothing to do"),
    ],
)
def test_impossible_transform_is_refused_at_its_place(
    definition: dict[str, Any], where: tuple[str, ...], message: str
) -> None:
    """What can't work is refused with the place where it is written."""
    with pytest.raises(ValidationError) as refused:
        STEPS.validate_python([definition])
    errors = [error for error in refused.value.errors() if message in error["msg"]]
    assert errors, refused.value.errors()
    assert errors[0]["loc"][: len(where) + 1] == (0, *where)


def test_custom_transform_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another package brings is taken by the name of its entry point, with whatever options."""
    own = EntryPoints([EntryPoint("acme.Hide", "acme.frazil:Hide", "frazil.transforms")])
    monkeypatch.setattr(transforms, "entry_points", lambda group: own.select(group=group))
    (step,) = STEPS.validate_python([{"type": "acme.Hide", "options": {"deep": [1]}}])
    assert (step.name, step.options) == ("acme.Hide", {"deep": [1]})


def test_fingerprint_includes_every_option_of_a_transform() -> None:
    """The models' JSON holds every option, whichever kind they are of."""
    steps = STEPS.validate_python(EVERY_KIND)
    assert STEPS.validate_json(STEPS.dump_json(steps)) == steps
