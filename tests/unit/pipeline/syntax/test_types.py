"""Column types, partition fields and intervals: small grammars, where a typo must not become something else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.models.pipeline_file import PartitionField, parse_partition_field
from frazil.pipeline.syntax.interval import Interval, Trigger, parse_interval
from frazil.pipeline.syntax.types import PRIMITIVES, ColumnType, ListOf, MapOf, Primitive, StructOf, parse_type

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True) | st.text(min_size=1, max_size=4)
primitives = st.one_of(
    st.sampled_from(PRIMITIVES).map(Primitive),
    st.integers(1, 2**31 - 1).map(lambda length: Primitive("fixed", (length,))),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Primitive("decimal", (p, s)))),
)
column_types = st.recursive(
    primitives,
    lambda inner: st.one_of(
        st.builds(ListOf, inner),
        st.builds(MapOf, inner, inner),
        st.lists(st.tuples(names, inner), min_size=1, max_size=4, unique_by=lambda field: field[0]).map(
            lambda fields: StructOf(tuple(fields))
        ),
    ),
    max_leaves=8,
)


@given(column_types)
def test_type_survives_writing_and_reading(column_type: ColumnType) -> None:
    """The spelling that is kept in the model, hashed and compared, reads as the same type."""
    assert parse_type(str(column_type)) == column_type


@given(st.text(alphabet="listmapucdeong<>(),:[]1230 _", max_size=30))
def test_invalid_type_is_a_value_error(text: str) -> None:
    """Any text is a type, or a ValueError that the loader turns into a complaint with file and key."""
    try:
        parsed = parse_type(text)
    except ValueError:
        return
    assert parse_type(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Long ", "long"),
        ("DECIMAL( 38 , 0 )", "decimal(38,0)"),
        ("fixed[16]", "fixed[16]"),
        ("list<string>", "list<string>"),
        ("map<string,list<int>>", "map<string, list<int>>"),
        ("struct<a:int,B: struct<list: list<date>>>", "struct<a: int, B: struct<list: list<date>>>"),
    ],
)
def test_only_field_names_are_case_sensitive_in_types(text: str, expected: str) -> None:
    """Blanks and capitals of type names don't matter, capitals of field names do."""
    assert str(parse_type(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'more', found 'its end'"),
        ("bigint", "did you mean 'long'"),
        ("integer", "did you mean 'int'"),
        ("text", "did you mean 'string'"),
        ("timestamp_tz", "did you mean 'timestamptz'"),
        ("qqq", "known: boolean, int"),
        ("list<integer>", "'integer', did you mean 'int'"),
        ("long long", "'long' is too much"),
        ("list<int", "expected '>', found 'its end'"),
        ("list<int>>", "'>' is too much"),
        ("list", "expected '<'"),
        ("map<string>", "expected ',', found '>'"),
        ("struct<>", "expected the name of a field, found '>'"),
        ("struct<(: int>", "expected the name of a field, found '('"),
        ("struct<1: int>", "expected the name of a field, found '1'"),
        ("struct<a int>", "expected ':', found 'int'"),
        ("struct<a: int, a: long>", "names a struct field twice"),
        ("decimal", r"expected '('"),
        ("decimal(10)", "expected ','"),
        ("decimal(a,2)", "expected a number, found 'a'"),
        ("decimal(0,0)", "precision is 1 to 38"),
        ("decimal(39,0)", "precision is 1 to 38"),
        ("decimal(4,5)", "scale at most the precision"),
        ("decimal(-4,2)", "is not a type"),
        ("fixed[0]", "at least one byte"),
        ("fixed(4)", r"expected '\['"),
        ("lo-ng", "is not a type"),
        ("list<" * 5000, "too deeply nested"),
    ],
)
def test_wrong_type_is_refused_at_its_wrong_part(text: str, message: str) -> None:
    """The message names the part that is wrong and what belongs there."""
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse_type(text)


@pytest.mark.parametrize(
    ("text", "column", "transform", "size", "name"),
    [
        ("document", "document", "identity", None, "document"),
        (" document ", "document", "identity", None, "document"),
        ("day", "day", "identity", None, "day"),
        ("year(at)", "at", "year", None, "at_year"),
        ("month(at)", "at", "month", None, "at_month"),
        ("day(at)", "at", "day", None, "at_day"),
        ("hour(at)", "at", "hour", None, "at_hour"),
        ("bucket(16, id)", "id", "bucket", 16, "id_bucket"),
        ("bucket(16,id)", "id", "bucket", 16, "id_bucket"),
        ("truncate(4, name)", "name", "truncate", 4, "name_truncate"),
    ],
)
def test_partition_field_is_read_in_all_forms(
    text: str, column: str, transform: str, size: int | None, name: str
) -> None:
    """Iceberg's own syntax, in all its forms."""
    field = parse_partition_field(text)

    assert field == PartitionField.model_validate({"column": column, "transform": transform, "size": size})
    assert field.name == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "day()",
        "day(a",
        "days(a)",
        "day(a, b)",
        "bucket(id)",
        "bucket(0, id)",
        "bucket(-1, id)",
        "bucket(id, 16)",
        "a, b",
        "truncate(x, a)",
    ],
)
def test_wrong_partition_field_is_refused(text: str) -> None:
    """No bucket of zero, no unknown transform, no two columns."""
    with pytest.raises(ValueError, match="no partition field"):
        parse_partition_field(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60s", Interval(every=timedelta(minutes=1))),
        ("90s", Interval(every=timedelta(seconds=90))),
        ("5m", Interval(every=timedelta(minutes=5))),
        ("5 m", Interval(every=timedelta(minutes=5))),
        (" 1h ", Interval(every=timedelta(hours=1))),
        ("1d", Interval(every=timedelta(days=1))),
        ("*/10 * * * *", Interval(cron="*/10 * * * *")),
        ("0 6,18 * * mon-fri", Interval(cron="0 6,18 * * mon-fri")),
        ("0-30/5 0 L JAN-MAR 1#2", Interval(cron="0-30/5 0 L JAN-MAR 1#2")),
        ("59 23 31 12 7", Interval(cron="59 23 31 12 7")),
        ("@hourly", Interval(cron="@hourly")),
    ],
)
def test_interval_is_read_in_all_forms(text: str, expected: Interval) -> None:
    """Durations and cron expressions, each in its forms."""
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("59s", "shorter than a minute"),
        ("0m", "shorter than a minute"),
        ("", "neither"),
        ("5", "neither"),
        ("5M", "neither"),
        ("-5m", "neither"),
        ("1.5h", "neither"),
        ("5m30s", "neither"),
        ("999999999999d", "too long"),
        ("* * * *", "neither"),
        ("* * * * * *", "neither"),
        ("every five minutes or so", "neither"),
        ("60 * * * *", "neither"),
        ("* 24 * * *", "neither"),
        ("* * 0 * *", "neither"),
        ("* * * 13 *", "neither"),
        ("* * * * 8", "neither"),
        ("*/0 * * * *", "neither"),
        ("5- * * * *", "neither"),
        ("1,,2 * * * *", "neither"),
        ("@fortnightly", "neither"),
        ("0 6 * * 1-5#2", "can be scheduled"),
        ("0 6 * * 5#1,3", "can be scheduled"),
        ("0 6 l/2 * *", "can be scheduled"),
        ("0 6 31 2 *", "can be scheduled"),
    ],
)
def test_wrong_interval_is_refused(text: str, message: str) -> None:
    """A schedule that Airflow would refuse when it parses the DAG is refused with the file's name."""
    with pytest.raises(ValueError, match=message):
        parse_interval(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s", timedelta(seconds=1)), (" 10 s ", timedelta(seconds=10)), ("2m", timedelta(minutes=2))],
)
def test_poll_interval_is_read_in_all_forms(text: str, expected: timedelta) -> None:
    """Shorter than an interval may be, in the same words."""
    assert Trigger(records=1, every=text).pause == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs records or bytes"),
        ({"every": "5s"}, "needs records or bytes"),
        ({"records": 0}, "greater than 0"),
        ({"bytes": -1}, "greater than 0"),
        ({"records": 1, "every": "0s"}, "shorter than a second"),
        ({"records": 1, "every": "10"}, "no duration such as"),
        ({"records": 1, "every": "* * * * *"}, "no duration such as"),
        ({"records": 1, "every": "999999999999d"}, "too long"),
        ({"record": 1}, "record"),
    ],
)
def test_trigger_that_never_or_always_fires_is_refused(options: dict[str, Any], message: str) -> None:
    """It says how much must wait, and looks at sensible times."""
    with pytest.raises(ValueError, match=message):
        Trigger.model_validate(options)
