"""Regular expressions of pipeline files take time in proportion to the text, whatever producers send."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from frazil.capture.contents import LONGEST_LINE, batches
from frazil.cli.files.verdict import judge
from frazil.connect.tables import UnusablePattern, python_regex
from frazil.errors import Terminal
from frazil.kafka.admin.observe import matching_topics
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.route import Source
from frazil.pipeline.syntax.patterns import expanded_name, matches
from frazil.records.decoder.route import FieldRoute, Route, Router, StaticRoute, TopicRoute
from frazil.records.transforms.fields import WholeMatch
from frazil.run.staging.record_problems import record_problems
from frazil.verify.values.transforms import route_to_table
from tests.unit.capture.captured import Captured, capture_of

HOSTILE = r"(\w+\s?)+;|(a+)+"
"""Python's own takes longer than anybody waits to find that the text below is none of these."""

TEXT = "a" * 5_000 + "!"
TABLES = [f"shop.t{number}" for number in range(3)]


@contextmanager
def at_once() -> Iterator[None]:
    """What backtracks takes for ever; what does not, a moment, also on a machine that is busy."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 20


def pipeline(**more: Any) -> Pipeline:
    """A pipeline with one destination."""
    declared = {"table": TABLES[0], "columns": {"kind": "string"}}
    return Pipeline.model_validate(
        {"name": "events", "source": {"topics": ["events"]}, "destinations": [declared]} | more
    )


@pytest.mark.parametrize(
    "route_by",
    [
        StaticRoute(("kind",), dict.fromkeys(TABLES, HOSTILE)),
        FieldRoute(("kind",), allow=(HOSTILE,)),
        FieldRoute(("kind",), allow=(), deny=(HOSTILE,)),
        TopicRoute({HOSTILE: TABLES[0]}),
        TopicRoute({}, deny=(HOSTILE,)),
    ],
)
def test_routes_decide_a_hostile_value_at_once(route_by: Any) -> None:
    """By a field of the value, or by the topic; many new values in a batch, too."""
    with at_once():
        _, unrouted = Router(Route(route_by), TABLES).rows_by_table(
            pa.array([TEXT, *(f"{TEXT}{n}" for n in range(500))])
        )

    assert len(unrouted) == 501


def test_other_expressions_decide_a_hostile_text_at_once() -> None:
    """Topic patterns, predicates and routers of transforms, names of new tables, and the check of what landed."""
    route = {"static": {"field": "kind", "tables": {TABLES[0]: HOSTILE}}}
    with at_once():
        assert not Source(topics_pattern=HOSTILE).reads(TEXT)
        assert WholeMatch(HOSTILE).holds(pa.array([TEXT])).to_pylist() == [False]
        assert WholeMatch(HOSTILE).replace(pa.array([TEXT]), ["x", 1]).to_pylist() == [TEXT]
        table = route_to_table(pipeline(route=route), TABLES[0])
        assert table is not None
        assert table("events", json.dumps({"kind": TEXT}).encode(), Message()) == "nowhere"


def test_lines_of_captures_get_their_keys_at_once(tmp_path: Path) -> None:
    """Whoever writes into a log chooses its lines."""
    log = tmp_path / "app.log"
    log.write_text(f"{TEXT}\nGET /a from 10.0.0.7 x 10.0.0.8\n\nfrom \n")
    captured = Captured(capture_of(log, key_pattern=r"from (\S+)|((a+)+);"))

    with at_once():
        assert len(captured.run()) == 4

    assert [record.key for record in captured.records] == [None, b"10.0.0.7", None, None]
    assert LONGEST_LINE < 2**31


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(?=a)a", "invalid perl operator"),
        (r"(?!internal\.).*", "invalid perl operator"),
        (r"(?<=a)b", "invalid"),
        (r"(a)\1", "invalid escape sequence"),
        (r"a{2000}", "invalid repetition size"),
        (r"a\Z", "invalid escape sequence"),
    ],
)
def test_expression_that_backtracks_is_refused_by_validate_with_its_key(
    tmp_path: Path, pattern: str, reason: str
) -> None:
    """Every place of a pipeline or capture file that has one, and the importer of connectors."""
    files = {
        "source.topics_pattern": {"source": {"topics_pattern": pattern}},
        f"route.static.tables.{TABLES[0]}": {"route": {"static": {"field": "kind", "tables": {TABLES[0]: pattern}}}},
        "route.field.allow.0": {"route": {"field": {"name": "kind", "allow": [pattern]}}},
        "route.field.deny.0": {"route": {"field": {"name": "kind", "deny": [pattern]}}},
        f"route.topic.rename.{pattern}": {"route": {"topic": {"rename": {pattern: TABLES[0]}}}},
        "route.topic.deny.0": {"route": {"topic": {"deny": [pattern]}}},
        "transforms.0.regex": {"transforms": [{"type": "RegexRouter", "regex": pattern, "replacement": "x"}]},
        "transforms.0.when.pattern": {
            "transforms": [{"type": "Filter", "when": {"predicate": "TopicNameMatches", "pattern": pattern}}]
        },
    }
    for key, more in files.items():
        (problem,) = record_problems(pipeline(**more))
        assert problem.startswith(f"{key}: {pattern!r} is not a regular expression that RE2 takes: {reason}")
    with pytest.raises(Terminal, match="that RE2 takes"):
        WholeMatch(pattern)
    with pytest.raises(UnusablePattern):
        python_regex(pattern)
    with pytest.raises(Terminal, match="key_pattern"):
        Captured(capture_of(tmp_path / "log", key_pattern=f"{pattern}()")).run()
    (tmp_path / "captures").mkdir()
    (tmp_path / "pipelines").mkdir()
    logs = {"capture": "file", "name": "logs", "topic": "logs", "paths": ["/log/a"], "key_pattern": f"{pattern}()"}
    (tmp_path / "captures/logs.yaml").write_text(json.dumps(logs))
    env = {"FRAZIL_PIPELINES": str(tmp_path / "pipelines"), "FRAZIL_SETTINGS": str(tmp_path / "none.yaml")}
    assert "key_pattern: " in str(judge([tmp_path / "captures/logs.yaml"], env)[0].problems)


@pytest.mark.parametrize(
    ("pattern", "name", "topic", "expected"),
    [
        (r"shop\.(\w+)", r"lake.\1", "shop.orders", "lake.orders"),
        (r"(?P<year>\d{4})-(.*)", r"y\g<year>.t_\2_\1", "2026-a", "y2026.t_a_2026"),
        (r"(?<year>\d{4})-(.*)", r"y\g<year>.t_\2", "2026-a", "y2026.t_a"),
        (r"(a)|(b)", r"x.t\1\2", "b", "x.tb"),
        (r"a|ab", r"x.y", "ab", "x.y"),
        (r"(?i)SHOP\.(x.*)", r"s.\1", "shop.X\ny", "s.X\ny"),
        (r"shop", r"s.t", "shop2", None),
    ],
)
def test_named_and_numbered_groups_are_used(pattern: str, name: str, topic: str, expected: str | None) -> None:
    """By number and by name, as files have them today; the check of what landed reads them by itself."""
    tables = [expected or "s.t", "other.t"]

    (rows, _), _ = Router(Route(TopicRoute({pattern: name})), tables).rows_by_table(pa.array([topic]))

    assert rows.to_pylist() == ([] if expected is None else [0])
    assert expanded_name(pattern, topic, name) == expected


@given(
    pattern=st.sampled_from([r"a*b?(c|d)*", r"(a|ab)(c|bcd)(d*)", r"[^a]+|a.", r"(?i)ab|c+", r"\d+[ab]{1,2}", ""]),
    text=st.text("abcdABé1\n", max_size=8),
)
def test_expressions_match_as_python_has_them(pattern: str, text: str) -> None:
    """Whole texts, line feeds included."""
    expected = re.fullmatch(pattern, text, re.DOTALL)

    assert matches(pattern, text) == (expected is not None)
    assert WholeMatch(pattern).holds(pa.array([text])).to_pylist() == [expected is not None]


def test_capture_reads_nothing_by_an_expression_that_is_refused(tmp_path: Path) -> None:
    """Before the first line."""
    captured = Captured(capture_of(tmp_path / "log", key_pattern="((?=a))"))

    with pytest.raises(Terminal):
        next(iter(batches(captured.capture, captured.look())))


def test_pattern_of_topics_is_refused_before_the_cluster_is_asked() -> None:
    """A file that nobody validated."""
    with pytest.raises(Terminal, match="no regular expression"):
        matching_topics(None, "(?=a)")  # type: ignore[arg-type]  # nobody is asked


def test_bracket_that_is_text_begins_no_named_group() -> None:
    """Java's spelling of a named group is taken for Python's; behind a backslash the bracket is a character."""
    pattern = r"\(?<(?<tag>\w+)>.*"

    assert WholeMatch(pattern).holds(pa.array(["<b>x", "(<b>x", "P<b>x"])).to_pylist() == [True, True, False]
    assert [matches(pattern, text) for text in ("<b>x", "P<b>x")] == [True, False]


def test_expression_that_backtracks_is_a_terminal_error_everywhere() -> None:
    """Also where nobody validated the file."""
    with pytest.raises(Terminal, match="is not a regular expression that RE2 takes"):
        matches("(?=a)b", "b")
