"""What a run says of its dead letters, and how it travels from executors to the driver."""

from __future__ import annotations

import pytest

from frazil.batch.audit import Tolerance
from frazil.batch.facts import LETTERS_NAMED, Counts, DeadSample, NamedLetter, Staged, TableCounts
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.audit import named_letters
from frazil.run.state.context import tolerance_of

ORDERS = {
    "name": "orders",
    "source": {"topics": ["orders"]},
    "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
}


@pytest.mark.parametrize(
    ("dead_letters", "tolerance"),
    [
        ({}, Tolerance(0.1, 1000, None)),
        ({"tolerance": "none"}, Tolerance(1, 0, 0)),
        ({"tolerance": {"max_count": 9}, "on_exceed": "dead_letter_and_alert"}, Tolerance(0.1, 1000, 9, fails=False)),
    ],
)
def test_batch_is_judged_by_limits_of_the_file(dead_letters: dict[str, object], tolerance: Tolerance) -> None:
    """The audit takes what the pipeline file says."""
    assert tolerance_of(Pipeline.model_validate(ORDERS | {"dead_letters": dead_letters})) == tolerance


def staged(first: int, count: int) -> Staged:
    names = tuple(NamedLetter("BAD", "t", 0, offset) for offset in range(first, first + count))
    return Staged({("t", 0): Counts(count, 0, count)}, named=names, samples={"BAD": DeadSample("t", 0, first, "m")})


def test_logged_dead_letters_are_bounded() -> None:
    """Of two tasks together, a hundred letters are named and the rest counted; the first ones come first."""
    whole = staged(0, 70).merge(staged(70, 70))
    lines = list(named_letters(whole))

    assert len(lines) == LETTERS_NAMED + 1
    assert lines[0] == "dead letter BAD: topic t, partition 0, offset 0"
    assert lines[99:] == ["dead letter BAD: topic t, partition 0, offset 99", "and 40 more dead letters"]
    assert whole.samples["BAD"].offset == 0


def test_dead_letters_are_logged_only_on_request() -> None:
    """Without `log` nothing is named, so nothing is counted either."""
    assert list(named_letters(Staged({("t", 0): Counts(5, 0, 5)}))) == []


def test_dead_letters_of_several_tables_are_all_counted() -> None:
    """A record that fits no table has a letter of each: the log counts letters, and says of which table each is."""
    named = tuple(NamedLetter("BAD", "t", 0, 7, table) for table in ("a.b", "a.c"))
    tables = {table: TableCounts(5, 3, 2, 3) for table in ("a.b", "a.c")}
    whole = Staged({("t", 0): Counts(6, 3, 3)}, named=named, tables=tables, whole_dead=1)

    assert list(named_letters(whole)) == [
        "dead letter BAD of table a.b: topic t, partition 0, offset 7",
        "dead letter BAD of table a.c: topic t, partition 0, offset 7",
        "and 3 more dead letters",
    ]
    assert Staged.from_json(whole.to_json()) == whole


def test_logged_names_survive_the_way_to_the_driver() -> None:
    """Executors hand back text."""
    assert Staged.from_json(staged(0, 3).to_json()) == staged(0, 3)
