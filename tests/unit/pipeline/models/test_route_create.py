"""Keys about auto-created tables in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems, remarks

FIELD = {"name": "to", "allow": [r"shop\..*"], "deny": [".*secret.*"]}


def pipeline(listed: tuple[str, ...] = (), create: dict[str, Any] | None = None, **more: Any) -> Pipeline:
    template = {"namespace": "shop", "columns": {"id": "long"}} if create is None else create
    route = {"field": FIELD, "create": template} | more.pop("route", {})
    destinations = [{"table": table, "columns": {"id": "long"}} for table in listed]
    body = {"name": "orders", "source": {"topics": ["orders"]}, "destinations": destinations, "route": route}
    return Pipeline.model_validate({name: part for name, part in (body | more).items() if part is not None})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"route": {"field": {"name": "to"}}}, "is required with create: it limits the table names"),
        ({"create": {"columns": {"id": "long"}}}, "is required without destinations"),
        ({"route": {"field": None, "static": {"field": "to", "tables": {"a.b": "x"}}}}, "static lists every table"),
        ({"route": {"field": None, "topic": {"rename": {"a": r"shop.x_\1"}}}}, r"takes up \\1"),
        ({"route": {"field": None, "topic": {"rename": {"a": r"shop.x_\n"}}}}, "takes up"),
        ({"create": {"namespace": "s", "max_new_tables": 5000}}, "less than or equal to 1000"),
        ({"create": {"namespace": "s", "table": "shop.a"}}, "Extra inputs"),
        (
            {"create": {"namespace": "s", "write": "upsert", "columns": {"id": "long"}}, "engine": "spark"},
            "needs identifier",
        ),
        (
            {"create": {"namespace": "s", "columns": {"id": "long"}, "partition_by": ["day(at)"]}},
            "is not a column of a new table",
        ),
        (
            {"create": {"namespace": "s", "properties": {"format-version": "3"}}, "engine": "inline"},
            "can't write a new table",
        ),
    ],
)
def test_impossible_template_is_refused(options: dict[str, Any], message: str) -> None:
    """Said when the file is read, not when a record names a table."""
    with pytest.raises(ValidationError, match=message):
        pipeline(**options)


def test_pipeline_without_any_table_is_refused() -> None:
    """A file without destinations needs to say that it makes some."""
    with pytest.raises(ValidationError, match=r"at least one, or route\.create"):
        pipeline(route={"create": None})


def test_created_tables_follow_the_destinations_of_the_file() -> None:
    """They follow those of the file, in one order, as far as the route still lets records go there."""
    file = pipeline(("shop.listed",))
    created = file.with_auto_created(["shop.b", "shop.a", "shop.secret", "shop.listed", "shop.b"])
    assert created.tables == ("shop.listed", "shop.a", "shop.b")
    assert created.auto_created == ("shop.a", "shop.b", "shop.listed", "shop.secret")
    assert created.destination("shop.b").columns == file.destination("shop.listed").columns
    assert created.with_auto_created(created.auto_created) == created
    assert created.with_auto_created(["shop.c"]).tables == ("shop.listed", "shop.c")


def test_created_tables_leave_the_key_of_a_listed_table() -> None:
    """A listed destination whose key is the table's keeps it when further tables are made."""
    file = pipeline(("shop.a",))
    keyed = file.model_copy(update={"destinations": (file.destinations[0].keyed(("id",)),)})
    assert keyed.with_auto_created(["shop.b"]).with_auto_created(["shop.b", "shop.c"]).destination(
        "shop.a"
    ).identifier == ("id",)


def test_created_tables_leave_the_fingerprint_of_the_file() -> None:
    """Fingerprint, home and namespace are the file's, however many tables were made."""
    for file in (pipeline(), pipeline(("eu.listed",), create={"columns": {"id": "long"}})):
        created = file.with_auto_created(["shop.a"])
        assert created.outcome_fingerprint == file.outcome_fingerprint
        assert (created.namespace, created.home_catalog, created.ledger_table) == (
            file.namespace,
            file.home_catalog,
            file.ledger_table,
        )
        assert created.file == file


def test_namespace_of_the_file_holds_ledger_and_dead_letters() -> None:
    """A namespace that the file names holds ledger and dead letters whatever is listed."""
    assert pipeline(("eu.a",)).ledger_table == "shop.orders__ledger"
    assert pipeline(("eu.a",), create={"columns": {"id": "long"}}).ledger_table == "eu.orders__ledger"


def test_created_tables_are_ignored_without_create() -> None:
    """Without `create` the tables that were made are no destinations."""
    assert pipeline(("shop.a",), route={"create": None}).with_auto_created(["shop.b"]).tables == ("shop.a",)


def test_misspelled_column_of_a_template_is_reported() -> None:
    """`validate` holds the template's columns against the fields of the values, as it does those of a destination."""
    wrong = pipeline(
        create={"namespace": "shop", "columns": {"idd": "long"}},
        value={"fields": {"id": "long", "to": "string"}},
        transforms=[{"type": "ReplaceField", "exclude": ["x"]}],
    )
    assert record_problems(wrong) == ("route.create.columns.idd: no value has the field 'idd', did you mean 'id'?",)


def test_route_that_allows_any_table_is_a_warning() -> None:
    """An `allow` that lets any name through is rarely meant; one of a namespace needs no warning."""
    assert not remarks(pipeline())
    anywhere = pipeline(route={"field": FIELD | {"allow": [r"\w+\.\w+"]}})
    assert "in any namespace" in remarks(anywhere)[0]


def test_topic_without_a_namespace_is_a_warning() -> None:
    """A topic without a namespace in its name needs a `rename`."""
    bare = pipeline(route={"field": None, "topic": {}})
    assert "orders names no table" in remarks(bare)[0]
    assert not remarks(pipeline(route={"field": None, "topic": {"rename": {"(.*)": r"shop.\1"}}}))


@pytest.mark.parametrize(
    "table", ["events", "{value}", "{value}.a", "a.b{value}.c", "a.{value}{value}", "a.b", "a.{type}", "a./{value}"]
)
def test_template_has_the_value_once_in_its_last_part(table: str) -> None:
    with pytest.raises(ValidationError, match=r"expected a name with \{value\} once"):
        pipeline(route={"field": {**FIELD, "table": table}})


def test_listed_table_that_no_value_can_name_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"no record goes to shop\.b: no value makes that name"):
        pipeline(("shop.a_log", "shop.b"), route={"field": {**FIELD, "table": "shop.{value}_log"}})


def test_template_in_one_namespace_raises_no_remark() -> None:
    anywhere = {"name": "to", "allow": [".*"]}

    assert remarks(pipeline(route={"field": anywhere})) != ()
    assert remarks(pipeline(route={"field": {**anywhere, "table": "shop.{value}"}})) == ()
