"""Named schedules: another config, another run, a reset, a changed table at the worst moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from frazil.batch.position import EARLIEST, RunRequest, Target
from frazil.errors import Retryable, Terminal
from frazil.failpoints import Failpoint
from frazil.run.batches.plan import plan_run
from tests.chaos import child
from tests.chaos.lab import LEDGER, LENIENT, LETTERS, ORDERS, STRICT, TABLES, Lab, bad, doubtful, good
from tests.chaos.scenes import BATCH, FIRST, INGEST, READ, one_now

MakeLab = Callable[..., Lab]
P = Failpoint


@pytest.mark.parametrize(
    "point", one_now(P.DECIDE_COMMITTED, P.FOLLOW_COMMITTING, P.FOLLOW_COMMITTED, P.RECORD_COMMITTING)
)
@pytest.mark.parametrize(("before", "after"), [(LENIENT, STRICT), (STRICT, LENIENT)])
def test_half_published_batch_finishes_under_its_own_config(
    lab: MakeLab, before: dict[str, str], after: dict[str, str], point: Failpoint
) -> None:
    """What was decided is finished as it was decided: a doubtful record keeps the outcome of the old rules."""
    orders = lab(**before)
    orders.run()
    orders.produce([good(1), doubtful(2), bad(3), None])
    orders.crash(point)

    orders.configure(**after)
    orders.run()

    orders.assert_clean()
    is_row = doubtful(2) not in {letter["value"] for letter in orders.rows(LETTERS)}
    assert is_row == (before is LENIENT)


@pytest.mark.parametrize("point", one_now(P.STAGED, P.PLANNED, P.DECIDE_COMMITTING))
def test_run_whose_end_rival_passed_succeeds_without_landing(lab: MakeLab, point: Failpoint) -> None:
    """A run whose end a rival passed has nothing left to do, whatever it has staged, and says so by succeeding."""
    orders = lab(max_records=BATCH)
    early = orders.pause(point, 1, INGEST.prepare(orders))
    orders.fill(5000, 70)
    orders.run()
    landed = len(orders.batches("ingest"))

    early.resume()
    early.succeed()

    assert len(orders.batches("ingest")) == landed
    orders.assert_clean()


def test_run_with_further_end_lands_rest_after_rival(lab: MakeLab) -> None:
    """A rival takes the first part of what was staged; the run plans its batch again, lands the rest, and says what that cost."""
    orders = lab()
    orders.fill(0)
    far = orders.pause(P.DECIDE_COMMITTING, 2)  # the first one is the start position's
    target = Target("offsets", offsets={orders.topic: {0: 7}})
    orders.run(partial(child.run, request=RunRequest("near", end=target)))

    far.resume()

    assert "refused, planning again" in far.succeed()
    assert [batch["records_read"] for batch in orders.batches("ingest")] == [7, 17]
    assert ["redo" in json.loads(batch["phases"]) for batch in orders.batches("ingest")] == [False, True]
    orders.assert_clean()


@pytest.mark.parametrize("point", one_now(*reversed(FIRST.points)))
def test_start_latest_on_idle_topic_is_resolved_once(lab: MakeLab, point: Failpoint) -> None:
    """From the first commit on, `latest` is a number: what arrives after it lands, whoever is killed."""
    orders = lab(start="latest")
    orders.fill(0)
    orders.values.clear()  # older than the start
    orders.crash(point)
    if point in (P.MANIFEST_WRITTEN, P.DECIDE_COMMITTING):
        orders.run()  # nothing was decided: this one resolves it
    orders.fill(100)

    orders.run()

    orders.assert_clean()


@pytest.mark.short(ORDERS)
@pytest.mark.parametrize("table", [ORDERS, LETTERS])
def test_partition_spec_changed_before_commit_makes_run_stage_again(lab: MakeLab, table: str) -> None:
    """Files staged for the old spec are not committed under the new one: the batch is staged again."""
    orders = lab()
    running = orders.pause(P.AUDITED, 1, INGEST.prepare(orders))
    column = {ORDERS: "id", LETTERS: "offset"}[table]
    with orders.load(table).update_spec() as spec:
        spec.add_field(column, BucketTransform(4), "bucket")

    running.resume()

    assert "refused, planning again" in running.succeed()
    orders.assert_clean()


def test_column_replaced_before_commit_makes_run_stage_again(lab: MakeLab) -> None:
    """Values are not committed under the id of a column that is gone: a new one of that name gets them, staged again."""
    orders = lab()
    orders.fill(0)
    running = orders.pause(P.AUDITED)
    with orders.load().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("name")
    with orders.load().update_schema() as schema:
        schema.add_column("name", StringType())

    running.resume()

    assert "refused, planning again" in running.succeed()
    orders.assert_clean()


def test_batch_lands_by_field_id_after_column_rename(lab: MakeLab) -> None:
    """A batch lands by field id, as Iceberg means it; the next plan misses the name, and goes on when it is back."""
    orders = lab()
    running = orders.pause(P.AUDITED, 1, INGEST.prepare(orders))
    with orders.load().update_schema() as schema:
        schema.rename_column("name", "title")
    running.resume()
    running.wait()

    ended = orders.refused()

    assert (ended.code, "column name" in ended.output) == (Terminal.exit_code, True), ended.output
    with orders.load().update_schema() as schema:
        schema.rename_column("title", "name")
    orders.assert_at_rest()
    orders.assert_clean()


@pytest.mark.short(LETTERS)
@pytest.mark.parametrize("table", TABLES)
def test_harmless_column_added_meanwhile_does_not_stop_batch(lab: MakeLab, table: str) -> None:
    """A column that nobody fills yet is no reason to stage again, in any table."""
    orders = lab()
    running = orders.pause(P.AUDITED, 1, INGEST.prepare(orders))
    with orders.load(table).update_schema() as schema:
        schema.add_column("note", StringType())

    running.resume()

    assert "refused" not in running.succeed()
    orders.assert_clean()


@pytest.mark.parametrize("point", one_now(P.FOLLOW_COMMITTED, P.RECORD_COMMITTING, P.DECIDE_COMMITTED))
def test_reset_finishes_decided_batch_of_run_before_it_moves_position(lab: MakeLab, point: Failpoint) -> None:
    """The reset finishes the batch before it moves the position; the run notices the new epoch and ends."""
    orders = lab(max_records=BATCH)
    running = orders.pause(point, 1, INGEST.prepare(orders))
    orders.run(orders.reset(EARLIEST))

    running.resume()
    ended = running.wait()

    assert (ended.code, "epoch" in ended.output) == (Retryable.exit_code, True), ended.output
    orders.run()
    orders.assert_clean()


@pytest.mark.parametrize("point", one_now(P.STAGED, P.DECIDE_COMMITTED, P.FOLLOW_COMMITTED))
def test_second_destination_gets_every_batch_from_edit_on(lab: MakeLab, point: Failpoint) -> None:
    """A table that an edit adds gets every record from the next batch on, none of the earlier ones, through a kill."""
    orders = lab()
    orders.fill(0)
    orders.run()
    orders.configure(more="  - {table: shop.numbers, columns: {id: {type: long, required: true}}}\n")
    orders.fill(100)

    orders.crash(point)
    orders.run()

    assert sorted(row["id"] for row in orders.rows("shop.numbers")) == [*range(100, 120), 900_100]
    orders.assert_clean()


def test_renamed_pipeline_lands_nothing_twice(lab: MakeLab) -> None:
    """A new name in the file is no new beginning beside the rows of the old one; with the old name it goes on."""
    orders = lab()
    orders.fill(0)
    orders.run()
    path = orders.project.pipelines_folder / "orders.yaml"
    text = path.read_text()
    path.write_text(text.replace("name: orders\n", "name: sales\n", 1))

    with pytest.raises(Terminal, match="pipeline orders landed topic"):
        plan_run(orders.project, orders.project.pipeline("sales"), RunRequest("renamed"))

    path.write_text(text)
    orders.fill(100)
    orders.run()
    orders.assert_clean()


@pytest.mark.parametrize("point", one_now(P.DECIDE_COMMITTING, *READ[1:], P.FOLLOW_COMMITTING, P.RECORD_COMMITTING))
def test_foreign_append_between_any_two_steps_disturbs_no_run(lab: MakeLab, point: Failpoint) -> None:
    """Others' rows in the tables are neither an obstacle nor a reason to do anything again."""
    orders = lab()
    running = orders.pause(point, 1, INGEST.prepare(orders))
    orders.foreign_commit(ORDERS, rows=3)
    for table in (LETTERS, LEDGER):
        orders.foreign_commit(table)

    running.resume()

    assert "refused" not in running.succeed()
    assert orders.assert_clean().foreign == 3


def test_commit_on_another_branch_does_not_refuse_batch(lab: MakeLab) -> None:
    """Somebody's branch grows while a batch is decided: main did not move, so nothing is done again."""
    orders = lab()
    running = orders.pause(P.DECIDE_COMMITTING, 1, INGEST.prepare(orders))
    table = orders.load()
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "audit").commit()
    table.append(orders.load().scan(limit=1).to_arrow(), branch="audit")

    running.resume()

    assert "refused" not in running.succeed()
    orders.assert_clean()
    assert set(orders.load().metadata.refs) == {"main", "audit"}
