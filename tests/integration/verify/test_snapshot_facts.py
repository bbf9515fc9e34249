"""What the ledger says is held against snapshots and dead letters: who edits the ledger edits those too, or is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.verify.catalogs import FileGone

Make = Callable[..., Any]


@pytest.fixture
def orders(shop: Make) -> Any:
    """Two batches: good records, two bad ones, a tombstone."""
    orders = shop()
    orders.produce_orders(range(8))
    orders.produce([b"broken", None])
    orders.run()
    orders.produce_orders(range(8, 12))
    orders.produce([b'{"id": "x"}'])
    orders.run()
    return orders


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dead_codes": '{"INVALID_JSON": 2}'}, "INVALID_JSON"),
        ({"snapshot_id": 1}, "snapshot"),
        ({"config": "000000000000"}, "config"),
        ({"skipped": '[["elsewhere", 0, 0, 9]]'}, "elsewhere"),
        ({"kind": "replay"}, "kind"),
    ],
)
def test_ledger_is_compared_with_snapshots(
    orders: Any, check: Make, table: Make, change: dict[str, Any], message: str
) -> None:
    """What the ledger alone was made to say, snapshots and dead letters deny: the batch and the fact are named."""
    table(orders, "shop.orders__ledger").overwrite(lambda row: row | (change if row["n"] == 1 else {}))

    differences = [difference for difference in check(orders).differences if difference.kind == "ledger"]

    assert {difference.batch for difference in differences} == {1}
    assert any(message in str(difference) for difference in differences), list(map(str, differences))


def test_batch_is_judged_by_the_file_that_its_snapshot_names(orders: Any, check: Make, table: Make) -> None:
    """An altered hash in the ledger makes no value unknown."""
    table(orders, "shop.orders__ledger").overwrite(lambda row: row | {"config": "000000000000"})
    table(orders).overwrite(lambda row: row | ({"name": None} if row["id"] == 7 else {}))

    assert "changed" in {difference.kind for difference in check(orders).differences}


@pytest.mark.short("code")
@pytest.mark.parametrize(
    "change", [{"code": "WRONG_TYPE"}, {"message": "all is well"}, {"stage": "route"}], ids=["code", "message", "stage"]
)
def test_altered_reason_of_dead_letter_is_found(orders: Any, check: Make, table: Make, change: dict[str, Any]) -> None:
    """The letter is named, with its reason as it was, while a snapshot of before is there."""
    table(orders, "shop.orders__dead_letters").overwrite(
        lambda row: row | change if row["code"] == "INVALID_JSON" else row
    )

    differences = [difference for difference in check(orders).differences if difference.kind == "changed"]

    assert [
        (difference.batch, next(iter(change)) in difference.expected, difference.actual) for difference in differences
    ] == [(1, True, *change.values())]


def test_missing_manifest_of_finished_batch_is_noted(orders: Any, check: Make) -> None:
    """An orphan removal may take it from an idle pipeline, which goes on: no difference."""
    head = orders.project.lake("lake").load_table("shop.orders").current_snapshot()
    path = head.summary.additional_properties["frazil.manifest"]
    Path(path.removeprefix("file://")).unlink()

    report = check(orders)
    assert report.is_clean, list(map(str, report.differences))
    assert [path in note for note in report.notes] == [True]


def test_missing_data_file_is_reported(orders: Any, check: Make) -> None:
    """Nothing can be said of the table until it is back; of files of its past nothing is asked."""
    letters = orders.project.lake("lake").load_table("shop.orders__dead_letters")
    path = next(task.file.file_path for task in letters.scan().plan_files())
    Path(path.removeprefix("file://")).unlink()

    with pytest.raises(FileGone) as error:
        check(orders)

    assert error.value.next_step is not None
    assert "orphan removal" in error.value.next_step
