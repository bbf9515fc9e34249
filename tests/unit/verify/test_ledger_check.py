"""Ledgers that contradict themselves."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.verify.facts.ledger import parse_position, read_batches
from frazil.verify.facts.snapshot_facts import SnapshotFacts
from frazil.verify.ledger_check import closing_differences, ledger_differences
from tests.unit.verify.facts.test_coverage import FIRST, SECOND, START, batch, read


def differences_of(*rows: dict[str, Any]) -> list[str]:
    return [str(difference) for difference in ledger_differences(read(*rows))]


VANISHED = batch(2, "ingest", 10, 10, ranges="[]", skipped='[["t",0,10,20]]')
LETTERS = FIRST | {"role": "dead_letters", "table": "a.d", "rows": 0}


@pytest.mark.parametrize(
    "rows",
    [
        (START, FIRST, SECOND),
        (START, FIRST, LETTERS, SECOND),
        (START, FIRST, batch(2, "reset", 3, 3), batch(3, "ingest", 3, 9)),
        (START, FIRST, batch(2, "ingest", 14, 20, ranges='[["t",0,14,20]]', skipped='[["t",0,10,14]]')),
        (START, FIRST, batch(2, "replay", 10, 10, ranges='[["t",0,5,7]]', removed='[["t",0,5,7,0]]', rows=0)),
        (START, FIRST, VANISHED, batch(3, "ingest", 10, 20)),
        (START, FIRST, batch(5, "rewind", 7, 7), batch(6, "ingest", 7, 9)),
        (FIRST, batch(4, "settle", 10, 10, abandoned=3), batch(5, "ingest", 10, 12)),
    ],
)
def test_correct_ledger_passes(rows: tuple[dict[str, Any], ...]) -> None:
    """A correct ledger with every kind of batch has no difference."""
    assert differences_of(*rows) == []


def test_more_rows_than_records_pass_only_for_exploded_lists() -> None:
    """More rows than records are right only if lists were exploded; fewer rows are always wrong."""
    more, fewer = FIRST | {"rows": 9}, FIRST | {"rows": 4}

    assert len(differences_of(START, more)) == 1
    assert list(ledger_differences(read(START, more), {1})) == []
    assert len(list(ledger_differences(read(START, fewer), {1}))) == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((FIRST, SECOND), "begin with the batch of kind start"),
        ((START, SECOND), "batch 1 after batch 0"),
        ((START, FIRST, FIRST | {"batch": "other"}), "one batch of this number"),
        ((START, FIRST, FIRST), "one ledger row per table"),
        ((START, FIRST | {"role": "dead_letters"}), "a ledger row for the destination table"),
        ((START, FIRST | {"records_dead": 1, "records_written": 4}), "a ledger row for the dead_letters table"),
        ((START, FIRST | {"records_read": 6}), "an outcome for each of 6 records"),
        ((START, FIRST | {"records_read": 9, "records_written": 9, "rows": 9}), "at least 9 offsets"),
        ((START, FIRST | {"rows": 4}), "5 rows in its destination table"),
        ((START, FIRST, batch(2, "ingest", 11, 20)), "read on from offset 10"),
        ((START, FIRST, batch(2, "ingest", 10, 20, ranges='[["t",0,10,19]]', records_read=0)), "the position 19"),
        ((START, FIRST, batch(2, "replay", 12, 12, ranges='[["t",0,5,7]]', rows=0)), "the position 10"),
        ((START, FIRST, batch(2, "replay", 10, 10, ranges='[["t",0,5,7]]', rows=0)), "taken out"),
        (
            (START, FIRST, batch(2, "replay", 10, 10, ranges='[["t",0,5,7]]', removed='[["t",0,5,9,0]]', rows=0)),
            "('t', 0, 5, 9)",
        ),
        ((START, FIRST | {"position": SECOND["position"]}), "a position of batch 1"),
    ],
)
def test_incorrect_ledger_is_reported(rows: tuple[dict[str, Any], ...], message: str) -> None:
    """A gap or a repetition of numbers, wrong sums, and a jump of the position are reported."""
    assert any(message in line for line in differences_of(*rows)), differences_of(*rows)


def test_position_unknown_to_the_ledger_is_reported() -> None:
    """Snapshot and property must have the position of the last ledger row; after expiry only the property counts."""
    last, before = read(START, FIRST)[-1], read(START)[-1].position

    assert list(closing_differences(last, "a.b", last.position, last.position)) == []
    assert list(closing_differences(last, "a.b", None, last.position)) == []
    assert len(list(closing_differences(last, "a.b", before, last.position))) == 1
    assert len(list(closing_differences(last, "a.b", last.position, None))) == 1


@pytest.mark.parametrize("column", ["position", "ranges", "removed"])
def test_unreadable_row_is_an_error(column: str) -> None:
    """A text that can't be parsed is an error for a person."""
    with pytest.raises(Terminal, match=r"a\.l, batch 1"):
        read_batches([FIRST | {column: "[1]"}], "a.l")
    with pytest.raises(Terminal, match="holds no position"):
        parse_position("{}", "somewhere")


def test_replay_takes_nothing_out_of_a_merged_table() -> None:
    """A replay applies changes again to the rows of a merged table, and removes none."""
    again = batch(2, "replay", 10, 10, ranges='[["t",0,5,10]]', removed=None)

    assert len(list(ledger_differences(read(START, FIRST, again)))) == 1
    assert list(ledger_differences(read(START, FIRST, again), is_merged=True)) == []


def test_snapshots_that_a_rollback_removed_are_not_expected() -> None:
    """A rewind that allows duplicates removes nothing: batches between it and the one before it in the table are undone."""
    kinds = {1: "ingest", 2: "ingest", 3: "rewind", 4: "ingest", 5: "ingest"}
    rows = [batch(n, kind, 0, 1, snapshot_id=100 + n) for n, kind in kinds.items()]
    facts = SnapshotFacts("a.b", {n: (100 + n, {}) for n in (1, 3, 5)}, {100 + n: n for n in kinds})

    assert [difference.batch for difference in facts.differences(rows, ())] == [4]
