"""What decides outcomes, as it is kept beside the ledger: it comes back by its hash, and holds no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.pipeline.kept_rules import UnfitRulesError, is_rules_file, pipeline_of, rules_file, rules_text
from frazil.pipeline.model import Pipeline
from frazil.pipeline.references import References

PLAIN = References({}, {})
SECRET = References({"TOKEN": "s3cr3t", "QUOTED": 'a"b'}, {}, frozenset({"env:TOKEN", "env:QUOTED"}))


def pipeline(**given: Any) -> Pipeline:
    destination = {"table": "a.b", "columns": {"x": {"type": "string", "from": ["y", "z"]}}, "partition_by": ["x"]}
    of = {"name": "p", "source": {"topics": ["t"]}, "destinations": [destination], "interval": "7m"}
    return Pipeline.model_validate(of | given)


def inserting(text: str) -> Pipeline:
    return pipeline(transforms=[{"type": "InsertField", "static.field": "x", "static.value": text}])


MERGED = {
    "table": "a.b",
    "write": "upsert",
    "identifier": ["id"],
    "append_history": "a.log",
    "columns": {"id": {"type": "long", "required": True}},
}


@pytest.mark.parametrize(
    "former",
    [
        pipeline(value={"unknown_fields": "fail", "fields": {"x": "string"}}),
        pipeline(value={"fields": {"b": "string", "a": "string"}}),
        pipeline(key={"format": "long"}, limits={"max_record_bytes": 5_000}),
        pipeline(destinations=[MERGED]),
        pipeline(value={"format": "avro", "schema": '{"type": "string"}'}),
        inserting("${env:TOKEN} is text"),
        inserting("$${env:TOKEN}"),
    ],
)
def test_rules_come_back_by_their_hash(former: Pipeline) -> None:
    """Whatever the present file says: the parts that decide outcomes are those of then."""
    text = rules_text(former, PLAIN)
    found = pipeline_of(text, pipeline(interval="1h"), former.outcome_fingerprint, PLAIN)

    assert found.outcome_fingerprint == former.outcome_fingerprint
    assert (found.value, found.transforms, found.destinations) == (former.value, former.transforms, former.destinations)


@pytest.mark.parametrize("value", ["s3cr3t", 'x a"b s3cr3t y'])
def test_no_value_of_a_reference_is_kept(value: str) -> None:
    """The reference is, and stands for the same value when it is read again."""
    former = inserting(value)
    text = rules_text(former, SECRET)

    assert "s3cr3t" not in text
    assert "${env:TOKEN}" in text
    assert pipeline_of(text, pipeline(), former.outcome_fingerprint, SECRET).transforms == former.transforms


def test_other_values_of_references_are_refused() -> None:
    """Then the rules are not those that the batch ran under."""
    former = inserting("s3cr3t")
    later = References({"TOKEN": "another"}, {}, SECRET.allow)

    with pytest.raises(UnfitRulesError, match="another hash"):
        pipeline_of(rules_text(former, SECRET), pipeline(), former.outcome_fingerprint, later)


@pytest.mark.parametrize("spoil", ["", "{}", '{"parts": "{"}', '{"parts": "{}"}', "edited"])
def test_spoiled_text_is_refused(spoil: str) -> None:
    """By whatever is wrong with it, and without a traceback of its content."""
    former = inserting("a")
    text = rules_text(former, PLAIN).replace("web", "x") if spoil == "edited" else spoil
    text = json.dumps({"parts": json.loads(text)["parts"].replace('"a"', '"b"')}) if spoil == "edited" else text

    with pytest.raises(UnfitRulesError):
        pipeline_of(text, pipeline(), former.outcome_fingerprint, PLAIN)


def test_maintenance_knows_the_files_by_name() -> None:
    """Whatever the pipeline is called; manifests and other files are none."""
    assert is_rules_file(f"s3://lake/shop/ledger/metadata/{rules_file('orders_2', pipeline().outcome_fingerprint)}")
    assert not is_rules_file("s3://lake/metadata/frazil-orders-7-0b7f1e0a-3f52-4a53-9d5e-0d7a3c1b2f44.json")
