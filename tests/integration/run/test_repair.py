"""A follower or the ledger loses what it was given: the pipeline stops by name, and the command that it names ends that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.table import delete_files
from frazil.iceberg.commit.summary_state import MANIFEST_KEY
from frazil.report.history import history
from frazil.verify.check import verify
from tests.fan_out import expected, fanned_out, fill, outcomes
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    Killed,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    letters,
    offsets,
    order,
    places,
    position,
    remake,
    repair,
    replay,
    reset,
    roll_back,
    send,
)
from tests.refusals import named_command, refused

MakeShop = Callable[..., Any]
AtFailpoint = Callable[..., Any]
Damage = Callable[[Any, str], None]

AUDIT = "shop.audit"
DAMAGES: dict[str, Damage] = {"dropped": drop, "made anew": remake, "rolled back": roll_back}


def bad_places(shop: Any) -> list[tuple[int, int]]:
    """Partition and offset of each dead letter."""
    return [(partition, offset) for partition, offset, _ in letters(shop)]


def delete_before(shop: Any, offset: int) -> None:
    """Have Kafka hold nothing before an offset of partition 0."""
    admin = AdminClient(dict(shop.cluster.properties))
    (future,) = admin.delete_records([TopicPartition(shop.topic, 0, offset)]).values()
    future.result()


@pytest.mark.short("rolled back")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_lost_dead_letters_are_restored(shop: MakeShop, damage: Damage) -> None:
    """Refused with the command; it records what was lost at most, and a replay brings it back."""
    orders = landed(shop)
    damage(orders, LETTERS)
    send(orders, {0: [order(12)]})
    assert refused(orders) == ["repair", "orders", LETTERS]

    assert repair(orders, LETTERS) is not None

    (row,) = [row for row in ledger(orders, "repair") if row["table"] == LETTERS]
    first = 2 if damage is roll_back else 0
    lost = [[orders.topic, 0, 8 if damage is roll_back else 0, 12]]
    assert (row["n"], row["reason"], row["started_by"]) == (4, "a test", "cli:tester@here")
    assert (row["lost_from"], row["skipped"]) == (
        first + 1 if first else 0,
        str(lost).replace("'", '"').replace(" ", ""),
    )
    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert [batch.kind for batch in history(orders.project, orders.pipeline)][-2:] == ["repair", "replay"]
    assert orders.run().read == 1
    assert_clean(orders)
    assert repair(orders, LETTERS) is None


@pytest.mark.short("dropped", "rolled back")
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_lost_destination_is_filled_again(shop: MakeShop, damage: Damage) -> None:
    """Of several destinations one lost its rows: all of them have every record once afterwards."""
    orders = fanned_out(shop)
    for first in (0, 10):
        fill(orders, range(first, first + 10))
        orders.run()
    damage(orders, AUDIT)
    assert refused(orders) == ["repair", "orders", AUDIT]

    repair(orders, AUDIT)

    assert outcomes(orders) == expected(range(20))
    assert orders.run().batches == 0
    assert_clean(orders)
    for _ in range(2):  # also what a repair brought back can be lost
        drop(orders, AUDIT)
        repair(orders, AUDIT)
    assert outcomes(orders) == expected(range(20))
    assert_clean(orders)


@pytest.mark.short("dropped")
@pytest.mark.parametrize("damage", [drop, roll_back], ids=["dropped", "rolled back"])
def test_lost_ledger_is_written_again(shop: MakeShop, damage: Damage) -> None:
    """From the manifests that the closing table's snapshots name."""
    orders = landed(shop)
    before = ledger(orders)
    damage(orders, LEDGER)
    assert refused(orders) == ["repair", "orders", LEDGER]

    planned = repair(orders, LEDGER)

    assert planned is not None
    assert planned.loss is not None
    assert planned.loss.batches == ()
    columns = ("n", "batch", "table", "kind", "ranges", "position", "snapshot_id", "records_dead", "run")
    assert [[row[name] for name in columns] for row in ledger(orders) if row["kind"] != "repair"] == [
        [row[name] for name in columns] for row in before
    ]
    send(orders, {0: [order(12), bad(13)]})
    orders.run()
    assert_clean(orders)


def test_lost_ledger_is_written_again_from_manifests_that_no_snapshot_names(shop: MakeShop) -> None:
    """B1: batches took the snapshots of earlier ones out; each manifest names the one before it."""
    orders = landed(shop)
    before = [(row["n"], row["table"], row["ranges"]) for row in ledger(orders)]
    table = lake(orders).load_table(ORDERS)
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.metadata.snapshots][:-1]).commit()
    drop(orders, LEDGER)

    planned = repair(orders, LEDGER)

    assert planned is not None
    assert planned.loss is not None
    assert planned.loss.batches == ()
    assert [(row["n"], row["table"], row["ranges"]) for row in ledger(orders) if row["kind"] != "repair"] == before


def test_batches_without_manifest_are_given_up_by_number(shop: MakeShop) -> None:
    """Then nobody knows what a table lost: a repair of the dead letters reads everything again."""
    orders = landed(shop)
    table = lake(orders).load_table(ORDERS)
    old = table.metadata.snapshots[:2]
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in old]).commit()
    delete_files(table, [s.summary.additional_properties[MANIFEST_KEY] for s in old if s.summary is not None])
    drop(orders, LEDGER)

    planned = repair(orders, LEDGER)

    assert planned is not None
    assert planned.loss is not None
    assert planned.loss.batches == (0, 1)
    assert {row["abandoned"] for row in ledger(orders, "repair")} == {2}
    assert orders.run().batches == 0
    drop(orders, LETTERS)
    repair(orders, LETTERS)
    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert len(places(orders)) == 6
    assert orders.run().batches == 0
    assert_clean(orders)


def test_ledger_is_repaired_first(shop: MakeShop) -> None:
    """Ledger and dead letters are gone: each refusal names the next command."""
    orders = landed(shop)
    drop(orders, LETTERS)
    drop(orders, LEDGER)
    with pytest.raises(Terminal, match=f"frazil repair orders {LEDGER}"):
        repair(orders, LETTERS)
    repair(orders, LEDGER)
    with pytest.raises(Terminal, match=f"frazil repair orders {LETTERS}"):
        orders.run()

    repair(orders, LETTERS)

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert_clean(orders)


@pytest.mark.parametrize("table", [LETTERS, LEDGER])
def test_unfinished_batch_has_its_part_again(shop: MakeShop, at_failpoint: AtFailpoint, table: str) -> None:
    """Killed between decision and dead letters, then a table is dropped."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})
    at_failpoint("follow.committing")
    with pytest.raises(Killed):
        orders.run()
    drop(orders, table)

    repair(orders, table)

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert [row["n"] for row in ledger(orders, "ingest") if row["table"] == LETTERS] == [1, 2, 3]
    assert orders.run().batches == 0
    assert_clean(orders)


def test_changed_partitioning_is_no_dead_end(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The spec changed between decision and follow-up: files don't fit any more, a replay writes them anew."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})

    def partition() -> None:
        with lake(orders).load_table(LETTERS).update_spec() as change:
            change.add_identity("code")

    at_failpoint("decide.committed", partition)
    with pytest.raises(Terminal, match=r"partition spec changed") as refusal:
        orders.run()
    assert named_command(refusal.value) == ["repair", "orders", LETTERS]

    repair(orders, LETTERS)

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert orders.run().batches == 0
    assert_clean(orders)


def test_what_kafka_holds_no_more_is_given_up_by_name(shop: MakeShop) -> None:
    """The rest comes again; verify counts what did not."""
    orders = landed(shop)
    drop(orders, LETTERS)
    delete_before(orders, 6)

    planned = repair(orders, LETTERS)

    assert planned is not None
    assert [(r.start, r.end) for r in planned.unrecoverable] == [(0, 6)]
    assert [(r.start, r.end) for r in planned.fill] == [(6, 12)]
    assert bad_places(orders) == [(0, 7), (0, 9), (0, 11)]
    assert orders.run().batches == 0
    assert_clean(orders)
    assert repair(orders, LETTERS) is None


def test_loss_without_a_replay_is_on_record_and_filled_later(shop: MakeShop) -> None:
    """Given up, the pipeline goes on, verify counts it; a second repair fills what the first one left."""
    orders = landed(shop)
    drop(orders, LETTERS)
    repair(orders, LETTERS, replays=False)
    send(orders, {0: [bad(12)]})
    assert orders.run().dead == 1
    assert letters(orders) == [(0, 12, 5)]
    verification = verify(orders.project, orders.pipeline)
    assert (verification.is_clean, sum(partition.given_up for partition in verification.partitions)) == (True, 6)

    assert repair(orders, LETTERS) is not None

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11, 12)]
    verification = verify(orders.project, orders.pipeline)
    assert (verification.is_clean, sum(partition.given_up for partition in verification.partitions)) == (True, 0)


def test_what_a_replay_replaced_is_replaced_again(shop: MakeShop) -> None:
    """Rolled back behind a replay and a backward reset: what those took out goes again, what they landed comes again."""
    orders = landed(shop)
    replay(orders, offsets(orders, 0), offsets(orders, 8))
    reset(orders, offsets(orders, 10))
    roll_back(orders, LETTERS, snapshots=2)

    repair(orders, LETTERS)
    orders.run()

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert_clean(orders)


POINTS = ("manifest.written", "decide.committing", "decide.committed", "record.committing", "record.committed")
KILLS = {
    **{f"{point}-letters": (LETTERS, point) for point in (*POINTS, "follow.committing", "follow.committed")},
    **{f"{point}-ledger": (LEDGER, point) for point in POINTS},  # it gives no follower anything
}


@pytest.mark.short("decide.committed-letters", "record.committing-ledger")
@pytest.mark.parametrize(("table", "point"), KILLS.values(), ids=KILLS)
def test_killed_repair_is_carried_on(shop: MakeShop, at_failpoint: AtFailpoint, point: str, table: str) -> None:
    """By a second one, or by the next run; what was not filled yet is filled by the second one."""
    orders = landed(shop)
    drop(orders, table)
    at_failpoint(point)
    with pytest.raises(Killed):
        repair(orders, table)
    send(orders, {0: [order(12), bad(13)]})
    if point == "decide.committed":
        assert orders.run().read == 2

    repair(orders, table)
    orders.run()

    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11, 13)]
    assert_clean(orders)


def test_two_repairs_at_once_end_well(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The slower one is refused, and finds its work done the next time."""
    orders = landed(shop)
    drop(orders, LETTERS)
    at_failpoint("decide.committing", lambda: repair(orders, LETTERS))
    with pytest.raises(Retryable, match="faster"):
        repair(orders, LETTERS)

    assert repair(orders, LETTERS) is None
    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert_clean(orders)


def test_run_beside_a_repair_ends_well(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A run is stopped by the loss while it follows up; a repair beside it finishes its batch."""
    orders = landed(shop, 2)
    send(orders, {0: [order(8), bad(9), order(10), bad(11)]})

    def lose_and_repair() -> None:
        drop(orders, LETTERS)
        repair(orders, LETTERS)

    at_failpoint("follow.committing", lose_and_repair)
    with pytest.raises(Retryable, match="finished by another run"):
        orders.run()

    assert orders.run().batches == 0
    assert bad_places(orders) == [(0, number) for number in (1, 3, 5, 7, 9, 11)]
    assert_clean(orders)


def test_table_without_kafka_columns_goes_on_without_its_rows(shop: MakeShop) -> None:
    """No replay can fill it: it says so, and the pipeline goes on."""
    orders = fanned_out(shop)
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    orders = orders.with_pipeline(text.replace(f"{{table: {AUDIT},", f"{{table: {AUDIT}, kafka_columns: false,"))
    fill(orders, range(10))
    orders.run()
    drop(orders, AUDIT)

    planned = repair(orders, AUDIT)

    assert planned is not None
    assert "kafka_columns: false" in str(planned.refusal)
    assert orders.rows(AUDIT) == []
    fill(orders, range(10, 20))
    assert orders.run().batches == 1
    assert len(orders.rows(AUDIT)) > 0


def test_repair_refuses_what_is_no_follower(shop: MakeShop) -> None:
    """Nothing to do is said, and the closing table and strangers are refused; what the refusal names works."""
    orders = landed(shop, 1)
    assert position(orders).n == 1
    assert repair(orders, LETTERS) is None
    assert repair(orders, LEDGER) is None
    with pytest.raises(Terminal, match="holds the position"):
        repair(orders, ORDERS)
    with pytest.raises(Terminal, match=r"no table shop\.other that could be repaired"):
        repair(orders, "shop.other")
    assert len(places(orders)) == 2
