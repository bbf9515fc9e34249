"""Ways to tamper with the ledger, the position and whole tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.operations import drop
from tests.tampering.pipelines import LETTERS, Landed
from tests.tampering.tampering import (
    VICTIM,
    Tampering,
    add_to,
    change_ledger,
    change_row,
    count_as_filtered,
    less_by,
    place_of,
    remove_row,
)

TAMPERINGS: Final[list[Tampering]] = []

tampering = partial(add_to, TAMPERINGS)


# --- the ledger ------------------------------------------------------------------------------------------------------
@tampering("ledger", "ledger, missing, unexpected", words="batch", anywhere=True)
def delete_batch_of_ledger(landed: Landed) -> None:
    """All rows of a batch are deleted."""
    landed.ledger.delete(n=1)


@tampering(
    *("ledger", "ledger, unexpected"),
    words="batch",
    anywhere=True,
    merged="changed, ledger, missing, unexpected",
    edited="ledger, unexpected",
)
def delete_last_batch_of_ledger(landed: Landed) -> None:
    """All rows of the last batch are deleted."""
    landed.ledger.delete(n=max(row["n"] for row in landed.ledger.rows().to_pylist()))


@tampering("ledger", "ledger", words="ledger row for the dead_letters table")
def delete_letters_of_ledger(landed: Landed) -> None:
    """The row of a batch's dead letters is deleted."""
    landed.ledger.delete(n=1, role="dead_letters")


@tampering("ledger", "ledger", words="batch 2")
def double_batch_of_ledger(landed: Landed) -> None:
    """The rows of a batch are doubled under another id."""
    landed.ledger.append([row | {"batch": "other"} for row in landed.ledger.rows().to_pylist() if row["n"] == 2])


@tampering("ledger", "ledger", words="batch")
def move_row_of_ledger(landed: Landed) -> None:
    """The row of a batch's dead letters is given to the batch before."""
    change_ledger(landed, 2, "dead_letters", n=1)


@tampering("ledger", "ledger", words="batch 1")
def alter_count(landed: Landed) -> None:
    """The count of records read is altered."""
    change_ledger(landed, 1, records_read=99)


@tampering("ledger", "ledger", words="batch 1")
def alter_counts_consistently(landed: Landed) -> None:
    """A batch counts a row less and a filtered record more."""
    count_as_filtered(landed)


@tampering("ledger", "ledger", words="batch 1")
def alter_codes(landed: Landed) -> None:
    """The codes of the dead letters are altered."""
    change_ledger(landed, 1, dead_codes='{"OTHER_CODE": 2}')


@tampering("ledger", "ledger", words="snapshot")
def alter_snapshot_id(landed: Landed) -> None:
    """The snapshot of a batch is altered."""
    change_ledger(landed, 1, "destination", snapshot_id=1)


@tampering("ledger", "ledger", words="batch 1")
def alter_config(landed: Landed) -> None:
    """The hash of the pipeline file of a batch is altered."""
    change_ledger(landed, 1, config="0" * 12)


@tampering("ledger", "changed, ledger", VICTIM, words="batch 1")
def alter_config_and_null_value(landed: Landed) -> None:
    """The hash of the pipeline file of a batch is altered, and a value of it set to null."""
    change_ledger(landed, 1, config="0" * 12)
    change_row(landed, name=None)


def _kept_file(landed: Landed) -> Path:
    """The pipeline file of batch 1, as it is kept beside the ledger."""
    config = next(row["config"] for row in landed.ledger.rows().to_pylist() if row["n"] == 1)
    return next(landed.root.glob(f"home/**/frazil-orders-rules-{config}.json"))


@tampering("ledger", "changed", VICTIM, edited="not compared")
def delete_kept_file_and_null_value(landed: Landed) -> None:
    """The pipeline file that is kept of a batch is deleted, and a value of the batch set to null."""
    _kept_file(landed).unlink()
    change_row(landed, name=None)


@tampering("ledger", "changed", VICTIM, edited="not compared")
def alter_kept_file_and_null_value(landed: Landed) -> None:
    """The pipeline file that is kept of a batch is altered, and a value of the batch set to null."""
    file = _kept_file(landed)
    file.write_text(file.read_text().replace("shop.orders", "shop.others"))
    change_row(landed, name=None)


@tampering(
    *("ledger", "ledger, unexpected"), words="batch 2", anywhere=True, merged="changed, ledger, missing, unexpected"
)
def alter_kind(landed: Landed) -> None:
    """A batch that read records says that it was a reset."""
    change_ledger(landed, 2, kind="reset")


@tampering("ledger", "ledger", words="batch 1")
def invent_skipped_offsets(landed: Landed) -> None:
    """A batch says that it gave up offsets which it read."""
    change_ledger(landed, 1, skipped=json.dumps([[landed.topic, 0, 1, 2]]))


@tampering("ledger", "ledger", words="elsewhere")
def invent_skipped_topic(landed: Landed) -> None:
    """A batch says that it gave up offsets of a topic that nobody knows."""
    change_ledger(landed, 1, skipped=json.dumps([["elsewhere", 0, 0, 9]]))


@tampering("ledger", "ledger, missing", VICTIM, words="batch 1")
def delete_row_and_invent_skipped_offsets(landed: Landed) -> None:
    """A row is deleted, and its batch says that it gave the offset up."""
    remove_row(landed)
    change_ledger(landed, 1, skipped=json.dumps([[landed.topic, *VICTIM, VICTIM[1] + 1]]))


# --- the position ----------------------------------------------------------------------------------------------------
def _edit_position(landed: Landed, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit the position in the property of the closing table."""
    key, table = "kafka.offsets.orders", landed.closing.load()
    body = json.loads(table.properties[key])
    position = json.loads(body["value"])
    change(position["topics"][landed.topic])
    with table.transaction() as transaction:
        transaction.set_properties({key: json.dumps(body | {"value": json.dumps(position)})})


@tampering("position", "ledger", words="property")
def move_position_forward(landed: Landed) -> None:
    """The position in the table property is moved forward."""
    _edit_position(landed, lambda topic: topic["next"].__setitem__(0, 99))


@tampering("position", "ledger", words="property")
def move_position_back(landed: Landed) -> None:
    """The position in the table property is moved back."""
    _edit_position(landed, lambda topic: topic["next"].__setitem__(0, 3))


@tampering("position", "ledger", words="property")
def delete_position(landed: Landed) -> None:
    """The position in the table property is deleted."""
    with landed.closing.load().transaction() as transaction:
        transaction.remove_properties("kafka.offsets.orders")


@tampering("position", "ledger", words="batch")
def move_position_of_ledger(landed: Landed) -> None:
    """The position of a batch in the ledger is moved."""

    def moved(text: str) -> str:
        position = json.loads(text)
        position["topics"][landed.topic]["next"][0] += 1
        return json.dumps(position)

    change_ledger(landed, 1, position=moved)


def _manifest(landed: Landed) -> Path:
    """The manifest of the closing table's last batch."""
    snapshots = reversed(landed.closing.load().metadata.snapshots)
    paths = (
        snapshot.summary.additional_properties.get("frazil.manifest") for snapshot in snapshots if snapshot.summary
    )
    return Path(next(path for path in paths if path).removeprefix("file://"))


@tampering("position", "noted")
def delete_manifest(landed: Landed) -> None:
    """The manifest of the last batch is deleted."""
    _manifest(landed).unlink()


@tampering("position", "ledger, missing", (0, 0), words="batch 1")
def lose_head_of_partition(landed: Landed) -> None:
    """The head of a partition is lost: its rows, and the offsets and counts of the ledger."""
    for name in landed.project.pipeline("orders").tables:
        landed.table(name).overwrite(lambda row: None if place_of(row) in ((0, 0), (0, 1)) else row)
    head = {"records_read": less_by(2), "records_written": less_by(2)}
    cut = lambda text: json.dumps([[t, p, 2 if p == 0 else start, end] for t, p, start, end in json.loads(text)])  # noqa: E731
    change_ledger(landed, 1, **head, ranges=cut)
    change_ledger(landed, 1, "destination", rows=less_by(2), table_written=less_by(2))


# --- tables ----------------------------------------------------------------------------------------------------------
@tampering("table", "ledger, missing", anywhere=True, merged="changed, ledger, missing, unexpected")
def roll_table_back(landed: Landed) -> None:
    """The destination is rolled back by a batch."""
    landed.rows.roll_back(1)


@tampering("table", "ledger, missing", (0, 8), (1, 8), words="batch 2")
def roll_letters_back(landed: Landed) -> None:
    """The dead letters are rolled back by a batch."""
    landed.letters.roll_back(1)


@tampering("table", "ledger, missing", words="destination", anywhere=True)
def leave_destination_out(landed: Landed) -> None:
    """A batch leaves its destination out, and says so in the ledger."""
    change_ledger(landed, 2, "destination", role="left", rows=0, table_written=None, snapshot_id=None)
    landed.rows.overwrite(lambda row: None if row["_frazil_batch"] == 2 else row)


@tampering("table", "refused", words=".parquet")
def delete_data_file(landed: Landed) -> None:
    """A data file is deleted from the storage."""
    table = landed.rows.load()
    table.io.delete(next(iter(table.scan().plan_files())).file.file_path)


@tampering("table", "refused", words="has no column name")
def drop_column(landed: Landed) -> None:
    """A column is dropped."""
    with landed.rows.load().update_schema() as update:
        update.delete_column("name")


@tampering("table", "refused", words=LETTERS)
def drop_letters(landed: Landed) -> None:
    """The table of dead letters is dropped."""
    drop(landed, LETTERS)
