"""What a person may ask of a run by hand, and what is said about a run afterwards: pure functions of the plugin."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowFailException
from markdown_it import MarkdownIt

from frazil.batch.facts import Counts, DeadSample, UnknownFields
from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.error_codes import INTERNAL
from frazil.errors import Retryable, Terminal
from frazil.run.batches.dry_run import DryRun
from frazil.run.batches.plan import RunResult
from frazil_airflow.dags.dag_defaults import cron_of
from frazil_airflow.outputs.run_summary import (
    address,
    dry_run_sentence,
    run_facts,
    sample_lines,
    sentence,
    with_paragraph,
)
from frazil_airflow.project.run_request import limit_records
from frazil_airflow.project.secrets import exit_code, terminal_is_final

pytestmark = pytest.mark.dags


def plan_of(begin: tuple[int, ...], end: tuple[int, ...]) -> RunPlan:
    topics = {"orders": PlannedTopic("id", begin, end)}
    return RunPlan("orders", "manual__1", "2026-01-01T00:00:00.000+00:00", "cluster", topics, complete=True)


def test_a_limited_run_takes_a_share_of_every_partition_and_does_not_claim_to_be_complete():
    """Ends are drawn in, in proportion; the table is not complete through the plan's instant then."""
    chosen = limit_records(plan_of((0, 100), (300, 200)), 100)

    assert chosen.topics["orders"].end == (75, 125)
    assert chosen.records == 100
    assert chosen.complete is False


@pytest.mark.parametrize("partitions", [1, 2, 7])
@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_a_limited_run_always_reads_something(partitions: int, most: int):
    """A limit below the number of partitions must not make a run that reads nothing and starts Spark for it."""
    chosen = limit_records(plan_of((0,) * partitions, (3,) * partitions), most)

    assert 0 < chosen.records <= most


def test_a_limit_beyond_the_end_changes_nothing():
    """Neither without a limit nor with one that is not reached."""
    plan = plan_of((0,), (10,))

    assert limit_records(plan, None) == plan
    assert limit_records(plan, 10) == plan


RESULT = RunResult(
    pipeline="orders",
    run="manual__1",
    batches=1,
    read=12,
    written=9,
    dead=2,
    filtered=1,
    dead_codes={"INVALID_JSON": 2},
    position={"orders": [7, 5]},
    snapshots=(7136527834682345123,),
    seconds=4.25,
)


def test_snapshot_ids_keep_all_their_digits():
    """Browsers and other readers of JSON round numbers beyond 53 bits: the id would name another snapshot."""
    facts = run_facts(RESULT, plan_of((0,), (12,)))

    assert facts["snapshot_ids"] == ["7136527834682345123"]
    assert facts["complete_through"] == "2026-01-01T00:00:00.000+00:00"
    assert (facts["rows"], facts["dead_letters"], facts["position"]) == (9, 2, {"orders": [7, 5]})


def test_completeness_is_not_claimed_when_the_plan_could_not_see_the_end():
    """Records of an open transaction were accepted before the plan's instant and are not in."""
    assert run_facts(RESULT, replace(plan_of((0,), (12,)), complete=False))["complete_through"] is None


def test_a_note_of_a_person_survives_ours():
    """A second try replaces our line and nothing else."""
    text = sentence(run_facts(RESULT, plan_of((0,), (12,))))

    note = with_paragraph("asked for by Ana\n\nFrazil: old numbers", text)

    assert note == (
        "asked for by Ana\n\nFrazil: 9 rows, 2 dead letters (INVALID_JSON 2), 1 filtered in 1 batch, 4.2 s;"
        " complete through 2026-01-01T00:00:00.000+00:00"
    )
    assert with_paragraph(None, text) == f"Frazil: {text}"


def test_fields_that_are_left_out_are_reported():
    """The note of a run and that of a dry run say so, and the event of the table has the numbers."""
    left_out = UnknownFields(3, {"coupon": 3})

    facts = run_facts(replace(RESULT, unknown_fields=left_out), plan_of((0,), (12,)))

    assert (facts["unknown_records"], facts["unknown_fields"]) == (3, {"coupon": 3})
    assert "; 3 records with fields that no column takes (`coupon` 3); complete through" in sentence(facts)
    assert dry_run_sentence(replace(LOOK, unknown_fields=left_out)).endswith("no column takes (`coupon` 3)")


HOSTILE_NAMES = (
    "[pay here](https://evil.example)",
    "https://evil.example/login",
    "<img src=x onerror=alert(1)>",
    "`</code><script>",
    "**bold** _x_ # h | ~~no~~",
    "a\n\n# heading\n\x1b[2J\x9b31m\u202e",
    "![](https://evil.example/pixel.png)" + "x" * 5_000,
)


def test_names_of_unknown_fields_are_no_markup_in_the_note_of_a_run():
    """Producers choose the names of fields: in Markdown each is a code span, on one line, and the note keeps its size."""
    hostile = UnknownFields.counted(9, dict.fromkeys(HOSTILE_NAMES, 1))
    plan = replace(plan_of((0,), (12,)), mode="replay", reason="a ` of a person", complete=False)
    note = with_paragraph("asked for by Ana", sentence(run_facts(replace(RESULT, unknown_fields=hostile), plan)))

    inline = [token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(note) if token.children]
    kinds = {child.type for token in inline for child in token.children or ()}
    texts = "".join(child.content for token in inline for child in token.children or () if child.type == "text")
    spans = [child.content for token in inline for child in token.children or () if child.type == "code_inline"]
    assert kinds == {"text", "code_inline"}
    assert len(inline) == 2  # the paragraph of the person, and ours
    assert "evil" not in texts
    assert len(spans) >= 4
    assert all(span.isprintable() for span in spans)
    assert len(note) < 1_000


def test_replay_is_marked_with_mode_and_reason():
    """Mode and reason stand in the event and begin the line of the note."""
    plan = replace(plan_of((0,), (12,)), mode="replay", reason="wrong prices", complete=False)

    facts = run_facts(RESULT, plan)

    assert (facts["mode"], facts["reason"]) == ("replay", "wrong prices")
    assert sentence(facts).startswith("replay, reason: wrong prices; 9 rows, 2 dead letters (INVALID_JSON 2), ")
    assert sentence(run_facts(RESULT, replace(plan, reason=None))).startswith("replay, reason: none given; 9 rows")


LOOK = DryRun(
    pipeline="orders",
    run="manual__1",
    offsets=5_000,
    looked_at=12,
    bytes=2_048,
    counts=Counts(12, 9, 2, 1),
    dead_codes={"INVALID_JSON": 2},
    samples={"INVALID_JSON": DeadSample("orders", 3, 17, "expected one JSON document")},
    partitions=(),
    too_many_dead=None,
    remarks=(),
    seconds=1.5,
)


def test_note_of_dry_run_says_that_nothing_landed():
    """The note says that it did not, what it looked at, and whether a run would publish."""
    assert dry_run_sentence(LOOK) == (
        "dry run, nothing was landed; looked at 12 of 5,000 offsets (2,048 bytes): 9 rows, 2 dead letters"
        " (INVALID_JSON 2), 1 filtered, 1.5 s"
    )
    assert dry_run_sentence(replace(LOOK, too_many_dead="2 of 12")).endswith("; a run would not publish this: 2 of 12")
    assert list(sample_lines(LOOK)) == [
        "dead letter INVALID_JSON, topic orders, partition 3, offset 17: expected one JSON document"
    ]


def test_terminal_errors_end_a_task_for_good_and_others_do_not():
    """The message stays, the next step in it."""
    with pytest.raises(AirflowFailException, match=r"gone \[FRZ-901\]\n  next: look") as failure, terminal_is_final():
        raise INTERNAL.terminal("gone", next_step="look")
    assert isinstance(failure.value.__cause__, Terminal)

    with pytest.raises(Retryable), terminal_is_final():
        raise INTERNAL.retryable("away")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Cannot execute: spark-submit x. Error code is: 78.\nLast", 78),
        ("Error code is: -9.", -9),
        ("no driver id", None),
    ],
)
def test_the_exit_code_is_found_in_the_message_of_the_provider(message: str, code: int | None):
    """Also that of a killed process; a message without one is no error class."""
    assert exit_code(message) == code


@pytest.mark.parametrize(
    ("every", "cron"),
    [
        (timedelta(minutes=1), "* * * * *"),
        (timedelta(minutes=5), "*/5 * * * *"),
        (timedelta(minutes=60), "0 * * * *"),
        (timedelta(hours=6), "0 */6 * * *"),
        (timedelta(days=1), "0 0 * * *"),
        (timedelta(minutes=7), None),
        (timedelta(minutes=90), None),
        (timedelta(hours=5), None),
        (timedelta(days=2), None),
        (timedelta(seconds=90), None),
    ],
)
def test_a_duration_ticks_on_the_clock_only_where_it_divides_it(every: timedelta, cron: str | None):
    """`*/7` would jump from :56 to :00."""
    assert cron_of(every) == cron


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (Connection(conn_id="c", conn_type="http", host="https://airflow.example.com"), "https://airflow.example.com"),
        (Connection(conn_id="c", conn_type="http", host="127.0.0.1", port=8080), "http://127.0.0.1:8080"),
        (Connection(conn_id="c", conn_type="http", host="a", schema="https", port=443), "https://a:443"),
    ],
)
def test_the_api_connection_may_be_written_in_the_usual_ways(connection: Connection, url: str):
    """With the scheme in the host, or in the schema, with or without a port."""
    assert address(connection) == url
