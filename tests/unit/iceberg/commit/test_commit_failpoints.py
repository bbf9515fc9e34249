"""The named places of a commit where a test may end or pause the process, and what a kill there leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil import failpoints
from frazil.failpoints import Failpoint
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import Change, Step, commit
from tests.unit.iceberg.coordinates import Row, change, everything, foreign, removing
from tests.unit.iceberg.orders import follow, mark, overtaken


class Killed(BaseException):
    """The process ends here."""


def ours(lake: Lake, step: Step) -> Change:
    return replace(change(lake, mark(2), mark(1), [Row(100, batch=2)], removing(3, 6)), step=step)


@pytest.mark.parametrize("step", ["decide", "follow", "record"])
def test_commit_passes_its_own_failpoints_in_order(filled: Lake, monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    """Committing, a retry after somebody else came first, and done: by the step's own names."""
    points: list[Failpoint] = []
    monkeypatch.setattr(failpoints, "hit", points.append)
    follow(filled, overtaken(lambda: foreign(filled, [Row(200, topic=None)])))

    commit(filled, ours(filled, step))

    assert [str(point) for point in points] == [
        f"{step}.committing",
        f"{step}.retrying",
        f"{step}.committing",
        f"{step}.committed",
    ]


@pytest.mark.parametrize("name", ["committing", "retrying", "committed"])
def test_killed_commit_leaves_all_or_nothing(filled: Lake, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rows that go and rows that come are there or not, together; whoever comes next ends with the same table."""

    def reached(point: Failpoint) -> None:
        if point == f"follow.{name}":
            raise Killed

    part = ours(filled, "follow")
    monkeypatch.setattr(failpoints, "hit", reached)
    follow(filled, overtaken(lambda: foreign(filled, [Row(200, topic=None)])))
    with pytest.raises(Killed):
        commit(filled, part)
    monkeypatch.undo()

    strangers = [] if name == "committing" else [200]
    replaced = [0, 1, 2, 6, 7, 8, 9, 100, *strangers]
    remaining = replaced if name == "committed" else [*range(10), *strangers]
    assert [row.id for row in everything(filled)] == remaining
    follow(filled)
    commit(filled, part)
    assert [row.id for row in everything(filled)] == replaced
