"""Batches from rows of the ledger, of this Frazil and of older ones, and topics from a file's statistics."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.batch.changes import ChangeCounts
from frazil.report.history import Removed, _between, batch_of
from frazil.run.batches.plan import changes_of

MOMENT = datetime(2026, 11, 21, 4, 5, 6, tzinfo=UTC)
POSITION = {"v": 1, "n": 7, "epoch": 0, "cluster": "c", "topics": {"t": {"id": None, "from": [1], "next": [5]}}}


def row(**changed: Any) -> dict[str, Any]:
    """A row as the first ledgers had it."""
    times = {"started_at": MOMENT, "decided_at": MOMENT, "recorded_at": MOMENT + timedelta(seconds=1.5)}
    counts = {"records_read": 4, "records_written": 3, "records_dead": 1, "records_filtered": 0}
    about = {"n": 7, "kind": "ingest", "batch": "b", "run": "r", "table": "shop.orders", "role": "destination"}
    size = {"snapshot_id": 11, "files": 2, "bytes": 100, "rows": 3}
    texts = {"position": json.dumps(POSITION), "dead_codes": '{"INVALID_JSON": 1}', "phases": '{"stage": 1.0}'}
    return {**times, **counts, **about, **size, **texts, **changed}


def letters(**changed: Any) -> dict[str, Any]:
    return row(table="shop.letters", role="dead_letters", snapshot_id=12, files=1, bytes=10, rows=1, **changed)


def test_history_reads_old_ledgers() -> None:
    """Columns that came later are unknown in older rows, not an error and not zero."""
    batch = batch_of([row(), letters()])

    assert (batch.n, batch.read, batch.written, batch.dead, batch.seconds) == (7, 4, 3, 1, 1.5)
    assert (batch.files, batch.bytes) == (2, 100)
    assert batch.snapshots == {"shop.orders": 11, "shop.letters": 12}
    assert (batch.ranges, batch.bytes_read, batch.started_by, batch.reason) == (None, None, None, None)
    assert batch.unknown_fields is None
    assert (batch.skipped, batch.removed, batch.changes) == ((), (), {})


def test_history_reads_nulls_of_older_rows() -> None:
    """After the columns were added, older rows have nulls in them."""
    names = ("ranges", "skipped", "removed", "bytes_read", "started_by", "reason", "table_uuid", "records_unknown")
    names += ("table_upserts", "table_deletes")

    assert batch_of([row(**dict.fromkeys(names))]) == batch_of([row()])


def test_history_shows_what_a_replay_removed() -> None:
    """Removals are told per table; ranges, skips, reason and who asked once per batch."""
    columns = {"started_by": "cli:me@here", "reason": "wrong codec", "ranges": '[["t",0,1,5]]', "bytes_read": 9}
    batch = batch_of(
        [
            row(kind="replay", removed='[["t",0,1,5,0]]', skipped='[["t",1,0,3]]', **columns),
            letters(kind="replay", removed='[["t",null,1,null,2]]', skipped='[["t",1,0,3]]', **columns),
        ]
    )

    assert (batch.kind, batch.started_by, batch.reason, batch.bytes_read) == ("replay", "cli:me@here", "wrong codec", 9)
    assert batch.ranges == (("t", 0, 1, 5),)
    assert batch.skipped == (("t", 1, 0, 3),)
    assert batch.removed == (
        Removed("shop.orders", "t", 0, 1, 5, 0),
        Removed("shop.letters", "t", None, 1, None, 2),
    )


def test_several_destinations_count_a_batch_once() -> None:
    """Counts are the batch's and repeated in its rows; files are each table's own."""
    batch = batch_of([row(), row(table="shop.more", snapshot_id=None, files=1, bytes=5), letters()])

    assert (batch.read, batch.snapshot_id, batch.files, batch.bytes) == (4, 11, 3, 105)
    assert batch.snapshots == {"shop.orders": 11, "shop.letters": 12}


def test_changes_are_counted_as_inserts_and_deletes() -> None:
    """Of a table that rows are merged into it is told how many were to come and how many to go."""
    merged = row(table="shop.now", rows=9, table_upserts=5, table_deletes=3)
    assert batch_of([row(), merged, letters()]).changes == {"shop.now": ChangeCounts(5, 3, 1)}
    assert changes_of([row(), merged, merged]) == {"shop.now": ChangeCounts(10, 6, 2)}


def test_cut_statistics_name_real_topics() -> None:
    """Bounds keep 16 characters: the topic is looked up between them, and never invented if it is known."""
    names = {"completed-pizzas-by-day", "completed-pizzas-by-store", "payments"}

    assert _between(("completed-pizzas", "completed-pizzat"), names) == tuple(sorted(names - {"payments"}))
    assert _between(("payments", "payments"), names) == ("payments",)
    assert _between(("gone", "gone"), names) == ("gone",)
