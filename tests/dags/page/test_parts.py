"""What the page shows of bytes, times and numbers, of old readings, and of runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.utils.types import DagRunType

from frazil_airflow.page import rendering
from frazil_airflow.page.access import pipeline_of, run_of
from frazil_airflow.page.letters_routes import MAX_BYTES, payload_text

UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


def test_numbers_of_json_keep_their_digits():
    """Parsed and written again, an order number would be another one."""
    text = payload_text(b'{"id":12345678901234567890.10,"n":[1e400,{}],"s":"a,{\\"}:b"}')
    assert text.kind == "json"
    assert text.text == (
        '{\n  "id": 12345678901234567890.10,\n  "n": [\n    1e400,\n    {}\n  ],\n  "s": "a,{\\"}:b"\n}'
    )


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (None, "null"),
        (b"", "empty"),
        (b"{not json", "text"),
        (b"[" * 100_000, "text"),
        (b"[" * 5_000, "text"),
        (b"plain text\n", "text"),
        ("größe".encode() * 10_000, "text"),
        (b"\x00\x01\x02\xff", "hex"),
        (b"\x00" * 40, "hex"),
    ],
)
def test_any_bytes_have_a_view(content: bytes | None, kind: str):
    """Whatever a producer sent, the page of its letter opens, and is of bounded size."""
    text = payload_text(content)
    assert text.kind == kind
    assert len(text.text or "") <= MAX_BYTES
    assert len(text.hexadecimal) <= MAX_BYTES * 6
    assert text.is_cut == (content is not None and len(content) > MAX_BYTES)


def test_a_dump_has_offset_bytes_and_characters():
    """As every tool writes it."""
    assert payload_text(b"\x00\xffabc <script>").hexadecimal == (
        "000000  00 ff 61 62 63 20 3c 73 63 72 69 70 74 3e        ··abc <script>"
    )


def test_characters_that_turn_the_direction_of_reading_are_spelled_out():
    """Else a record could pretend to be another one."""
    assert rendering.plain("a\u202eb\x1b\n") == "a\\u202eb\\x1b\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (9_999, "9,999"),
        (12_345, "12.3k"),
        (999_999, "1000k"),
        (4_560_000, "4.6M"),
        (2e9, "2.0G"),
    ],
)
def test_a_number_is_short_in_a_column(value: float | None, text: str):
    """So that columns stay as wide as they are."""
    assert rendering.short(value) == text


def test_times_are_shown_in_their_largest_unit():
    """A minute is not told in seconds, and what was never is not told as long ago."""
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert rendering.ago(None, now) == "never"
    assert rendering.ago(now - timedelta(minutes=3, seconds=6), now) == "3.1 min ago"
    assert [rendering.brief(seconds) for seconds in (None, 0.05, 42, 7_200, 864_000)] == [
        "–",
        "<0.1 s",
        "42 s",
        "2.0 h",
        "10 d",
    ]
    assert [rendering.size(byte_count) for byte_count in (None, 12, 2_048, 5 * 2**40)] == [
        "–",
        "12 B",
        "2.0 KiB",
        "5.0 TiB",
    ]


def test_phases_fill_the_line_in_the_order_of_a_batch():
    """Also with one that this page does not know, and with none that took time."""
    phases = rendering.phases({"forward": 2.0, "stage": 6.0, "other": 2.0})
    assert [(phase.name, phase.x, phase.width) for phase in phases] == [
        ("stage", 0.0, 60.0),
        ("forward", 60.0, 20.0),
        ("other", 80.0, 20.0),
    ]
    assert [phase.width for phase in rendering.phases({"stage": 0.0})] == [0.0]
    assert rendering.phases({}) == ()


def test_one_dead_letter_beside_million_is_visible():
    """A bar above nothing is at least a line."""
    assert rendering.bars([0, 0]) == ""
    assert rendering.bars([]) == ""
    assert "v-1.5" in rendering.bars([1, 1_000_000])


def test_dag_id_names_its_pipeline():
    """By its id."""
    ids = ("ingest__a", "maintain__a__b", "dead_letters__a", "replay_dead_letters__a", "monitor", "other")
    assert [pipeline_of(dag_id) for dag_id in ids] == ["a", "a__b", "a", "a", None, None]


@pytest.mark.parametrize(
    ("kind", "run", "dag_id", "run_id"),
    [
        ("ingest", "scheduled__2026-05-01T10:00:00+00:00", "ingest__a", "scheduled__2026-05-01T10:00:00+00:00"),
        ("replay", "manual__x#2", "ingest__a", "manual__x"),
        ("replay", "manual__#1b", "ingest__a", "manual__#1b"),
        ("dead_letters", "replay_dead_letters__a:manual__x:1", "replay_dead_letters__a", "manual__x:1"),
    ],
)
def test_link_of_batch_leads_to_its_airflow_run(kind: str, run: str, dag_id: str, run_id: str):
    """The ledger's name of a run is not always Airflow's, nor is its DAG always the one that ingests."""
    assert run_of("a", kind, run) == (dag_id, run_id)


def test_run_names_without_suffix_match_written_names():
    """What is taken off for a link is what replays put on."""
    from frazil_airflow.dags.dead_letters import _request
    from frazil_airflow.project.run_request import _run_id

    run = SimpleNamespace(run_id="manual__x", clear_number=2, run_type=DagRunType.MANUAL, triggering_user_name=None)
    letters = _request("a", run, {"reason": "r"}).run

    assert run_of("a", "replay", _run_id(run, "replay"))[1] == run_of("a", "dead_letters", letters)[1] == "manual__x"


def test_chart_library_is_the_reviewed_one():
    """A file that nobody reviewed would run in the browsers of people who may start runs."""
    import frazil_airflow.page

    folder = Path(frazil_airflow.page.__file__).parent / "static" / "vendor" / "uplot"
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in UPLOT}
    assert digests == UPLOT
    assert "1.6.32" in (folder / "VERSION").read_text()


def test_a_pipeline_that_was_never_read_says_so_before_what_airflow_knows():
    """That its last run failed is known at once; the rest is not, and must not look as if it were."""
    from frazil.monitor.condition import Runs
    from frazil_airflow.page.request import PageRequest
    from tests.dags.page.source import Allowed, MadeUp, pipeline

    page_request = PageRequest(MadeUp({"a": pipeline("a")}), Allowed(frozenset()), session=None)

    assert page_request._view(pipeline("a"), Runs()).why == "not read yet"
    failed = page_request._view(pipeline("a"), Runs(last_state="failed", last_run="r1"))
    assert (failed.state, failed.why) == ("Failed", "not read yet; the last run failed: r1")


def test_old_figures_are_shown_with_their_age():
    """Nobody looked for two days: what is shown first is of then. A run is at work up to now, and a batch is not called stuck."""
    from frazil.monitor.condition import Runs
    from frazil_airflow.page.request import PageRequest
    from tests.dags.page.source import Allowed, MadeUp, condition, pipeline

    now = datetime.now(UTC)
    two_days_ago = now - timedelta(days=2)
    old = replace(
        condition("a", unfinished=7, unfinished_since=two_days_ago - timedelta(seconds=2)), read_at=two_days_ago
    )
    fresh = replace(condition("b"), read_at=now)
    page_request = PageRequest(MadeUp({}, {"a": old, "b": fresh}), Allowed(frozenset()), session=None)
    runs = Runs(running_since=now - timedelta(minutes=3))

    stale = page_request._view(pipeline("a"), runs)
    assert stale.state == "Running"
    assert stale.why.startswith("read 2.0 d ago; at work for 3 min")
    assert page_request._view(pipeline("b"), runs).why.startswith("at work for 3 min")


def test_run_counts_are_shared_for_some_seconds(monkeypatch: pytest.MonkeyPatch):
    """For some seconds what one asked is told to all, DAG by DAG, also that Airflow knows none; then it is asked anew."""
    from frazil.monitor.condition import Runs
    from frazil_airflow.page import request as runs

    asked: list[list[str]] = []

    def runs_of(_: object, dag_ids: list[str]) -> dict[str, Runs]:
        asked.append(dag_ids)
        return {dag_id: Runs(failures=len(asked)) for dag_id in dag_ids if dag_id != "unknown"}

    monkeypatch.setattr(runs, "runs_of", runs_of)
    now = [100.0]
    recent = runs.RecentRuns(clock=lambda: now[0])

    assert recent.find(None, ["a", "unknown"]) == {"a": Runs(failures=1)}
    assert recent.find(None, ["a", "b", "unknown"]) == {"a": Runs(failures=1), "b": Runs(failures=2)}
    now[0] += runs.CACHE_SECONDS
    assert recent.find(None, ["a"]) == {"a": Runs(failures=3)}
    assert asked == [["a", "unknown"], ["b"], ["a"]]


def test_runs_are_counted_from_the_metadata_of_airflow():
    """Paused or not, at work since when, how the last one ended, and how many failed since one succeeded."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    from frazil_airflow.page.request import runs_of

    begun = datetime(2026, 5, 1, tzinfo=UTC)

    def run(dag_id: str, number: int, state: str) -> DagRun:
        dag_run = DagRun(
            dag_id=dag_id, run_id=f"r{number}", run_type=DagRunType.MANUAL, run_after=begun, start_date=begun
        )
        dag_run.state, dag_run.end_date = state, begun
        return dag_run

    with create_session() as session:
        session.add(DagBundleModel(name="b"))
        session.flush()
        for dag_id, is_paused in (("ingest__a", False), ("ingest__b", True)):
            session.add(DagModel(dag_id=dag_id, bundle_name="b", is_paused=is_paused, fileloc="x"))
        session.flush()
        states = ("failed", "success", "failed", "failed", "running")
        for number, state in enumerate(states):
            session.add(run("ingest__a", number, state))
            session.flush()
        runs = runs_of(session, ["ingest__a", "ingest__b", "ingest__unknown"])
        session.rollback()

    assert set(runs) == {"ingest__a", "ingest__b"}
    assert (runs["ingest__a"].last_run, runs["ingest__a"].last_state, runs["ingest__a"].failures) == (
        "r3",
        "failed",
        2,
    )
    assert runs["ingest__a"].running_since == begun
    assert runs["ingest__b"].is_paused
    assert runs["ingest__b"].last_state is None
