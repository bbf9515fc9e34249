"""Records without outcome, against the ledger's count of each batch."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.verify.facts.ledger import Batch
from frazil.verify.rules import FilteredCounts, Rules, not_compared_because, rules_of
from tests.unit.verify.facts.test_coverage import FIRST, START, batch, read

FILTERED = batch(1, "ingest", 0, 5, ranges='[["t",0,0,5]]', records_written=3, records_filtered=2, rows=3)


def test_more_records_left_out_than_recorded_are_reported() -> None:
    """As many records as the ledger counts may be without outcome; the next one is missing."""
    left_out = FilteredCounts.from_ledger(read(START, FILTERED))

    assert [left_out.count_if_allowed(1) for _ in range(3)] == [True, True, False]
    assert not left_out.count_if_allowed(0)
    assert not left_out.count_if_allowed(7)


@pytest.mark.parametrize(
    ("count", "counts", "batch_numbers", "is_told"),
    [
        (2, {("t", 0): 0}, {1}, False),
        (1, {("t", 0): 0}, {1}, True),
        (1, {("t", 0): 1}, {1}, False),
        (1, {}, {1}, False),
        (1, {("t", 0): 0}, set(), False),
    ],
)
def test_fewer_records_left_out_than_recorded_are_reported(
    count: int, counts: dict[Any, int], batch_numbers: set[int], is_told: bool
) -> None:
    """Fewer mean that filtered records have an outcome; if Kafka may have lost records, nothing is reported."""
    batches = read(START, FILTERED)
    left_out = FilteredCounts.from_ledger(batches)
    left_out.first_held.update(counts)
    for _ in range(count):
        left_out.count_if_allowed(1)

    differences = list(left_out.differences([batches[1]], batch_numbers))
    assert [difference.batch for difference in differences] == ([1] if is_told else [])


def pipeline(**options: Any) -> Pipeline:
    destination = {"table": "a.b", "columns": {"a": "long"}}
    definition = {"name": "p", "source": {"topics": ["t"]}, "destinations": [destination]}
    return Pipeline.model_validate(definition | options)


def rules_for(pipeline: Pipeline, batches: list[Batch]) -> Rules:
    (destination,) = pipeline.destinations
    return rules_of(pipeline, batches, destination.table, destination.columns)


EXPLODE = {"type": "Explode", "field": "a"}


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({}, None),
        ({"value": {"casts": "text", "empty_value": "filter"}}, None),
        ({"value": {"format": "json-envelope"}}, None),
        ({"key": {"format": "long"}}, None),
        (
            {"value": {"format": "json-envelope"}, "destinations": [{"table": "a.b"}]},
            "a.b: columns that records add, of records that are json-envelope",
        ),
        ({"destinations": [{"table": "a.b"}]}, None),
        (
            {"destinations": [{"table": "a.b", "on_incompatible": "variant_column"}]},
            "a.b: values go into other columns (on_incompatible: variant_column)",
        ),
        ({"transforms": [EXPLODE]}, "transforms change them (Explode)"),
        (
            {"value": {"format": "string"}, "transforms": [EXPLODE]},
            "transforms change them (Explode)",
        ),
    ],
)
def test_values_that_cannot_be_read_are_named(options: dict[str, Any], because: str | None) -> None:
    """Values of most formats and transforms are compared; the reason for others is named."""
    assert not_compared_because(pipeline(**options)) == because


def test_duplicate_is_not_taken_for_a_row_of_a_list() -> None:
    """A batch has several rows of a record if the ledger says so, and its file could make them."""
    plain, exploding = pipeline(), pipeline(transforms=[EXPLODE])
    more = {"rows": 9}
    ran_plain, ran_exploding = {"config": plain.outcome_fingerprint}, {"config": exploding.outcome_fingerprint}

    assert rules_for(exploding, read(START, FIRST | more | ran_exploding)).exploded == {1}
    assert rules_for(exploding, read(START, FIRST | ran_exploding)).exploded == frozenset()
    assert rules_for(plain, read(START, FIRST | more | ran_exploding)).exploded == {1}
    assert rules_for(plain, read(START, FIRST | more | ran_plain)).exploded == frozenset()
