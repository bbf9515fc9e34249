"""Ways to tamper with rows and dead letters."""

from __future__ import annotations

import json
from functools import partial
from typing import Final

from tests.tampering.pipelines import Landed
from tests.tampering.tampering import (
    BAD,
    BEYOND,
    FILTERED,
    OTHER,
    VICTIM,
    Tampering,
    add_row,
    add_to,
    bad_letter,
    change_ledger,
    change_letter,
    change_row,
    count_as_filtered,
    remove_letter,
    remove_row,
    row_at,
    without_one,
)

TAMPERINGS: Final[list[Tampering]] = []

tampering = partial(add_to, TAMPERINGS)


# --- rows ------------------------------------------------------------------------------------------------------------
@tampering("row", "missing", VICTIM)
def delete_row(landed: Landed) -> None:
    """A row is deleted."""
    remove_row(landed)


@tampering("row", "ledger, missing", VICTIM, words="batch 1")
def delete_row_and_count_it_as_filtered(landed: Landed) -> None:
    """A row is deleted, and the ledger counts its record as filtered."""
    remove_row(landed)
    count_as_filtered(landed)


@tampering("row", "duplicate", VICTIM)
def double_row(landed: Landed) -> None:
    """A row is doubled."""
    landed.rows.append([row_at(landed)])


@tampering("row", "duplicate, missing", VICTIM, OTHER)
def double_one_row_and_delete_another(landed: Landed) -> None:
    """A row is doubled, another one deleted: all counts stay."""
    landed.rows.append([row_at(landed)])
    remove_row(landed, OTHER)


@tampering("row", "changed", VICTIM)
def null_value(landed: Landed) -> None:
    """A value is set to null."""
    change_row(landed, name=None)


@tampering("row", "changed", VICTIM)
def alter_value(landed: Landed) -> None:
    """A value is altered."""
    change_row(landed, name="other")


@tampering("row", "changed", VICTIM, merged="missing, unexpected")
def alter_id(landed: Landed) -> None:
    """The id, which is the key of the merged table, is altered."""
    change_row(landed, id=63)


@tampering("row", "changed", VICTIM, OTHER)
def swap_values(landed: Landed) -> None:
    """The values of two rows are swapped."""
    one, second = row_at(landed)["name"], row_at(landed, OTHER)["name"]
    change_row(landed, name=second)
    change_row(landed, OTHER, name=one)


@tampering("row", "changed", VICTIM)
def alter_timestamp(landed: Landed) -> None:
    """Kafka's timestamp is set to null."""
    change_row(landed, _kafka_timestamp=None)


@tampering("row", "missing, unexpected", VICTIM, BEYOND, merged="changed, unexpected")
def move_row(landed: Landed) -> None:
    """A row is moved to an offset that nobody read."""
    change_row(landed, _kafka_offset=BEYOND[1])


@tampering("row", "changed, duplicate, missing", VICTIM, OTHER, merged="changed")
def move_row_onto_another(landed: Landed) -> None:
    """A row is moved to the offset of another one."""
    change_row(landed, _kafka_offset=OTHER[1])


@tampering("row", "missing, unexpected", VICTIM, (9, 1), merged="changed, unexpected")
def move_row_to_another_partition(landed: Landed) -> None:
    """A row is moved to a partition that is not there."""
    change_row(landed, _kafka_partition=9)


@tampering("row", "missing, unexpected", VICTIM, words="elsewhere")
def move_row_to_another_topic(landed: Landed) -> None:
    """A row is moved to another topic."""
    change_row(landed, _kafka_topic="elsewhere")


@tampering("row", "missing, unexpected", VICTIM, merged="changed")
def move_row_to_another_batch(landed: Landed) -> None:
    """A row is given to another batch."""
    change_row(landed, _frazil_batch=2)


@tampering("row", "missing, unexpected", VICTIM, words="topic, partition and offset in every row")
def null_offset(landed: Landed) -> None:
    """The offset of a row is set to null."""
    change_row(landed, _kafka_offset=None)


@tampering("row", "foreign, missing", VICTIM)
def null_coordinates(landed: Landed) -> None:
    """All coordinates of a row are set to null."""
    change_row(landed, _kafka_topic=None, _kafka_partition=None, _kafka_offset=None, _frazil_batch=None)


@tampering("row", "foreign", VICTIM)
def copy_row_without_coordinates(landed: Landed) -> None:
    """A row is copied without its coordinates: anybody may add rows of their own."""
    nulls = dict.fromkeys(("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp", "_frazil_batch"))
    landed.rows.append([row_at(landed) | nulls])


@tampering("row", "unexpected", BEYOND)
def invent_row(landed: Landed) -> None:
    """A row is added at an offset that nobody read."""
    add_row(landed, BEYOND)


@tampering("row", "changed, duplicate", BAD, merged="unexpected")
def invent_row_of_bad_record(landed: Landed) -> None:
    """A row is added at the offset of a dead letter."""
    add_row(landed, BAD)


@tampering("row", "unexpected", FILTERED)
def invent_row_of_filtered_record(landed: Landed) -> None:
    """A row is added at the offset of a record that was filtered."""
    add_row(landed, FILTERED)


@tampering("row", "", (0, 7), merged="unexpected")
def bring_back_deleted_row(landed: Landed) -> None:
    """A row that its topic deleted is brought back."""
    add_row(landed, (0, 5), id=5, name="name 5")


@tampering("row", "", (0, 9), merged="changed")
def bring_back_older_row(landed: Landed) -> None:
    """A row is set back to what an older record says."""
    change_row(landed, (0, 9), _kafka_offset=0, _frazil_batch=1, name="name 0")


# --- dead letters ----------------------------------------------------------------------------------------------------
@tampering("dead letter", "missing", BAD)
def delete_letter(landed: Landed) -> None:
    """A dead letter is deleted."""
    remove_letter(landed)


@tampering("dead letter", "ledger, missing", BAD, words="batch 1")
def delete_letter_and_count_it_as_filtered(landed: Landed) -> None:
    """A dead letter is deleted, and the ledger counts its record as filtered."""
    count_as_filtered(landed, bad_letter(landed)["code"])
    remove_letter(landed)


@tampering("dead letter", "duplicate", BAD)
def double_letter(landed: Landed) -> None:
    """A dead letter is doubled."""
    landed.letters.append([bad_letter(landed)])


@tampering("dead letter", "changed", BAD)
def alter_payload(landed: Landed) -> None:
    """The bytes of a dead letter are altered."""
    change_letter(landed, value=b"other")


@tampering("dead letter", "changed", BAD)
def alter_headers(landed: Landed) -> None:
    """Headers are added to a dead letter."""
    change_letter(landed, headers=[{"key": "a", "value": b"b"}])


@tampering("dead letter", "changed", BAD)
def recode_letter(landed: Landed) -> None:
    """The code of a dead letter is altered."""
    change_letter(landed, code="OTHER_CODE")


@tampering("dead letter", "changed", BAD)
def alter_message(landed: Landed) -> None:
    """The message of a dead letter is altered."""
    change_letter(landed, message="other")


@tampering("dead letter", "nothing")
def alter_message_and_expire_snapshots(landed: Landed) -> None:
    """The message of a dead letter is altered, and older snapshots are expired."""
    change_letter(landed, message="other")
    landed.letters.expire()


@tampering("dead letter", "nothing")
def recode_letter_everywhere(landed: Landed) -> None:
    """The code of a dead letter is altered, in the ledger too, and older snapshots of both are expired."""
    code = bad_letter(landed)["code"]
    change_letter(landed, code="OTHER_CODE")
    change_ledger(landed, 1, dead_codes=lambda text: json.dumps({"OTHER_CODE": 1} | without_one(text, code)))
    landed.letters.expire()
    landed.ledger.expire()


@tampering("dead letter", "missing, unexpected", BAD, BEYOND)
def move_letter(landed: Landed) -> None:
    """A dead letter is moved to an offset that nobody read."""
    change_letter(landed, offset=BEYOND[1])


@tampering("dead letter", "missing", BAD)
def give_letter_to_another_table(landed: Landed) -> None:
    """A dead letter is given to a table that is no destination."""
    change_letter(landed, destination="shop.other")


@tampering("dead letter", "missing", BAD)
def mark_letter_as_landed(landed: Landed) -> None:
    """A dead letter is marked as landed by a later batch."""
    change_letter(landed, landed_batch=2)


@tampering("dead letter", "unexpected", BEYOND)
def invent_letter(landed: Landed) -> None:
    """A dead letter is added at an offset that nobody read."""
    landed.letters.append([bad_letter(landed) | {"offset": BEYOND[1]}])


@tampering("dead letter", "changed", VICTIM)
def make_good_record_a_letter(landed: Landed) -> None:
    """A good record becomes a dead letter: its row is deleted, and a letter with its bytes is added."""
    row, number = row_at(landed), VICTIM[1]
    value = landed.record(VICTIM)
    letter = {"offset": number, "value": value, "timestamp": row["_kafka_timestamp"]}
    landed.letters.append([bad_letter(landed) | letter])
    remove_row(landed)


@tampering("dead letter", "changed", BAD, merged="missing, unexpected")
def make_bad_record_a_row(landed: Landed) -> None:
    """A bad record becomes a row: its dead letter is deleted."""
    add_row(landed, BAD, _kafka_timestamp=bad_letter(landed)["timestamp"])
    remove_letter(landed)
