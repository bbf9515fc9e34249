"""Chains of transforms keep their meaning."""

from __future__ import annotations

import pytest

from tests.unit.connect.connectors import SMT, imported, outcome

STEPS = {
    "Kafka Connect's": (
        {"transforms": "c", "transforms.c.type": f"{SMT}Cast$Value", "transforms.c.spec": "id:int64"},
        [{"type": "Cast", "spec": "id:int64"}],
    ),
    "old names": (
        {"transforms": "r", "transforms.r.type": f"{SMT}ReplaceField$Value", "transforms.r.blacklist": "a"},
        [{"type": "ReplaceField", "exclude": "a"}],
    ),
    "paths are off there": (
        {"transforms": "e", "transforms.e.type": f"{SMT}ExtractField$Value", "transforms.e.field": "a.b"},
        [{"type": "ExtractField", "field": "a.b", "field.syntax.version": "V1"}],
    ),
    "a predicate": (
        {
            "transforms": "f",
            "transforms.f.type": f"{SMT}Filter",
            "transforms.f.predicate": "p",
            "transforms.f.negate": "true",
            "predicates": "p",
            "predicates.p.type": f"{SMT}predicates.TopicNameMatches",
            "predicates.p.pattern": "a.*",
        },
        [{"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": "a.*", "negate": True}}],
    ),
    "the sink's own": (
        {"transforms": "k", "transforms.k.type": "io.tabular.iceberg.connect.transforms.KafkaMetadataTransform"},
        [{"type": "KafkaMetadata"}],
    ),
    "Debezium's": (
        {"transforms": "u", "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState"},
        [{"type": "ExtractNewRecordState"}],
    ),
    "a key that is decoded for it": (
        {
            "transforms": "k",
            "transforms.k.type": f"{SMT}HoistField$Key",
            "transforms.k.field": "id",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
        [{"type": "HoistField", "field": "id", "target": "key"}],
    ),
    "tombstones, which are left out anyway": (
        {
            "transforms": "drop",
            "transforms.drop.type": f"{SMT}Filter",
            "transforms.drop.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"{SMT}predicates.RecordIsTombstone",
        },
        None,
    ),
    "all but tombstones": (
        {
            "transforms": "h",
            "transforms.h.type": f"{SMT}HoistField$Value",
            "transforms.h.field": "value",
            "transforms.h.predicate": "p",
            "transforms.h.negate": "true",
            "predicates": "p",
            "predicates.p.type": f"{SMT}predicates.RecordIsTombstone",
        },
        [{"type": "HoistField", "field": "value"}],
    ),
    "a key that nobody decodes": (
        {"transforms": "k", "transforms.k.type": f"{SMT}ExtractField$Key", "transforms.k.field": "id"},
        None,
    ),
    "Debezium's with facts": (
        {
            "transforms": "u",
            "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.u.delete.tombstone.handling.mode": "rewrite",
            "transforms.u.add.source.fields": "lsn",
            "transforms.u.add.headers": "op,db",
            "transforms.u.drop.tombstones": "false",
        },
        [
            {
                "type": "ExtractNewRecordState",
                "delete.handling.mode": "rewrite",
                "add.fields": "lsn",
                "add.headers": "op,db",
            }
        ],
    ),
    "JSON keys of which nothing says what they hold": (
        {
            "transforms": "k",
            "transforms.k.type": f"{SMT}HoistField$Key",
            "transforms.k.field": "id",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
        },
        None,
    ),
    "text that is JSON behind another transform": (
        {
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "transforms": "h,j",
            "transforms.h.type": f"{SMT}DropHeaders",
            "transforms.h.headers": "a",
            "transforms.j.type": "io.tabular.iceberg.connect.transforms.JsonToMapTransform",
        },
        [{"type": "DropHeaders", "headers": "a"}, {"type": "JsonToMap"}],
    ),
    "text that is JSON": (
        {
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "transforms": "j",
            "transforms.j.type": "org.apache.iceberg.connect.transforms.JsonToMapTransform",
        },
        None,
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_chain_of_transforms_keeps_its_meaning(case: str) -> None:
    """Defaults that differ are written out, and nothing of a chain is left out without a word."""
    config, steps = STEPS[case]

    assert imported(config).pipeline.get("transforms") == steps


def test_json_before_transforms_holds_what_it_says() -> None:
    """As in Kafka Connect, where JSON without schemas has the types of each value."""
    chain = {"transforms": "c", "transforms.c.type": f"{SMT}Cast$Value", "transforms.c.spec": "id:int64"}

    assert imported(chain).pipeline["value"]["fields"] == "inferred"
    assert "fields" not in imported({}).pipeline["value"]


def test_keys_are_decoded_only_where_a_transform_needs_them() -> None:
    """Decoding keys for nothing would make dead letters of records whose keys are broken."""
    text = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    needed = {"transforms": "k", "transforms.k.type": f"{SMT}HoistField$Key", "transforms.k.field": "id"}

    assert "key" not in imported(text).pipeline
    assert imported(text | needed).pipeline["key"] == {"format": "string"}


def test_registry_keys_are_decoded_if_values_have_the_same_registry() -> None:
    """A key of another registry could not be read: the pipeline has one registry for both."""
    avro, url = "io.confluent.connect.avro.AvroConverter", "https://registry.example.org"
    values = {"value.converter": avro, "value.converter.schema.registry.url": url}
    keys = {"key.converter": avro, "key.converter.schema.registry.url": url}
    needed = {"transforms": "k", "transforms.k.type": f"{SMT}HoistField$Key", "transforms.k.field": "id"}

    assert imported(values | keys | needed).pipeline["key"] == {"format": "avro", "registry": "registry"}
    other = {"key.converter.schema.registry.url": "https://other.example.org"}
    assert "key" not in imported(values | keys | other | needed).pipeline
    login = {"key.converter.basic.auth.user.info": "a:b", "key.converter.basic.auth.credentials.source": "USER_INFO"}
    assert "key" not in imported(values | keys | login | needed).pipeline
    same_login = {f"value.{name.removeprefix('key.')}": text for name, text in login.items()}
    assert imported(values | keys | login | same_login | needed).pipeline["key"]["registry"] == "registry"


def test_negated_predicate_is_reported_as_carried() -> None:
    """The report must not say that a key has no effect if the pipeline file has it."""
    config, _ = STEPS["a predicate"]
    alone = {"transforms": "d", "transforms.d.type": f"{SMT}DropHeaders", "transforms.d.headers": "a"}

    assert outcome(imported(config), "transforms.f.negate") == "carried"
    assert outcome(imported(alone | {"transforms.d.negate": "true"}), "transforms.d.negate") == "changed"
    tombstones, _ = STEPS["all but tombstones"]
    assert outcome(imported(tombstones), "transforms.h.negate") == "changed"
