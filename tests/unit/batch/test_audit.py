"""The audit before a batch is decided, and what staging hands to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.audit import Tolerance, audit, check_identity
from frazil.batch.facts import ClusterFacts, Counts, DeadSample, Range, Staged, StagedFile
from frazil.errors import Retryable, Terminal
from tests.unit.batch.commands import ResetCommand, reset_command
from tests.unit.batch.kafka_facts import facts_of, plan_of, position_at

RANGES = (Range("orders", 0, 0, 6), Range("orders", 1, 10, 14), Range("orders", 0, 6, 8))
"""Partition 0 was split over two tasks: 8 offsets; partition 1 has 4."""

EVERYTHING = Tolerance(max_rate=1, min_records=0, max_count=None)


def files(rows: int) -> tuple[StagedFile, ...]:
    return (StagedFile("a", rows - 1, 10, "{}"), StagedFile("b", 1, 10, "{}"))


GOOD = Staged(
    {("orders", 0): Counts(7, 5, 2, 0), ("orders", 1): Counts(4, 3, 0, 1)},
    {"bad_json": 2},
    {"rows": files(8), "letters": files(2)},
)


def staged(of_partition_0: Counts) -> Staged:
    return replace(GOOD, counts={**GOOD.counts, ("orders", 0): of_partition_0})


def test_sound_batch_is_published() -> None:
    """Gaps in the log (compaction, transaction markers) make fewer records than offsets: that is no fault."""
    audit(RANGES, GOOD, ("rows",), "letters", EVERYTHING)
    audit(RANGES, Staged(files={"rows": (), "letters": ()}), ("rows",), "letters", EVERYTHING)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (staged(Counts(7, 5, 1, 0)), r"orders, partition 0: 7 records read, 6 outcomes"),
        (staged(Counts(7, 5, 2, 1)), r"orders, partition 0: 7 records read, 8 outcomes"),
        (staged(Counts(9, 5, 2, 2)), r"orders, partition 0: 9 records read from 8 offsets"),
        (
            replace(GOOD, counts={**GOOD.counts, ("orders", 2): Counts(1, 0, 0, 1)}),
            r"partition 2: 1 records read from 0 offsets",
        ),
        (replace(GOOD, files={"rows": files(7), "letters": files(2)}), r"table rows: 8 records, 7 rows"),
        (replace(GOOD, files={"rows": files(9), "letters": files(2)}), r"table rows: 8 records, 9 rows"),
        (replace(GOOD, files={"rows": files(8), "letters": files(3)}), r"table letters: 2 records, 3 rows"),
        (replace(GOOD, files={"rows": files(8)}), r"table letters: 2 records, 0 rows"),
        (replace(GOOD, files={**GOOD.files, "elsewhere": files(1)}), r"table elsewhere was not asked for"),
    ],
    ids=[
        "lost",
        "doubled",
        "beyond",
        "foreign partition",
        "rows lost",
        "rows doubled",
        "letters",
        "no letters",
        "foreign table",
    ],
)
def test_numbers_that_do_not_add_up_are_refused(wrong: Staged, message: str) -> None:
    """Each kind of mismatch stops the batch, with the numbers of both sides."""
    with pytest.raises(Terminal, match=message):
        audit(RANGES, wrong, ("rows",), "letters", EVERYTHING)


def test_all_mismatches_are_in_one_message() -> None:
    """All problems stand in one message: a person debugs once."""
    wrong = replace(staged(Counts(9, 5, 2, 1)), files={"rows": files(1), "letters": files(2)})

    with pytest.raises(Terminal) as caught:
        audit(RANGES, wrong, ("rows",), "letters", EVERYTHING)

    assert caught.value.message.count("\n") == 3


def dead(count: int, read: int) -> tuple[tuple[Range, ...], Staged]:
    letters = (StagedFile("l", count, 1, "{}"),)
    rows = (StagedFile("r", read - count, 1, "{}"),)
    whole = Staged(
        {("t", 0): Counts(read, read - count, count, 0)}, {"bad_json": count}, {"rows": rows, "letters": letters}
    )
    return (Range("t", 0, 0, read),), whole


@pytest.mark.parametrize(
    ("count", "read", "tolerance"),
    [
        (100, 1000, Tolerance(0.1, 1000, None)),
        (300, 1000, Tolerance(0.3, 1000, None)),
        (999, 999, Tolerance(0.1, 1000, None)),
        (5, 10, Tolerance(1, 0, 5)),
        (0, 1000, Tolerance(0, 0, 0)),
        (1000, 1000, Tolerance(1, 0, None)),
    ],
)
def test_batch_exactly_at_the_limit_is_published(count: int, read: int, tolerance: Tolerance) -> None:
    """The limits are the largest values that pass; smaller batches are not judged by their rate."""
    ranges, whole = dead(count, read)

    audit(ranges, whole, ("rows",), "letters", tolerance)


@pytest.mark.parametrize(
    ("count", "read", "tolerance", "allowed"),
    [
        (101, 1000, Tolerance(0.1, 1000, None), "at most 10.0%"),
        (1000, 1000, Tolerance(0.1, 1000, None), "at most 10.0%"),
        (6, 10, Tolerance(1, 0, 5), "at most 5 "),
        (6, 10, Tolerance(0.1, 1000, 5), "at most 5 "),
        (1, 1000, Tolerance(0, 1000, None), "at most 0.0%"),
        (1, 1, Tolerance(1, 0, 0), "at most 0 "),
    ],
)
def test_batch_just_above_the_limit_is_refused(count: int, read: int, tolerance: Tolerance, allowed: str) -> None:
    """One letter more than tolerated and nothing is published; the message has counts, limit and codes."""
    ranges, whole = dead(count, read)

    with pytest.raises(Terminal, match=rf"{count} of {read} .*{allowed}.*bad_json {count}"):
        audit(ranges, whole, ("rows",), "letters", tolerance)


@pytest.mark.parametrize(
    ("good", "tolerance", "is_published"),
    [
        (0, Tolerance(0.1, 1000, None), True),
        (100, Tolerance(0.1, 1000, None), True),
        (101, Tolerance(0.1, 1000, None), False),
        (0, Tolerance(0.1, 1000, 499), False),
        (0, Tolerance(1, 0, 0), False),
    ],
)
def test_records_of_tables_that_are_not_made_count_by_their_number_alone(
    good: int, tolerance: Tolerance, is_published: bool
) -> None:
    ranges, whole = dead(500 + good, 1000)
    whole = replace(whole, dead_codes={"TABLE_NOT_MADE": 500, "bad_json": good})

    if not is_published:
        with pytest.raises(Terminal, match="nothing was published") as refused:
            audit(ranges, whole, ("rows",), "letters", tolerance)
        assert "dead-letters replay" not in refused.value.message  # there is no letter of them
        return
    report = str(audit(ranges, whole, ("rows",), "letters", tolerance))
    assert "TABLE_NOT_MADE 500" in report
    assert "wait for: frazil dead-letters replay" in report


def test_first_bad_record_is_named() -> None:
    """Whoever is called at night wants to look at one: the first by its coordinates, whatever its code."""
    ranges, whole = dead(2, 10)
    samples = {"bad_json": DeadSample("t", 0, 7, "cut off"), "bad_type": DeadSample("t", 0, 3, "id: expected a long")}

    with pytest.raises(Terminal) as caught:
        audit(ranges, replace(whole, samples=samples), ("rows",), "letters", Tolerance(1, 0, 0))

    first = "the first is topic t, partition 0, offset 3: bad_type: id: expected a long"
    assert caught.value.message.endswith(f"at most 0 are tolerated (bad_json 2); {first}")


def test_batch_above_alert_limit_is_published_and_reported() -> None:
    """Where that is wanted, a batch above the limit is published, and what was too much is told."""
    alerting = Tolerance(0.1, 0, None, fails=False)

    assert audit(*dead(1, 10), ("rows",), "letters", alerting) is None
    assert audit(*dead(2, 10), ("rows",), "letters", alerting) == (
        "2 of 10 records (20.0%), at most 10.0% are tolerated (bad_json 2)"
    )


@pytest.mark.parametrize(
    ("tolerance", "dead", "lost"),
    [
        (Tolerance(1, 0, 0), 0, False),
        (Tolerance(1, 0, 0), 1, True),
        (Tolerance(0.1, 0, 5), 5, False),
        (Tolerance(0.1, 0, 5), 6, True),
        (Tolerance(0, 0, None), 10**9, False),
        (Tolerance(1, 0, 0, fails=False), 1, False),
    ],
    ids=["none", "one too many", "at the limit", "above it", "a rate needs the whole", "alert only"],
)
def test_batch_is_given_up_early_only_by_a_failing_count(tolerance: Tolerance, dead: int, lost: bool) -> None:
    """Only a count, and only where it fails, says so before all records are read."""
    assert tolerance.is_lost(dead) is lost


@pytest.mark.parametrize("tolerance", [Tolerance(1, 0, 0), Tolerance(1, 0, 9), EVERYTHING])
def test_batch_not_read_to_its_end_is_refused(tolerance: Tolerance) -> None:
    """A batch that stopped is refused whatever its numbers say, and even if the tolerance were another one by now."""
    with pytest.raises(Terminal, match="nothing was published"):
        audit(RANGES, replace(GOOD, stopped=True), "rows", "letters", tolerance)
    with pytest.raises(Terminal, match="nothing was published"):
        audit(RANGES, GOOD.merge(Staged(stopped=True)), "rows", "letters", tolerance)


def test_record_that_stopped_a_batch_is_named() -> None:
    """Code, coordinates and message of the first one, whichever task met it first, and what to do."""
    later, first = DeadSample("t", 1, 2, "x"), DeadSample("t", 0, 9, "cut off")
    met = Staged(samples={"bad_json": later}).merge(Staged(samples={"bad_json": first}, stopped=True))

    with pytest.raises(Terminal) as caught:
        audit(RANGES, met, "rows", "letters", Tolerance(1, 0, 0))

    named = "none is tolerated, so reading stopped; the first is topic t, partition 0, offset 9: bad_json: cut off"
    assert caught.value.message == f"too many dead letters, nothing was published: {named}"
    assert caught.value.next_step is not None
    assert "dead_letters.tolerance" in caught.value.next_step


PLAN = plan_of(position_at(0), facts_of((0, 5, 5)))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (replace(facts_of((0, 5, 5)), cluster_id="other"), "from cluster-a to other"),
        (facts_of((0, 5, 5), topic_id="id-2"), r"orders was recreated .*id-1, found id-2"),
    ],
)
def test_topic_recreated_while_staging_is_refused(facts: ClusterFacts, message: str) -> None:
    """What was read came from another incarnation, or another cluster, than what was planned."""
    check_identity(PLAN, facts_of((3, 9, 9)), {"orders"}, "p")

    with pytest.raises(Terminal, match=message):
        check_identity(PLAN, facts, {"orders"}, "p")


def test_refusal_of_recreated_topic_has_the_command_that_resolves_it() -> None:
    """The next step is the whole command, with pipeline and topic."""
    with pytest.raises(Terminal) as error:
        check_identity(PLAN, facts_of((0, 5, 5), topic_id="id-2"), {"orders"}, "p")

    assert reset_command(error.value) == ResetCommand("p", "earliest", "orders")


def test_topic_without_staged_ranges_does_not_stop_a_batch() -> None:
    """Only topics that were staged are looked at: an idle one may go, and is asked about at the next plan."""
    empty_cluster = ClusterFacts("cluster-a", {})
    check_identity(PLAN, empty_cluster, (), "p")

    with pytest.raises(Retryable, match="orders was deleted while it was read"):
        check_identity(PLAN, empty_cluster, {"orders"}, "p")


counts = st.builds(Counts, *[st.integers(0, 1000)] * 4)
keys = st.tuples(st.sampled_from(["orders", "a,b", "ü"]), st.integers(0, 3))
staged_files = st.lists(
    st.builds(StagedFile, st.text(max_size=5), st.integers(0, 9), st.integers(0, 9), st.text(max_size=5)), max_size=3
)
parts = st.builds(
    Staged,
    st.dictionaries(keys, counts, max_size=4),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 9), max_size=2),
    st.dictionaries(st.sampled_from(["rows", "letters"]), staged_files.map(tuple), max_size=2),
    st.integers(0, 2**40),
    stopped=st.booleans(),
)


def test_name_that_is_half_a_character_survives_the_way_from_an_executor() -> None:
    """JSON has such names, and no UTF-8: a task that can't tell of one would stop its pipeline for good."""
    staged = Staged(untyped={"shop.orders": frozenset({("\ud800",)})}, ages={3: 2})

    assert Staged.from_json(staged.to_json()) == staged


@given(parts)
def test_staged_facts_survive_the_way_from_an_executor(part: Staged) -> None:
    """Partition numbers stay numbers and files keep their order."""
    assert Staged.from_json(part.to_json()) == part


@given(st.lists(parts, max_size=4))
def test_merged_tasks_keep_all_counts_and_files(whole: list[Staged]) -> None:
    """The sum over tasks is the batch, whichever partitions and tables each task had."""
    merged = Staged.merged(whole)

    assert merged.total == sum((part.total for part in whole), Counts())
    assert merged.bytes == sum(part.bytes for part in whole)
    assert sum(merged.dead_codes.values()) == sum(sum(part.dead_codes.values()) for part in whole)
    for table in ("rows", "letters"):
        assert merged.files.get(table, ()) == tuple(file for part in whole for file in part.files.get(table, ()))
        assert merged.rows(table) == sum(part.rows(table) for part in whole)
