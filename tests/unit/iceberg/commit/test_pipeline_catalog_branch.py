"""Batches prepared on a branch: main becomes exactly what was prepared, in one commit, or stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError

from frazil import failpoints
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import ATTEMPTS, Change, Refused, commit
from frazil.iceberg.commit.pipeline_catalog import BranchName, branch_name, publish_branch, superfluous_branches
from frazil.iceberg.commit.summary_state import landed_snapshot, mirror
from tests.unit.iceberg.coordinates import Row, change, every_snapshot_is_readable, everything, foreign
from tests.unit.iceberg.orders import (
    KEY,
    TABLE,
    Step,
    UnreliableCatalog,
    answer_lost,
    elsewhere,
    follow,
    mark,
    never_arrived,
    overtaken,
)
from tests.unit.iceberg.prepared import branches, decide, passed, prepare

ERRORS = [
    CommitFailedException("conflict"),
    CommitStateUnknownException("no answer"),
    ServiceUnavailableError("503"),
    TimeoutError("socket"),
    ValueError("unexpected"),
]
"""What a writer may hear, whether its commit landed or not."""


def part(lake: Lake) -> Change:
    """A batch that brings three orders."""
    return change(lake, mark(2), mark(1), [Row(100 + n, offset=n, batch=2) for n in range(3)])


BEFORE = list(range(10))
AFTER = [*BEFORE, 100, 101, 102]


def ids(lake: Lake) -> list[int]:
    """Every order of main."""
    return [row.id for row in everything(lake)]


def drop_branch(lake: Lake) -> None:
    """Somebody drops the branch."""
    elsewhere(lake).load_table(TABLE).manage_snapshots().remove_branch(branches(lake)[0]).commit()


@pytest.mark.parametrize("pipeline", ["orders", "a", "orders-2-1800000000000-00000000", "with-2"])
def test_name_tells_whose_it_is(pipeline: str) -> None:
    """A name tells pipeline and batch, whatever a pipeline is called, and no two are equal."""
    name = branch_name(pipeline, 7)

    branch = BranchName.parse(name)

    assert branch is not None
    assert (branch.pipeline, branch.n) == (pipeline, 7)
    assert branch_name(pipeline, 7) != name


@pytest.mark.parametrize(
    "name", ["main", "audit", "frazil", "frazil-orders-7", "frazil-orders-7-1-0000000g", "x-frazil-a-1-1-00000000"]
)
def test_branch_of_others_is_not_ours(name: str) -> None:
    """Names that Frazil does not give."""
    assert BranchName.parse(name) is None


def test_branches_in_vain_are_those_of_landed_batches_of_the_pipeline(filled: Lake) -> None:
    """Later batches, other pipelines and people have theirs."""
    table = elsewhere(filled).load_table(TABLE)
    head = table.metadata.current_snapshot_id
    assert head is not None
    vain = [branch_name("orders", n) for n in (1, 2)]
    for name in (*vain, branch_name("orders", 3), branch_name("orders-x", 1), "audited", "frazil-orders-1"):
        table.manage_snapshots().create_branch(head, name).commit()

    assert sorted(superfluous_branches(filled.load_table(TABLE).metadata, "orders", 2)) == sorted(vain)


def test_rows_come_with_properties_in_one_commit(filled: Lake) -> None:
    """The branch is gone with it, and the batch is found like any other."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    assert ids(filled) == BEFORE

    assert publish_branch(filled, ours, prepared) == prepared.tip

    table = filled.load_table(TABLE)
    head = table.current_snapshot()
    assert ids(filled) == AFTER
    assert head is not None
    assert (head.snapshot_id, head.parent_snapshot_id) == (prepared.tip, prepared.planned)
    assert table.properties[KEY] == mirror(mark(2).to_json(), prepared.tip)
    assert branches(filled) == []
    assert publish_branch(filled, ours, prepared) == prepared.tip
    commit(filled, change(filled, mark(3), mark(2), [Row(300)]))
    assert ids(filled) == [*AFTER, 300]


@pytest.mark.parametrize("late", [False, True], ids=["before", "at the commit"])
def test_stranger_on_the_way_loses_no_rows(filled: Lake, *, late: bool) -> None:
    """A foreign append moved main: nothing is shown, and the caller prepares anew."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    if late:
        follow(filled, overtaken(lambda: foreign(filled, [Row(200)])))
    else:
        foreign(filled, [Row(200)])

    assert publish_branch(filled, ours, prepared) is None

    decide(filled, ours)
    assert ids(filled) == [*AFTER, 200]


@pytest.mark.parametrize("late", [False, True], ids=["before", "at the commit"])
def test_rival_on_the_way_lands_alone(filled: Lake, *, late: bool) -> None:
    """A rival that commits first wins; main never sees ours."""
    ours, rival = part(filled), change(filled, mark(2, "rival"), mark(1), [Row(300, batch=2)])
    prepared = prepare(filled, ours)
    if late:
        follow(filled, overtaken(lambda: commit(elsewhere(filled), rival)))
    else:
        commit(elsewhere(filled), rival)

    with pytest.raises(Refused, match="expected"):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == [*BEFORE, 300]


def test_busy_catalog_is_not_tried_forever(filled: Lake) -> None:
    """A bounded number of attempts, and the error says try later."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, *[never_arrived(ServiceUnavailableError("503"))] * ATTEMPTS)

    with pytest.raises(Retryable):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == BEFORE


def test_dropped_branch_is_refused(filled: Lake) -> None:
    """Somebody drops the branch before the commit: main stays as it is."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, overtaken(lambda: drop_branch(filled)))

    with pytest.raises(Refused, match=r"branch frazil-orders-2-\d+-[0-9a-f]{8} is gone"):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == BEFORE


def test_branch_that_somebody_wrote_to_never_becomes_main(filled: Lake) -> None:
    """Another engine appends to the branch before the commit."""

    def append() -> None:
        table = elsewhere(filled).load_table(TABLE)
        table.append(table.scan(limit=1).to_arrow(), branch=branches(filled)[0])

    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, overtaken(append))

    with pytest.raises(Refused, match="was moved by somebody else"):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == BEFORE


def test_snapshot_of_something_else_never_becomes_main(filled: Lake) -> None:
    """What was prepared is looked at before it is shown: it carries this batch."""
    ours = part(filled)
    prepared = prepare(filled, ours, {"frazil.rows.written": "3"})

    with pytest.raises(Terminal, match=f"lacks {KEY}"):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == BEFORE


def test_snapshot_that_does_not_descend_from_main_never_becomes_main(filled: Lake) -> None:
    """A branch that was made from an older head, with a tip that is ours."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    foreign(filled, [Row(200)])
    head = filled.load_table(TABLE).metadata.current_snapshot_id
    assert head is not None

    with pytest.raises(Terminal, match="does not descend from main's head"):
        publish_branch(filled, ours, replace(prepared, planned=head))

    assert ids(filled) == [*BEFORE, 200]


def test_changed_table_refuses_the_files(filled: Lake) -> None:
    """The partition spec changed since the files were staged."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    with elsewhere(filled).load_table(TABLE).update_spec() as update:
        update.add_identity("id")

    with pytest.raises(Refused, match="partition spec changed"):
        publish_branch(filled, ours, prepared)

    assert ids(filled) == BEFORE


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", [answer_lost, never_arrived], ids=["landed", "did not land"])
def test_lost_answer_lands_rows_once(filled: Lake, error: Exception, step: Callable[[Exception], Step]) -> None:
    """The commit may land behind an error or not."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, step(error))

    assert publish_branch(filled, ours, prepared) == prepared.tip

    assert ids(filled) == AFTER
    assert branches(filled) == []
    every_snapshot_is_readable(filled)


def test_lost_answer_below_a_stranger_is_found(filled: Lake) -> None:
    """The commit landed, a stranger came on top, and only then the table is read again."""
    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, answer_lost(TimeoutError("socket"), lambda: foreign(filled, [Row(200)])))

    assert publish_branch(filled, ours, prepared) == prepared.tip

    assert ids(filled) == [*AFTER, 200]
    assert landed_snapshot(filled.load_table(TABLE).metadata, KEY, mark(2), TABLE) == prepared.tip


def test_late_commit_is_refused_on_another_head(filled: Lake) -> None:
    """A commit is applied long after it was sent, when main has moved: the catalog refuses it."""
    late: list[Callable[[], Any]] = []

    def delayed(really: Callable[[], Any]) -> Any:
        late.append(really)
        foreign(filled, [Row(200)])
        raise CommitStateUnknownException("504")

    ours = part(filled)
    prepared = prepare(filled, ours)
    follow(filled, delayed)
    assert publish_branch(filled, ours, prepared) is None
    decide(filled, ours)

    with pytest.raises(CommitFailedException):
        late[0]()
    assert ids(filled) == [*AFTER, 200]


def test_unreadable_table_after_a_lost_answer_is_unknown(filled: Lake) -> None:
    """Nobody knows whether the commit landed, and the error says so."""
    catalog, ours = filled._catalog, part(filled)
    assert isinstance(catalog, UnreliableCatalog)
    prepared = prepare(filled, ours)
    follow(filled, answer_lost(CommitStateUnknownException("no answer"), catalog.destroy_tables))

    with pytest.raises(OutcomeUnknown, match="was sent and the table can't be read again"):
        publish_branch(filled, ours, prepared)


def test_points_are_passed_in_order(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The places where a test may end the process, as one attempt that is answered by an error passes them."""
    points: list[Failpoint] = []
    ours = part(filled)
    prepared = prepare(filled, ours)
    monkeypatch.setattr(failpoints, "hit", points.append)
    follow(filled, never_arrived(TimeoutError("socket")), passed)

    publish_branch(filled, ours, prepared)

    committing = Failpoint.FOLLOW_COMMITTING
    assert points == [committing, Failpoint.FOLLOW_RETRYING, committing, Failpoint.FOLLOW_COMMITTED]
