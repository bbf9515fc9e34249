"""Any stream of changes, cut into any batches, killed and landed again, leaves the table as a dict would be."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from frazil import failpoints
from frazil.failpoints import Failpoint
from tests.spark.changes import MERGE, Changed, Customers
from tests.spark.documents import sqlite

PLACES = (Failpoint.BRANCH_MADE, Failpoint.BRANCH_STAGED, Failpoint.FOLLOW_COMMITTING, Failpoint.FOLLOW_COMMITTED)

ops = st.sampled_from(["upsert", "upsert", "upsert", "delete", "truncate"])
streams = st.lists(st.tuples(ops, st.integers(0, 4), st.text("ab\x00é", max_size=2)), min_size=1, max_size=14)


@dataclass(frozen=True)
class Course:
    """A stream of changes, where it is cut, after which batch something dies, and how far back the last one reads again."""

    changes: Sequence[Changed]
    cuts: frozenset[int]
    kills: dict[int, Failpoint]
    again: int

    @property
    def batches(self) -> Iterator[Sequence[Changed]]:
        """The batches, in order; where deleted rows stay, the last one reads old changes again."""
        ends = sorted({*self.cuts, len(self.changes)})
        for start, end in zip([0, *ends], ends, strict=False):
            if start < end:
                yield self.changes[start:end]


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Of one partition, so that offsets tell the order."""
    stream = draw(streams)
    changes = [
        Changed(index, op, None if op == "truncate" else key, name if op == "upsert" else None)
        for index, (op, key, name) in enumerate(stream)
    ]
    cuts = draw(st.frozensets(st.integers(1, len(changes)), max_size=3))
    kills = draw(st.dictionaries(st.integers(1, 4), st.sampled_from(PLACES), max_size=2))
    return Course(changes, cuts, kills, draw(st.integers(0, len(changes))))


class Killed(BaseException):
    """The end of the process, as far as a test can have it."""


def rows_of(changes: Sequence[Changed]) -> dict[int, tuple[str | None, bool]]:
    """The model: of each key its value, and whether it was deleted."""
    rows: dict[int, tuple[str | None, bool]] = {}
    for change in changes:
        if change.op == "truncate":
            rows = {key: (name, True) for key, (name, _) in rows.items()}
        elif change.id is not None:
            row = rows.get(change.id, (None, False))[0]
            rows[change.id] = (change.name, False) if change.op == "upsert" else (row, True)
    return rows


def landed(customers: Customers, course: Course, *, soft: bool) -> None:
    """Land all batches, the killed ones twice; where it must not matter, an old range at last."""
    merge = replace(MERGE, deleted="_frazil_deleted") if soft else MERGE
    n = 0
    for n, batch in enumerate(course.batches, 1):
        change = customers.change(n, batch)
        if n in course.kills:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(failpoints, "hit", killer(course.kills[n]))
                with pytest.raises(Killed):
                    customers.land(change, merge)
        customers.land(change, merge)
    if soft and course.again:
        customers.land(customers.change(n + 1, course.changes[: course.again]), merge)


def killer(place: Failpoint) -> object:
    """Ends the process at a place."""

    def reached(point: Failpoint) -> None:
        if point is place:
            raise Killed

    return reached


@pytest.mark.timeout(900)
@pytest.mark.parametrize("soft", [False, pytest.param(True, marks=pytest.mark.full)])
@settings(
    max_examples=4,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(course=courses())
def test_stream_ends_as_dict_does(spark: SparkSession, soft: bool, course: Course) -> None:
    """Keys and values are those of the stream read in one go; of deleted rows nothing, or their last values and the mark."""
    with tempfile.TemporaryDirectory() as folder:
        customers = Customers(spark, sqlite(Path(folder) / secrets.token_hex(4)), soft=soft)
        landed(customers, course, soft=soft)
        model = rows_of(course.changes)
        if soft:
            by_key = {row[0]: (row[1], row[2]) for row in customers.rows("id", "name", "_frazil_deleted")}
            assert by_key == model
        else:
            assert dict(customers.rows()) == {key: name for key, (name, is_deleted) in model.items() if not is_deleted}
        assert len(customers.rows()) == len({row[0] for row in customers.rows()})
        assert set(customers.metadata.refs) == {"main"}
