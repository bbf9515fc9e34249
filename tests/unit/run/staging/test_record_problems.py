"""What `frazil validate` finds in a pipeline file without records: columns that no value could fill."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems, remarks

LINE = {"format": "delimited", "fields": ["id", "amount", "note"]}


def problems(
    value: dict[str, Any], columns: dict[str, Any], to: dict[str, Any] | None = None, **more: Any
) -> tuple[str, ...]:
    """What is found in a file with these columns; `to` are further keys of the destination."""
    destination = {"table": "a.b", "columns": columns, **(to or {})}
    return record_problems(
        Pipeline.model_validate(
            {"name": "p", "source": {"topics": ["t"]}, "value": value, "destinations": [destination], **more}
        )
    )


@pytest.mark.parametrize(
    ("value", "columns", "expected"),
    [
        (LINE, {"id": {"type": "long"}, "sum": {"type": "double", "from": "amonut"}}, "did you mean 'amount'?"),
        (LINE, {"id": {"type": "long"}, "Note": {"type": "string"}}, "did you mean 'note'?"),
        (LINE, {"zzz": {"type": "string"}}, "there are id, amount, note"),
        ({"format": "string"}, {"valeu": {"type": "string"}}, "did you mean 'value'?"),
    ],
)
def test_misspelled_field_is_reported(value: dict[str, Any], columns: dict[str, Any], expected: str) -> None:
    """An optional column would be null for ever, and nobody would be told."""
    (problem,) = problems(value, columns)

    assert problem.startswith("destinations.0.columns.")
    assert problem.endswith(expected)


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (LINE, {"id": {"type": "long"}, "sum": {"type": "double", "from": "amount"}}),
        (LINE, {"source": {"type": "string", "default": "csv"}, "id": {"type": "long"}}),
        (LINE, {"all": {"type": "string", "from": []}}),
        (LINE | {"field_names": "case_insensitive"}, {"ID": {"type": "long"}}),
        (LINE | {"unknown_fields": "rescue"}, {"id": {"type": "long"}, "_rescued": {"type": "string"}}),
    ],
)
def test_column_that_can_be_filled_is_accepted(value: dict[str, Any], columns: dict[str, Any]) -> None:
    """A default, the whole value and rescued fields need no field of their own."""
    assert problems(value, columns) == ()


def test_misspelled_field_of_the_key_is_reported() -> None:
    """A column of the key is filled by the key's fields alone."""
    columns = {"id": {"type": "long"}, "who": {"type": "string", "from": "valeu", "part": "key"}}

    (problem,) = problems(LINE, columns, key={"format": "string"})

    assert problem == "destinations.0.columns.who: no key has the field 'valeu', did you mean 'value'?"


def test_a_json_value_beside_a_key_may_have_any_field() -> None:
    """Its fields are not known before they are read."""
    columns = {"a": {"type": "long", "from": "b"}, "who": {"type": "string", "from": "value", "part": "key"}}

    assert problems({}, columns, key={"format": "string"}) == ()


ROW = "struct<id: long, e_mail: string>"
EVENTS = {"fields": {"before": ROW, "after": ROW, "op": "string"}}
CDC = {"write": "cdc", "identifier": ["id"], "changes": {"format": "debezium"}}


@pytest.mark.parametrize("more", [{}, {"append_history": "a.log"}, {"evolve": "add"}])
def test_column_whose_field_no_declared_row_has_is_reported(more: dict[str, Any]) -> None:
    """Rows of change events have the declared fields alone, so the column would be null for ever."""
    columns = {"id": {"type": "long", "required": True}, "email": "string"}

    (problem,) = problems(EVENTS, columns, to=CDC | more)

    assert problem == "destinations.0.columns.email: no row has the field 'email', did you mean 'e_mail'?"


@pytest.mark.parametrize(
    ("value", "column", "more"),
    [
        (EVENTS, {"type": "string", "from": "e_mail"}, {}),
        (EVENTS, {"type": "string", "from": ["_cdc", "op"]}, {}),
        (EVENTS, {"type": "string", "from": []}, {}),
        (EVENTS, {"type": "string", "part": "header"}, {}),
        (EVENTS, {"type": "string", "default": None}, {}),
        ({"fields": "inferred"}, {"type": "string"}, {}),
        ({}, {"type": "string"}, {}),
        ({}, {"type": "string"}, {"evolve": "add"}),
    ],
)
def test_column_that_a_changed_row_can_fill_is_accepted(
    value: dict[str, Any], column: dict[str, Any], more: dict[str, Any]
) -> None:
    """So is one with a default, be it null: its field may come later."""
    columns = {"id": {"type": "long", "required": True}, "email": column}

    assert problems(value, columns, to=CDC | more) == ()


@pytest.mark.parametrize(("value", "more"), [(LINE, {}), (EVENTS, CDC)])
def test_column_for_rescued_values_of_an_evolving_table_is_accepted(
    value: dict[str, Any], more: dict[str, Any]
) -> None:
    """Values that don't fit land there, and no field fills it."""
    columns = {"id": {"type": "long", "required": True}, "_rescued": "string"}

    assert problems(value, columns, to={"evolve": "add", **more}) == ()


@pytest.mark.parametrize(
    ("destination", "more"),
    [
        ({}, {}),
        ({}, {"value": LINE}),
        ({}, {"value": {"format": "avro", "registry": "main"}}),
        ({}, {"transforms": [{"type": "ReplaceField", "exclude": ["note"]}]}),
        ({}, {"value": {"unknown_fields": "rescue"}}),
        ({}, {"route": {"static": {"field": "kind.of", "tables": {"a.b": "x"}}}}),
        (
            {"columns": {"zip": {"type": "string", "from": ["address", "zip"]}}, "evolve": "add"},
            {"value": {"fields": None}},
        ),
        ({"columns": {"id": {"type": "long", "part": "key"}}, "evolve": "add"}, {"key": {"fields": {"id": "long"}}}),
    ],
)
def test_table_without_declared_columns_is_accepted(destination: dict[str, Any], more: dict[str, Any]) -> None:
    """Whatever the format, transforms and routes: what records bring need not be declared."""
    file = {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b"} | destination]} | more
    assert record_problems(Pipeline.model_validate(file)) == ()


def test_default_that_fits_no_column_is_reported() -> None:
    """Declared columns of a table that evolves are checked as those of any other."""
    columns = {"id": {"type": "long", "default": "x"}}
    file = {
        "name": "p",
        "source": {"topics": ["t"]},
        "destinations": [{"table": "a.b", "columns": columns, "evolve": "full"}],
    }
    (problem,) = record_problems(Pipeline.model_validate(file))
    assert problem.startswith("destinations.0.columns.id.default: does not fit its type")


def test_route_by_an_undeclared_field_of_json_is_a_warning() -> None:
    """A JSON value that goes to columns as it is may have it, so that is no reason to refuse the file."""
    destinations = [{"table": table, "columns": {"id": "long"}} for table in ("a.b", "a.c")]
    body = {"name": "p", "source": {"topics": ["t"]}, "destinations": destinations}
    problems = [
        remarks(Pipeline.model_validate(body | {"value": {"fields": fields}, "route": {"field": {"name": "kind.of"}}}))
        for fields in ({"id": "long", "kid": "string"}, {"kind": "struct<of: string>"})
    ]

    assert problems == [("route.field.name: value.fields does not have 'kind', did you mean 'kid'?",), ()]


def test_undeclared_changes_beside_an_evolving_table_are_refused() -> None:
    """Beside a table that evolves, what changes hold must be declared: their numbers would be typed by what they look like."""
    columns = {"id": {"type": "long", "required": True}, "price": "decimal(38,19)"}
    merged = {
        "table": "a.m",
        "columns": columns,
        "write": "cdc",
        "identifier": ["id"],
        "changes": {"format": "debezium"},
    }
    file = {"name": "p", "source": {"topics": ["t"]}, "destinations": [{"table": "a.b"}, merged], "engine": "spark"}
    (problem,) = record_problems(Pipeline.model_validate(file))
    assert "so the JSON fields must be declared" in problem


def test_history_table_raises_no_warning() -> None:
    """Each record goes to both, which is what `append_history` asks for."""
    destination = {
        "table": "a.b",
        "write": "cdc",
        "append_history": "a.b_changes",
        "identifier": ["id"],
        "changes": {"format": "debezium"},
        "columns": {"id": {"type": "long", "required": True}},
    }
    body = {"name": "p", "source": {"topics": ["t"]}}

    assert remarks(Pipeline.model_validate(body | {"destinations": [destination]})) == ()
    second_destination = {"table": "a.c", "columns": {"id": "long"}}
    assert (
        "each of 2 destinations"
        in remarks(Pipeline.model_validate(body | {"destinations": [destination, second_destination]}))[0]
    )


@pytest.mark.parametrize(
    ("names", "second_name"), [(("a-b", "a_x2Db"), "a-b"), (("a_x2Db", "a-b"), "a_x2Db"), (("1a", "_1a"), "1a")]
)
def test_names_that_are_one_in_data_files_are_refused(names: tuple[str, str], second_name: str) -> None:
    """Iceberg writes out what is no letter or digit; each column needs a name of its own there."""
    (problem,) = problems({"format": "json"}, dict.fromkeys(names, "string"))
    assert problem.startswith(f"destinations.0.columns.{names[1]}: ")
    assert f"as they name {second_name}" in problem
    assert problems({"format": "json"}, dict.fromkeys((*names[:1], "a_b"), "string")) == ()
