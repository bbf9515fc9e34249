"""SQL over records: what is allowed, what happens to a row that fails, and which types result."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import subprocess
import sys
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.model.format import Frame
from frazil.records.transforms.kinds.nested import Explode
from frazil.records.transforms.kinds.sql import Sql
from frazil.records.transforms.sql.engine import connection
from frazil.records.transforms.sql.plan import plan
from tests.unit.records.transforms.frames import dead_messages, frame_of, frame_of_array, run

SHAPE = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False),
        ("t", pa.string()),
        ("s", pa.struct([("p", pa.int64())])),
        ("f", pa.binary(2)),
        ("odd name", pa.float64()),
    ]
)
ROWS: list[dict[str, object]] = [
    {"a": 1, "t": "1", "s": {"p": 1}, "f": b"ab", "odd name": 0.5},
    {"a": 2, "t": "x", "s": None, "f": None, "odd name": float("nan")},
    {"a": 3, "t": None, "s": {"p": None}, "f": b"cd", "odd name": None},
]

SELECTS = [
    ("expression", "a + 1 AS b", [{"b": 2}, {"b": 3}, {"b": 4}]),
    ("comment", "a AS b -- all", [{"b": 1}, {"b": 2}, {"b": 3}]),
    ("field of a struct", "s.p", [{"p": 1}, {"p": None}, {"p": None}]),
    ("quoted", '"odd name" IS NULL AS n', [{"n": False}, {"n": False}, {"n": True}]),
    ("topic and offset", "_kafka_topic || _kafka_offset AS k", [{"k": f"orders{n}"} for n in (101, 102, 103)]),
    ("key", "_kafka_key AS k", [{"k": f"key-{n}"} for n in (1, 2, 3)]),
    ("alias of an alias", "a AS b, b + 1 AS c", [{"b": n, "c": n + 1} for n in (1, 2, 3)]),
    ("all but", '* EXCLUDE (s, f, t, "odd name")', [{"a": 1}, {"a": 2}, {"a": 3}]),
    ("all, one replaced", '* EXCLUDE (s, f, t, "odd name") REPLACE (-a AS a)', [{"a": -1}, {"a": -2}, {"a": -3}]),
    ("lambda", "list_transform([a], lambda x: x * 2) AS l", [{"l": [2]}, {"l": [4]}, {"l": [6]}]),
    ("constant", "'x' AS c", [{"c": "x"}] * 3),
    ("all of a pattern", "* LIKE '%a'", [{"a": 1}, {"a": 2}, {"a": 3}]),
    ("all that contain an o", "* LIKE '%o%'", [{"odd name": 0.5}, None, {"odd name": None}]),
]


@pytest.mark.parametrize(("select", "expected"), [row[1:] for row in SELECTS], ids=[row[0] for row in SELECTS])
def test_expressions_give_one_row_for_each(select: str, expected: object):
    """Fields, Kafka's coordinates and DuckDB's functions; `*` stands for the fields only."""
    done = run(Sql(select), frame_of(ROWS, SHAPE))

    rows = done.frame.value.to_pylist()
    assert [row if is_kept else None for row, is_kept in zip(rows, expected, strict=True)] == expected
    assert done.frame.value.schema == Sql(select).check(SHAPE)


def test_fields_that_are_merely_named_keep_their_type():
    """DuckDB has no fixed-size binary, and no required columns."""
    value = run(Sql("*, f AS g, a + 1 AS b", "a <> 2"), frame_of(ROWS, SHAPE)).frame.value

    assert value.schema.field("a") == SHAPE.field("a")
    assert value.schema.field("g").type == pa.binary(2)
    assert value["g"].to_pylist() == [b"ab", b"cd"]


WHERES = [("a > 1", {0}), ("t = '1'", {1, 2}), ("NULL", {0, 1, 2}), ('"odd name" > 1e308', {0, 2}), ("true", set())]


@pytest.mark.parametrize(("where", "filtered"), WHERES)
def test_where_filters_and_counts(where: str | None, filtered: set[int]):
    """Null is not true; NaN is the largest number, as in DuckDB, unlike in Arrow."""
    assert run(Sql(where=where), frame_of(ROWS, SHAPE)).filtered == filtered


TYPES = [
    ("1::UTINYINT", pa.int32(), 1),
    ("1::TINYINT", pa.int32(), 1),
    ("4294967295::UINTEGER", pa.int64(), 2**32 - 1),
    ("18446744073709551615::UBIGINT", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    ("1::HUGEINT", pa.decimal128(38, 0), Decimal(1)),
    ("1.50::DECIMAL(5, 2)", pa.decimal128(5, 2), Decimal("1.50")),
    ("TIMESTAMP_S '2026-01-01 00:00:00'", pa.timestamp("us"), dt.datetime(2026, 1, 1)),
    ("TIMESTAMPTZ '2026-01-01 00:00:00+01'", pa.timestamp("us", "UTC"), dt.datetime(2025, 12, 31, 23, tzinfo=dt.UTC)),
    ("UUID '00000000-0000-0000-0000-000000000001'", pa.uuid(), UUID(int=1)),
    ("'a'::ENUM('a', 'b')", pa.string(), "a"),
    ("'[1]'::JSON", pa.string(), "[1]"),
    ("'a'::BLOB", pa.binary(), b"a"),
    ("DATE '2026-01-01'", pa.date32(), dt.date(2026, 1, 1)),
    ("TIME '01:00:00'", pa.time64("us"), dt.time(1)),
    ("{'x': 1::UTINYINT}", pa.struct([("x", pa.int32())]), {"x": 1}),
    ("MAP {'k': 1::HUGEINT}", pa.map_(pa.string(), pa.decimal128(38, 0)), [("k", Decimal(1))]),
]


@pytest.mark.parametrize(("expression", "kind", "value"), TYPES)
def test_types_that_come_back_are_types_of_records(expression: str, kind: pa.DataType, value: object):
    """Wide enough for each value, and known to tables."""
    evaluated = run(Sql(f"{expression} AS x"), frame_of(ROWS, SHAPE)).frame.value

    assert evaluated.schema.field("x").type == kind
    assert evaluated["x"].to_pylist() == [value] * 3


def test_uuids_within_structs_pass_also_where_no_row_is_left():
    """Arrow makes no empty column of such a type by itself."""
    ids = pa.array([UUID(int=1).bytes, None], pa.binary(16)).cast(pa.uuid())
    frame = frame_of_array("s", pa.StructArray.from_arrays([ids], names=["u"]))

    evaluated = [run(Sql("s, s.u AS u, {'v': s.u} AS w", where), frame).frame.value for where in (None, "false")]

    assert evaluated[0].to_pylist()[0] == {"s": {"u": UUID(int=1)}, "u": UUID(int=1), "w": {"v": UUID(int=1)}}
    assert [evaluated[1].num_rows, evaluated[1].schema == evaluated[0].schema] == [0, True]


def test_lists_of_fixed_length_are_lists():
    """Tables have no other."""
    evaluated = run(Sql("[1, 2]::UTINYINT[2] AS x"), frame_of(ROWS, SHAPE)).frame.value

    assert pa.types.is_list(evaluated.schema.field("x").type)
    assert evaluated["x"].to_pylist() == [[1, 2]] * 3


REFUSED = [
    ("aggregate", "sum(a)", None, "sum can't be used: it is an aggregate"),
    ("count", "count(*)", None, "can't be used: it is an aggregate"),
    ("window", "row_number() OVER ()", None, "it has a window function"),
    ("subquery", "(SELECT 1)", None, "it has a subquery"),
    ("exists", "EXISTS (FROM records)", None, "it has a subquery"),
    ("rows", "unnest([1, 2])", None, "it makes several rows of one"),
    ("chance", "random()", None, "it has another result each time"),
    ("time of day", "now() AS n", None, "now can't be used: it has another result each time"),
    ("time of day, a word", "Current_Date AS d", None, "current_date can't be used: it has another result each time"),
    ("time of day in a condition", "*", "a > 1 OR localtime IS NULL", "localtime can't be used"),
    ("time of day by another name", "current_localtimestamp() AS n", None, "it has another result each time"),
    ("age till now", "a, age('2026-01-01'::DATE)::VARCHAR AS x", None, "age with one argument can't be used"),
    ("two statements", "a; SELECT 1", None, "it is several statements"),
    ("no select", "a; DROP TABLE x", None, "SELECT"),
    ("from", "a FROM other", None, "it is more than expressions"),
    ("order", "a ORDER BY a", None, "it is more than expressions"),
    ("distinct", "DISTINCT a", None, "it is more than expressions"),
    ("union", "a UNION SELECT 1", None, "it is more than expressions"),
    ("parameter", "?", None, "it has a parameter"),
    ("nothing", "", None, "without selection list"),
    ("garbled", "a +", None, "syntax error"),
    ("unknown field", "nope", None, 'column "nope" not found'),
    ("unknown function", "no_such(a)", None, "no_such"),
    ("file", "read_text('/etc/hostname')", None, "read_text"),
    ("wrong type", "a + [1]", None, "Binder Error"),
    ("interval", "INTERVAL 1 DAY AS i", None, "of type INTERVAL, which no table has"),
    ("nanoseconds", "make_timestamp_ns(1) AS n", None, "of type TIMESTAMP_NS, which no table has"),
    ("nested interval", "[INTERVAL 1 DAY] AS n", None, "of type INTERVAL, which no table has"),
    ("untyped null", "NULL AS n", None, "which no table has"),
    ("names that differ in case only", "a AS x, t AS X", None, "two columns are named x"),
    ("columns by pattern", "COLUMNS('a.*')", None, "it takes columns by a pattern"),
    ("two conditions", "*", "true), (true", "it is not one condition"),
    ("aggregate condition", "*", "sum(a) > 1", "it is an aggregate"),
    ("limited", "*", "true LIMIT 1", "syntax error"),
    ("no condition", "*", "[a]", "expected where as BOOLEAN, found BIGINT[]"),
    ("number as condition", "*", "a", "expected where as BOOLEAN, found BIGINT"),
]


@pytest.mark.parametrize(("select", "where", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_expression_over_several_records_is_refused(select: str, where: str | None, message: str):
    """At validation time, with DuckDB's own message where it has one."""
    with pytest.raises(Terminal) as refused:
        Sql(select, where).check(SHAPE)

    assert message in refused.value.message


def test_records_of_a_shape_that_the_expressions_do_not_fit_fail():
    """An old writer schema must not stop the pipeline; two names that DuckDB can't tell apart neither."""
    missing = run(Sql("b"), frame_of([{"a": 1}, {"a": 2}]))
    folded = run(Sql("a + 1 AS b"), frame_of([{"a": 1, "A": 2}]))

    assert 'column "b" not found' in dead_messages(missing)[0]
    assert len(missing.dead) == 2
    assert dead_messages(folded) == {0: "Sql: expected names that differ by more than case, found a twice"}


FAILING = [
    ("cast", "t::INT AS n", "Could not convert string 'x' to INT32"),
    ("overflow", "9223372036854775807 + (t = 'x')::INT AS n", "Overflow"),
    ("decimal", "(CASE WHEN t = 'x' THEN 1000 ELSE 1 END)::DECIMAL(3, 1) AS n", "Error"),
    ("too wide", "CASE WHEN t = 'x' THEN 170141183460469231731687303715884105727 ELSE 1 END AS n", "DECIMAL(38,0)"),
    ("own error", "CASE WHEN t = 'x' THEN error('no ' || t) ELSE t END AS n", "no x"),
    ("of an alias", "t AS u, u::INT AS n", "Could not convert"),
    ("replaced", "* REPLACE (t::INT AS t)", "Could not convert"),
    ("pattern", "regexp_matches('a', replace(t, 'x', '(')) AS n", "missing )"),
]


@pytest.mark.parametrize(("select", "message"), [row[1:] for row in FAILING], ids=[row[0] for row in FAILING])
def test_failing_row_is_a_dead_letter_and_its_neighbours_land(select: str, message: str):
    """Its message is DuckDB's for this row."""
    texts = [str(n) if n != 5 else "x" for n in range(12)]

    done = run(Sql(select), frame_of([{"t": text} for text in texts]))

    assert list(done.dead) == [5]
    assert message in dead_messages(done)[5]
    assert done.frame.positions.to_pylist() == [n for n in range(12) if n != 5]


def test_a_condition_that_fails_kills_its_row_only_and_spares_rows_it_excludes():
    """Where comes before select: a row left out can't fail in select."""
    rows: list[dict[str, object]] = [{"t": "x", "k": 1}, {"t": "2", "k": 2}, {"t": "x", "k": 0}]

    done = run(Sql("t::INT AS n", "10 // k > 0 AND k <> 1 AND (k <> 0 OR t::INT > 0)"), frame_of(rows))

    assert done.frame.value.to_pylist() == [{"n": 2}]
    assert (done.filtered, set(done.dead)) == ({0}, {2})


@pytest.mark.parametrize("where", ["k = 'n' AND t::INT > 5", "k <> 'o' AND (t = 'y' OR t::INT > 5)"])
def test_records_left_out_stay_left_out_beside_a_failure(where: str):
    """After one row fails, conditions of the others are still evaluated from left to right, however many may fail."""
    neighbours: list[dict[str, object]] = [{"t": "x", "k": "o"}] * 12

    done = run(Sql("t::INT AS n", where), frame_of([{"t": "x", "k": "n"}, *neighbours, {"t": "7", "k": "n"}]))

    assert (set(done.dead), done.filtered) == ({0}, set(range(1, 13)))


def test_field_named_like_an_sql_word_is_read():
    """A field takes precedence over a keyword of SQL."""
    assert Sql("current_date AS d").check(pa.schema([("current_date", pa.int64())])).field("d").type == pa.int64()
    assert Sql("age('2026-01-02'::DATE, '2026-01-01'::DATE)::VARCHAR AS x").check(SHAPE).names == ["x"]


def test_many_failing_rows_are_found_in_few_queries():
    """A tenth of the rows fails; the first dead letters quote DuckDB."""
    rows = [{"t": str(n) if n % 10 else "x"} for n in range(2000)]

    done = run(Sql("t::INT AS n"), frame_of(rows))

    assert list(done.dead) == list(range(0, 2000, 10))
    assert "Could not convert string 'x'" in dead_messages(done)[0]
    assert done.frame.value["n"].to_pylist() == [n for n in range(2000) if n % 10]


def test_messages_show_little_of_a_value():
    """A payload must not be copied into a log."""
    for expression in ("t::INT AS n", "error(t)::INT AS n", "strptime(t, '%Y') AS n"):
        done = run(Sql(expression), frame_of([{"t": "0123456789" * 100}]))

        assert max(map(len, re.findall("[0-9]+", dead_messages(done)[0]))) <= 80
        assert len(dead_messages(done)[0]) < 120


def test_the_database_reaches_nothing_outside():
    """No expression reads settings or files."""
    for select in ("current_setting('threads') AS x", "getvariable('x')::INT AS y"):
        Sql(select).check(SHAPE)
    with pytest.raises(Terminal):
        Sql("a; SET threads = 8").check(SHAPE)


def test_keys_that_are_no_text_are_null():
    """Raw bytes of a key are no reason to fail."""
    frame = frame_of([{"x": 1}, {"x": 2}])
    keys = pa.array([b"\xff", b"ok"])
    records = frame.records.set_column(5, frame.records.schema.field(5), keys)
    odd = Frame(records, frame.positions, frame.topic, frame.value, None, frame.headers)

    assert run(Sql("_kafka_key AS k"), odd).frame.value["k"].to_pylist() == [None, "ok"]


def test_the_transform_travels_to_executors():
    """It is plain data; the database is made where it is used."""
    assert pickle.loads(pickle.dumps(Sql("a + 1 AS b", "a > 1"))) == Sql("a + 1 AS b", "a > 1")  # noqa: S301


def test_rows_of_one_record_stay_together():
    """After Explode, positions repeat, and expressions see each element."""
    exploded = run(Explode("l"), frame_of([{"l": [1, 2]}, {"l": [3]}])).frame

    done = run(Sql("l * 2 AS n"), exploded)

    assert (done.frame.positions.to_pylist(), done.frame.value["n"].to_pylist()) == ([0, 0, 1], [2, 4, 6])


def test_a_trial_names_each_computed_expression():
    """Rows that a trial finds are not searched by halves."""
    assert plan("a, t::INT AS n", None, SHAPE).trial == (
        "SELECT _frazil_row FROM records WHERE TRY((CAST(t AS INTEGER)) IS NULL) IS NULL"
    )


def test_record_that_needs_more_memory_than_a_task_has_is_a_dead_letter():
    """The limit is the transform's, not the machine's; other rows land, and nothing is spilled to disk."""
    frame = frame_of([{"l": [1] * n} for n in (1, 10_000_000, 2)], pa.schema([("l", pa.list_(pa.int64()))]))

    done = run(Sql("list_sum(list_sort(l)) AS size", memory_bytes=64 * 2**20), frame)

    assert [row["size"] for row in done.frame.value.to_pylist()] == [1, 2]
    (message,) = dead_messages(done).values()
    assert message.startswith("Sql: Out of Memory Error: ")


def test_each_task_bounds_its_own_database():
    """It has one thread, the memory of the option, and no folder for spilling."""
    settings = "SELECT current_setting('threads'), current_setting('memory_limit'), current_setting('temp_directory')"
    assert connection().execute(settings).fetchall() == [(1, "512.0 MiB", "")]
    assert connection(2**26).execute(settings).fetchall() == [(1, "64.0 MiB", "")]


WIDE = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("day", pa.timestamp("us")),
    ]
)
GROWING = [
    "repeat('x', n)",
    "repeat(s, 1000)",
    "repeat('x', least(n, 1001))",
    "repeat('x', greatest(n, 10))",
    "s.repeat(n)",
    "repeat([1], n)",
    "lpad(s, n::INT, 'x')",
    "rpad(s, n::INT, 'x')",
    "range(n)",
    "range(n, 10)",
    "range(0, n)",
    "range(0, 10, n)",
    "range(0, least(n, 10), -1)",
    "range(day, day + to_days(n::INT), to_seconds(1)) AS made",
    "list_resize(l, n)",
    "list_resize([s], 1000, s)",
    "array_resize(l, n)",
    "bitstring('1', n::INT)::VARCHAR",
    "printf('%2000d', n)",
    "printf('%*d', n)",
    "printf(s, n)",
    "format('{:2000d}', n)",
    "format('{:{}d}', 1, n)",
    "replace(s, 'a', t)",
    "regexp_replace(s, 'a', t, 'g')",
    "levenshtein(s, t)",
    "damerau_levenshtein(s, t)",
    "list_select([s], l)",
    "list_transform(l, lambda x: s)",
    "[s FOR x IN l IF x > 0]",
    "s || s AS two, list_transform(l, lambda x: two) AS made",
    "list_transform(l, lambda x: records.s)",
    "list_transform(l, lambda x: list_transform(l, lambda y: x + y))",
    "list_transform([l], lambda x: list_transform(x, lambda y: x))",
]
BOUNDED = [
    "repeat('x', 3)",
    "repeat('x', least(n, 1000)::INT)",
    "repeat(left(s, 100), least(n, 1000))",
    "lpad(s, 10, '0')",
    "rpad(s, least(n, 1000)::INT, 'x')",
    "range(least(n, 1000))",
    "range(1, least(n, 1000), 2)",
    "list_resize(l, 10)",
    "printf('%05.2f%%', n::DOUBLE)",
    "format('{:>10}', s)",
    "replace(s, 'a', 'bb')",
    "replace(s, 'a', left(t, 100))",
    "regexp_replace(s, 'a+', 'b', 'g')",
    "levenshtein(left(s, 100), left(t, 100))",
    "[x + n FOR x IN l IF x < n]",
    "list_transform(l, lambda x: repeat('x', least(x, 5)))",
    "list_transform([l], lambda x: list_transform(x, lambda y: y + n))",
    "list_reduce(l, lambda x, y: x + y)",
]


@pytest.mark.parametrize("select", GROWING)
def test_expression_with_an_unbounded_result_is_refused(select: str):
    """DuckDB's memory limit does not hold for results of functions: validate refuses them, and says how to limit them."""
    for query in (Sql(select), Sql("*", f"({select}) IS NULL"))[: 1 if " AS " in select else 2]:
        with pytest.raises(Terminal, match=r"expected at most|expected a text with widths|uses|repeats") as refused:
            query.check(WIDE)
        assert refused.value.next_step.startswith(("write", "use", "name"))


def test_expressions_with_a_bound_keep_to_the_memory_of_their_task():
    """One record of a megabyte contains a number of billions; the peak of a separate process is measured."""
    script = (
        "import sys, pyarrow as pa\n"
        "from frazil.records.transforms.sql.engine import run\n"
        "rows = pa.table({'n': [2**31 - 1], 's': ['a' * 1_000_000], 't': ['b' * 1_000_000], 'l': [list(range(100_000))]})\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) // 1024\n"
        "run('SELECT 1', rows)\n"
        "before = peak()\n"
        "for select in sys.argv[1:]:\n"
        "    run(f'SELECT {select} AS made FROM records', rows)\n"
        "print(peak() - before)\n"
    )
    for select in BOUNDED:
        Sql(f"{select} AS made").check(WIDE)
    done = subprocess.run([sys.executable, "-c", script, *BOUNDED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 600
