"""Commits of the sink's coordinator that fail, come twice or come late, and what they are here: on both catalogs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from frazil.batch.facts import Staged
from frazil.errors import Retryable
from frazil.failpoints import Failpoint
from frazil.run.staging.stage import StageOrder, stage_inline
from tests.integration.sink_scenarios.conftest import MakePlace, Place
from tests.integration.sink_scenarios.ending import assert_ends
from tests.integration.sink_scenarios.scenario import Scenario, TableContents, sink_records
from tests.operations import LEDGER, LETTERS, lake

pytestmark = pytest.mark.embedded

Meanwhile = Callable[..., None]
P = Failpoint

EVENTS = "shop.events"

LETTER = Scenario(
    "a row and a dead letter",
    "TestCoordinator.testCommitAppend",
    "destinations: [{table: shop.events, columns: {id: int}}]",
    (sink_records({"id": 1}, {"id": 2**40}, {"id": 3}),),
    {EVENTS: TableContents({"id": "int"}, ((1,), (3,)))},
    letters=((1, None, "OUT_OF_RANGE"),),
)
"""The table decides, the dead letters follow, the ledger records."""

STEPS = pytest.mark.parametrize(
    ("step", "table"), [("decide", EVENTS), ("follow", LETTERS), ("record", LEDGER)], ids=("decide", "follow", "record")
)


HASTY = {"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}
"""Table properties: a commit that lost against another one is tried again at once."""


def begun(place: MakePlace) -> Place:
    """A place whose next commits are those of its records."""
    new_place = place(LETTER)
    new_place.run()
    for table in (EVENTS, LETTERS, LEDGER):
        with lake(new_place.shop).load_table(table).transaction() as transaction:
            transaction.set_properties(HASTY)
    (records,) = LETTER.rounds
    new_place.send(records)
    return new_place


def commit_elsewhere(place: Place, table: str) -> None:
    """Somebody else's snapshot, without rows."""
    loaded = lake(place.shop).load_table(table)
    loaded.append(schema_to_pyarrow(loaded.schema(), include_field_ids=False).empty_table())


@STEPS
def test_commits_that_fail_three_times_neither_lose_nor_double_rows(
    place: MakePlace, meanwhile: Meanwhile, step: str, table: str
) -> None:
    """Three in a row lose against somebody else's: the run tries again, and lands its batch once.

    After the sink's TestCoordinator.testCommitBoundedRetry, testCommitCounterResetsOnSuccess.
    """
    place_now = begun(place)
    meanwhile(lambda: commit_elsewhere(place_now, table), P(f"{step}.committing"), P(f"{step}.retrying"), times=3)

    assert place_now.run().batches == 1

    summaries = [snapshot.summary for snapshot in lake(place_now.shop).load_table(table).metadata.snapshots]
    assert (
        sum(summary is not None and "frazil.batch" not in summary.additional_properties for summary in summaries) == 3
    )
    assert_ends(place_now)


@STEPS
def test_commits_that_always_fail_name_their_table(
    place: MakePlace, meanwhile: Meanwhile, step: str, table: str
) -> None:
    """The run fails and names the table; before the decision nothing is published, after it the others have their parts.

    After the sink's TestCoordinator.testCommitFailedExceptionPropagates, testPartialCommitFailureMetric.
    """
    place_now = begun(place)
    meanwhile(lambda: commit_elsewhere(place_now, table), P(f"{step}.committing"), P(f"{step}.retrying"), times=1000)

    with pytest.raises(Retryable, match=table):
        place_now.run()

    shown = len(place_now.shop.rows(EVENTS)), len(place_now.shop.rows(LETTERS))
    assert shown == {"decide": (0, 0), "follow": (2, 0), "record": (2, 1)}[step]
    meanwhile(lambda: None)
    place_now.run()
    assert_ends(place_now)


@pytest.mark.parametrize(
    "point",
    [P.DECIDE_COMMITTING, P.DECIDE_COMMITTED, P.FOLLOW_COMMITTING, P.FOLLOW_COMMITTED, P.RECORD_COMMITTING],
)
def test_leader_that_slept_does_not_repeat_commits_of_its_successor(
    place: MakePlace, meanwhile: Meanwhile, point: Failpoint
) -> None:
    """A second run does all the work while the first one is paused: what the first one still wants is refused, or done.

    After the sink's TestCommitState.testIsCommitReadyIgnoresZombieCoordinatorPayloads, TestCoordinator.testCoordinatorCommittedOffsetValidation,
    and, in Tabular's, testShouldDeduplicateDataFilesBeforeAppending.
    """
    place_now = begun(place)
    ran = []
    meanwhile(lambda: ran.append(place_now.run()), point)

    place_now.run()

    assert len(ran) == 1
    assert_ends(place_now)


def test_files_of_replaced_partition_spec_are_not_committed(place: MakePlace) -> None:
    """The table is partitioned otherwise before the decision: the batch is staged again, for the table as it is.

    After the sink's TestCoordinator.testCommitError.
    """
    place_now, staged = begun(place), []

    def stage(order: StageOrder) -> Staged:
        staged.append(stage_inline(order))
        if not staged[1:]:
            with lake(place_now.shop).load_table(EVENTS).update_spec() as update:
                update.add_identity("id")
        return staged[-1]

    place_now.shop.run(stage=stage)

    assert len(staged) == 2
    table = lake(place_now.shop).load_table(EVENTS)
    assert {task.file.spec_id for task in table.scan().plan_files()} == {table.spec().spec_id}
    assert [field.name for field in table.spec().fields] == ["id"]
    rows = [(row["id"], row["_kafka_offset"]) for row in place_now.shop.rows(EVENTS)]
    assert rows == [(1, 0), (3, 2)]


def test_run_without_records_creates_no_snapshot(place: MakePlace) -> None:
    """Runs without records commit nothing, on no table.

    After the sink's TestCoordinator.testCommitNoFiles.
    """
    place_now = begun(place)
    place_now.run()
    before = place_now.publishes

    assert [place_now.run().batches, place_now.run().batches, place_now.publishes - before] == [0, 0, 0]
    assert_ends(place_now)
