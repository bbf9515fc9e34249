"""Batches prepared on a branch: main becomes exactly what was prepared, in one commit, or stays as it is."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.branch import Stage, replacement_stage
from frazil.iceberg.commit.commit import ATTEMPTS, REMOVED_KEY, Change, Refused, commit
from frazil.iceberg.commit.summary_state import landed_snapshot, mirror, summary_value_or_refuse
from tests.unit.iceberg.coordinates import (
    Row,
    change,
    create,
    every_snapshot_is_readable,
    everything,
    foreign,
    numbered,
    removing,
)
from tests.unit.iceberg.orders import (
    KEY,
    TABLE,
    elsewhere,
    follow,
    mark,
    overtaken,
)
from tests.unit.iceberg.replays import (
    NEW,
    REPLACED,
    branches,
    decide,
    drop_branch,
    ids,
    passed,
    replay,
)


def test_reader_sees_old_and_new_rows_change_in_one_commit(filled: Lake) -> None:
    """Old rows and new ones change places in one commit, with the properties; the branch is gone with it."""
    before = filled.load_table(TABLE).metadata.current_snapshot_id
    seen: list[list[int]] = []
    follow(filled, *[overtaken(lambda: seen.append(ids(filled)))] * 3)

    snapshot_id = decide(filled)

    table = filled.load_table(TABLE)
    head = table.current_snapshot()
    assert seen == [list(range(10))] * 3  # branch made, staged, and then main
    assert ids(filled) == REPLACED
    assert head is not None
    assert (head.snapshot_id, head.parent_snapshot_id) == (snapshot_id, before)
    assert head.summary is not None
    assert (head.summary[KEY], head.summary[REMOVED_KEY]) == (mark(2).to_json(), "3")
    assert table.properties[KEY] == mirror(mark(2).to_json(), snapshot_id)
    assert branches(filled) == []
    assert everything(filled, before) == numbered(range(10))


def test_batch_is_found_after_its_branch_became_main(filled: Lake) -> None:
    """What came by way of a branch of several snapshots is held and found like any other batch; the next one lands."""
    ours = replay(filled)

    def in_two_steps(lake: Lake, change: Change, name: str) -> int:
        replacement_stage()(lake, replace(change, summary={"engine": "deletes first"}, files=()), name)
        return replacement_stage()(lake, replace(change, removal=None), name)

    snapshot_id = decide(filled, ours, in_two_steps)

    metadata = filled.load_table(TABLE).metadata
    found = summary_value_or_refuse(metadata, KEY, TABLE)
    assert ids(filled) == REPLACED
    assert found is not None
    assert (found.value, found.snapshot_id) == (mark(2).to_json(), snapshot_id)
    assert landed_snapshot(metadata, KEY, mark(2), TABLE) == snapshot_id
    assert landed_snapshot(metadata, KEY, mark(1), TABLE) is not None
    assert decide(filled, ours) == snapshot_id
    commit(filled, change(filled, mark(3), mark(2), [Row(300)]))
    assert ids(filled) == [*REPLACED, 300]


@pytest.mark.parametrize("at", [0, 1, 2], ids=["making the branch", "staging", "deciding"])
def test_foreign_append_before_any_commit_keeps_its_rows(filled: Lake, at: int) -> None:
    """A foreign append moves main before any of the three commits: prepared anew, its rows stay."""
    strangers = [Row(200, topic=None), Row(201, offset=4)]
    follow(filled, *[passed] * at, overtaken(lambda: foreign(filled, strangers)))

    decide(filled)

    assert ids(filled) == [*REPLACED, 200]
    assert branches(filled) == []
    every_snapshot_is_readable(filled)


@pytest.mark.parametrize("at", [0, 1, 2], ids=["making the branch", "staging", "deciding"])
def test_concurrent_batch_before_any_commit_wins_alone(filled: Lake, at: int) -> None:
    """A rival that decides before any of the three commits wins; main never sees ours."""
    ours, rival = replay(filled), change(filled, mark(2, "rival"), mark(1), [Row(300, batch=2)])
    follow(filled, *[passed] * at, overtaken(lambda: commit(elsewhere(filled), rival)))

    with pytest.raises(Refused, match="expected"):
        decide(filled, ours)

    assert ids(filled) == [*range(10), 300]


def test_busy_table_is_tried_a_bounded_number_of_times(filled: Lake) -> None:
    """Main moves every time: a bounded number of attempts, one branch left for the sweep, and the error says try later."""
    number = itertools.count(200)
    moved = overtaken(lambda: foreign(filled, [Row(next(number))]))
    follow(filled, passed, passed, moved, *[passed, passed, passed, moved] * ATTEMPTS)  # later ones drop a branch first

    with pytest.raises(Retryable, match="main moved while branch"):
        decide(filled)

    assert ids(filled) == [*range(10), *range(200, 200 + ATTEMPTS)]
    assert len(branches(filled)) == 1


def test_dropped_branch_is_refused_at_decision(filled: Lake) -> None:
    """Somebody drops the branch before the decision: refused, and main stays as it is."""
    follow(filled, passed, passed, overtaken(lambda: drop_branch(filled)))

    with pytest.raises(Refused, match=r"branch frazil-orders-2-\d+-[0-9a-f]{8} is gone"):
        decide(filled)

    assert ids(filled) == list(range(10))


def test_branch_dropped_while_staging_stays_dropped(filled: Lake) -> None:
    """Somebody drops the branch while files are rewritten: a stage never makes it anew."""
    follow(filled, passed, overtaken(lambda: drop_branch(filled)))

    with pytest.raises(Refused, match="is gone"):
        decide(filled)

    assert branches(filled) == []
    assert ids(filled) == list(range(10))


def test_branch_with_foreign_commit_never_becomes_main(filled: Lake) -> None:
    """Another engine appends to the branch before the decision: main never becomes that."""

    def append() -> None:
        table = elsewhere(filled).load_table(TABLE)
        table.append(table.scan(limit=1).to_arrow(), branch=branches(filled)[0])

    follow(filled, passed, passed, overtaken(append))

    with pytest.raises(Refused, match="was moved by somebody else"):
        decide(filled)

    assert ids(filled) == list(range(10))


def wrong_summary(lake: Lake, change: Change, name: str) -> int:
    return replacement_stage()(lake, replace(change, summary={"frazil.rows.written": "3"}), name)


def wrong_ancestry(lake: Lake, change: Change, name: str) -> int:
    """A branch that was set to what does not descend from main."""
    tip = replacement_stage()(lake, change, name)
    table = lake.load_table(TABLE)
    snapshots = [
        s.model_copy(update={"parent_snapshot_id": None}) if s.snapshot_id == tip else s
        for s in table.metadata.snapshots
    ]
    metadata = table.metadata.model_copy(update={"snapshots": snapshots})
    path = table.location_provider().new_metadata_location("99999-edited.metadata.json")
    with table.io.new_output(path).create() as stream:
        stream.write(metadata.model_dump_json().encode())
    lake._catalog.drop_table(TABLE)
    lake._catalog.register_table(TABLE, path)
    return tip


@pytest.mark.parametrize(
    ("stage", "message"), [(wrong_summary, f"lacks {KEY}"), (wrong_ancestry, "does not descend from main's head")]
)
def test_only_the_prepared_snapshot_becomes_main(filled: Lake, stage: Stage, message: str) -> None:
    """What a stage made is looked at before it is decided: it carries this batch and descends from the planned head."""
    with pytest.raises(Terminal, match=message):
        decide(filled, stage=stage)

    assert ids(filled) == list(range(10))


def test_replay_into_an_empty_table_is_refused(lake: Lake) -> None:
    """Nothing was ever landed on main: there is nothing to replace, and the message says so."""
    create(lake, [])

    with pytest.raises(Terminal, match="has no snapshot on main"):
        decide(lake, change(lake, mark(1), None, NEW, removing(3, 6)))


def change_spec(lake: Lake) -> None:
    with elsewhere(lake).load_table(TABLE).update_spec() as update:
        update.add_identity("id")


@pytest.mark.parametrize("moved", [False, True], ids=["main is where it was", "main moved, too"])
def test_changed_table_refuses_the_files(filled: Lake, *, moved: bool) -> None:
    """The partition spec changed since the files were staged: refused, whether a branch stands already or not."""
    ours = replay(filled)
    others = [lambda: foreign(filled, [Row(200)])] if moved else []
    follow(filled, passed, overtaken(lambda: change_spec(filled), *others))
    with pytest.raises(Refused, match="partition spec changed"):
        decide(filled, ours)
    with pytest.raises(Refused, match="partition spec changed"):
        decide(filled, ours)

    assert ids(filled) == [*range(10), 200][: 11 if moved else 10]
