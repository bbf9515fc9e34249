"""Keys about the layout of new tables in a pipeline file."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.destination import Destination
from frazil.pipeline.models.layout import SortField, parse_partition_field, parse_sort_field

COLUMNS = {"id": "long", "at": "timestamp", "name": "string", "tags": "list<string>", "at_day": "date"}


def destination(**options: Any) -> Destination:
    return Destination.model_validate({"table": "shop.orders", "columns": COLUMNS} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort_by": ["nr"]}, "'nr' is not a column of shop.orders"),
        ({"sort_by": ["tags"]}, "'tags' is list<string>, which has no order"),
        ({"partition_by": ["tags"]}, "'tags' is list<string>, which has no order"),
        ({"sort_by": ["id", "id desc"]}, "names a column twice: id (identity)"),
        ({"sort_by": ["id falling"]}, "'id falling' is no field of a sort order; examples: document, created_at desc"),
        ({"sort_by": ["bucket(id, 4)"]}, "did you mean bucket(4, id)?"),
        ({"partition_by": ["bucket(id, 4)"]}, "did you mean bucket(4, id)?"),
        ({"partition_by": ["truncate(name, 3) as x"]}, "did you mean truncate(3, name)?"),
        ({"partition_by": ["void(id)"]}, "'void(id)' is no partition field"),
        ({"partition_by": ["day(at)"]}, "makes a field at_day, and shop.orders has a column of that name"),
        ({"partition_by": ["id as name"]}, "makes a field name, and shop.orders has a column of that name"),
        ({"partition_by": ["id as x", "name as x"]}, "names a field twice: x"),
        ({"partition_by": ["year(at)", "hour(at)"]}, "at_hour adds nothing to at_year: both partition by at"),
        (
            {"partition_by": ["bucket(4, id)", "bucket(4, id) as b"]},
            "b adds nothing to id_bucket: both partition by id",
        ),
    ],
)
def test_layout_that_cannot_be_made_is_refused(options: dict[str, Any], message: str) -> None:
    """Said when the file is read, with what to write instead where that can be told."""
    with pytest.raises(ValidationError, match=re.escape(message)):
        destination(**options)


def test_every_spelling_of_iceberg_is_accepted() -> None:
    """Fields may be named, identity may be written out, blanks and capitals do not matter."""
    named = parse_partition_field(" Bucket( 16 ,id ) AS shard ")
    assert (named.name, named.column, named.transform, named.size) == ("shard", "id", "bucket", 16)
    assert parse_partition_field("identity(id)") == parse_partition_field("id")
    assert parse_partition_field("as").column == "as"
    layout = destination(partition_by=["day(at) as on_day", "bucket(4, id)", "bucket(8, id) as b8"])
    assert [field.name for field in layout.partition_fields] == ["on_day", "id_bucket", "b8"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", SortField(column="id")),
        ("id ASC", SortField(column="id")),
        ("id desc", SortField(column="id", descending=True, nulls_first=False)),
        ("id nulls last", SortField(column="id", nulls_first=False)),
        ("id desc NULLS FIRST", SortField(column="id", descending=True)),
        ("day(at) desc", SortField(column="at", transform="day", descending=True, nulls_first=False)),
        ("bucket(4, id)  asc  nulls  last", SortField(column="id", transform="bucket", size=4, nulls_first=False)),
        ("desc", SortField(column="desc")),
    ],
)
def test_sort_field_is_read_in_all_forms(text: str, expected: SortField) -> None:
    """Iceberg's own syntax, in all its forms."""
    assert parse_sort_field(text) == expected


@pytest.mark.parametrize("branch", ["frazil-orders-3-1-00000000", "a b", "", "ä", "a/b", "-a"])
def test_invalid_or_reserved_branch_is_refused(branch: str) -> None:
    """Names that are taken out as leftovers of a killed run, or that other engines can't spell, are refused."""
    with pytest.raises(ValidationError, match="is not a branch name"):
        destination(branch=branch)
    assert destination(branch="main").branch is None
    assert destination(branch="audit_2.b-c").branch == "audit_2.b-c"


def test_number_among_the_properties_is_accepted() -> None:
    """YAML reads 3 and true as what they look like; properties are texts."""
    layout = destination(properties={"format-version": 3, "write.x": True, "write.y": "Z"})
    assert layout.properties == {"format-version": "3", "write.x": "true", "write.y": "Z"}
