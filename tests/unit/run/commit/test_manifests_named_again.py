"""A destination that is named again: what resets passed by while the file did not name it goes when it comes again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.batch.changes import RemovedRange
from frazil.batch.position import BatchMark, Position, TopicPosition
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.commit.manifests import Batch, removed_on_return
from frazil.run.state.pipeline_state import PipelineState

NAME = "shop.audit"
BEFORE = Position(5, 1, "c", {"t": TopicPosition(None, (0, 0), (8, 3)), "u": TopicPosition(None, (0,), (6,))})


def pipeline(*, has_columns: bool = True) -> Pipeline:
    table = {"table": NAME, "columns": {"id": "long"}, **({} if has_columns else {"kafka_columns": False})}
    first = {"table": "shop.orders", "columns": {"id": "long"}}
    return Pipeline.model_validate({"name": "orders", "source": {"topics": ["t", "u"]}, "destinations": [first, table]})


def moved(t: tuple[int, ...], u: tuple[int, ...] = (6,), *, since: int = 0) -> Position:
    """Where a reset leads; a topic that does not move keeps where its last batch began."""
    topics = {"t": TopicPosition(None, t, t, since=since)}
    topics["u"] = BEFORE.topics["u"] if u == (6,) else TopicPosition(None, u, u)
    return Position(6, 2, "c", topics)


def again(batch: Batch, epoch: int = 0, *, has_columns: bool = True) -> dict[tuple[str, int | None], tuple[int, int]]:
    """Per partition from where on which batches' rows go, of a table whose last batch was of that epoch."""
    standing = PipelineState(BEFORE, BatchMark(5, "b", 1), None, None, None, {NAME: BatchMark(2, "a", epoch)})
    ranges = removed_on_return(pipeline(has_columns=has_columns), standing, NAME, batch)
    assert all(removed.end is None for removed in ranges)
    return {(removed.topic, removed.partition): (removed.start, removed.since) for removed in ranges}


def reset(after: Position, removed: tuple[RemovedRange, ...] = ()) -> Batch:
    return Batch("reset", "r", after, "now", removed_from={NAME: removed} if removed else {})


BACK = (RemovedRange("t", 0, 2, None, 0),)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (reset(moved((9, 4), (7,))), {("t", 0): (9, 0), ("t", 1): (4, 0), ("u", 0): (7, 0)}),
        (reset(moved((2, 1), (0,))), {("t", 0): (8, 0), ("t", 1): (3, 0), ("u", 0): (6, 0)}),
        (reset(moved((2, 9))), {("t", 0): (8, 0), ("t", 1): (9, 0), ("u", 0): (6, 0)}),
        (reset(moved((2, 3)), BACK), {("t", 0): (2, 0), ("t", 1): (3, 0), ("u", 0): (6, 0)}),
        (reset(moved((0, 0), since=6)), {("t", 0): (0, 6), ("t", 1): (0, 6), ("u", 0): (6, 0)}),
        (reset(moved((9, 4, 0))), {("t", 0): (9, 0), ("t", 1): (4, 0), ("t", 2): (0, 0), ("u", 0): (6, 0)}),
    ],
    ids=["forward", "duplicates allowed", "both ways", "back", "another topic", "a new partition"],
)
def test_reset_of_an_earlier_table_keeps_each_row_once(
    batch: Batch, expected: dict[tuple[str, int], tuple[int, int]]
) -> None:
    """What an earlier reset lets come again goes; what this one moves back over, and what rests, goes by its own order."""
    assert again(batch) == expected


def test_rows_outside_of_every_reset_stay() -> None:
    """The mark is of the present epoch, so nothing comes again but what this reset takes out itself."""
    assert again(reset(moved((9, 4))), epoch=1) == {}
    assert again(reset(moved((2, 3)), BACK), epoch=1) == {}


def test_reset_that_allows_duplicates_needs_no_coordinates() -> None:
    """A reset that allows duplicates is what a table without Kafka columns is told to do."""
    assert again(reset(moved((2, 1))), has_columns=False) == {}


def test_batch_removes_rows_that_it_reads_again() -> None:
    """Where a batch begins, rows of before the reset go."""
    topics = {"t": TopicPosition(None, (4, 1), (9, 9))}
    batch = Batch("ingest", "r", replace(BEFORE, n=6, topics=topics), "now")

    assert again(batch) == {("t", 0): (4, 0), ("t", 1): (1, 0)}
    assert again(batch, epoch=1) == {}
