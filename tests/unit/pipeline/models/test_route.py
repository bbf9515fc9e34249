"""Keys about several destinations in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems, remarks


def pipeline(tables: tuple[str, ...] = ("shop.a", "shop.b"), **more: Any) -> Pipeline:
    destinations = [{"table": table, "columns": {"id": "long"}} for table in tables]
    return Pipeline.model_validate(
        {"name": "orders", "source": {"topics": ["orders"]}, "destinations": destinations} | more
    )


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ({}, "expected one of static, field and topic, found none"),
        ({"field": {"name": "to"}, "topic": {}}, "found field and topic"),
        ({"static": {"field": "kind", "tables": {"shop.c": ".*"}}}, "names shop.c: not among the destinations"),
        ({"topic": {"rename": {"events.*": "shop.c"}}}, "names shop.c"),
        ({"static": {"field": "kind", "tables": {"shop.a": "("}}}, "is not a regular expression"),
        ({"static": {"field": "kind", "tables": {}}}, "at least 1 item"),
    ],
)
def test_route_that_leads_nowhere_is_refused(route: dict[str, Any], message: str) -> None:
    """Said when the file is read, not when a record comes."""
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        pipeline(route=route)


def test_listed_table_with_capitals_is_refused_under_lower_case_names() -> None:
    """Names that are made lower-case are never those of a table with capitals, however often records bring them."""
    route = {"field": {"name": "to", "lower_case": True}}
    with pytest.raises(ValidationError, match=r"no record goes to shop\.B"):
        pipeline(("shop.a", "shop.B"), route=route)
    assert pipeline(("shop.a",), route=route).tables == ("shop.a",)
    assert pipeline(("shop.B",), route={"field": {"name": "to"}}).tables == ("shop.B",)


def test_two_destinations_of_one_table_are_refused() -> None:
    """A table named twice would get every record twice."""
    with pytest.raises(ValidationError, match="must be 4 tables"):
        pipeline(("shop.a", "shop.a"))


def test_several_destinations_without_a_route_are_a_warning() -> None:
    """Several destinations without a route are rarely meant; one, or several with a route, need no warning."""
    assert "every record goes to each of 2 destinations" in remarks(pipeline())[0]
    assert not remarks(pipeline(("shop.a",)))
    assert not remarks(pipeline(route={"topic": {}}))


def test_fingerprint_changes_only_with_a_route() -> None:
    """Files without a route keep theirs; a route decides outcomes, so it has another one."""
    alone = pipeline(("shop.a",))
    assert alone.outcome_fingerprint == pipeline(("shop.a",), owner="ann").outcome_fingerprint
    assert alone.outcome_fingerprint != pipeline(("shop.a",), route={"topic": {}}).outcome_fingerprint


def test_route_field_unknown_after_transforms_is_refused() -> None:
    """With transforms nothing says which field of a JSON value decides, unless the file declares the fields."""
    steps = [{"type": "ReplaceField", "exclude": ["x"]}]
    route = {"static": {"field": "kind", "tables": {"shop.a": "a"}}}
    assert any(
        "value.fields" in problem or "must be declared" in problem
        for problem in record_problems(pipeline(transforms=steps, route=route))
    )
    fields = {"fields": {"id": "long", "kind": "string"}}
    assert not record_problems(pipeline(transforms=steps, route=route, value=fields))
