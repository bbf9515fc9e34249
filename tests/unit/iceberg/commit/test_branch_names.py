"""Names of branches, and the sweep of those that nobody needs: whose they are must be beyond doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.exceptions import (
    UnauthorizedError,
)

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.branch import STALE_AFTER_MS, BranchName, branch_name, remove_stale_branches
from frazil.iceberg.commit.commit import ATTEMPTS
from tests.unit.iceberg.orders import (
    TABLE,
    Step,
    answer_lost,
    follow,
    never_arrived,
    overtaken,
)
from tests.unit.iceberg.replays import (
    ERRORS,
    NOW,
    branches,
    drop_branch,
    make_branch,
)


@pytest.mark.parametrize("pipeline", ["orders", "a", "orders-2-1800000000000-00000000", "with-2"])
def test_name_of_a_branch_tells_pipeline_and_batch(pipeline: str) -> None:
    """A name tells pipeline and batch, whatever a pipeline is called, and no two are equal."""
    name = branch_name(pipeline, 7)

    found = BranchName.parse(name)

    assert found is not None
    assert (found.pipeline, found.n) == (pipeline, 7)
    assert branch_name(pipeline, 7) != name


@pytest.mark.parametrize(
    "name", ["main", "audit", "frazil", "frazil-orders-7", "frazil-orders-7-1-0000000g", "x-frazil-a-1-1-00000000"]
)
def test_foreign_branch_names_are_not_recognised(name: str) -> None:
    """Names that Frazil does not give."""
    assert BranchName.parse(name) is None


STALE = STALE_AFTER_MS // 1000
"""Seconds after which a branch is nobody's."""


def named(pipeline: str, n: int, age_s: int) -> str:
    return f"frazil-{pipeline}-{n}-{NOW - age_s * 1000}-{0:08x}"


def test_branches_of_others_are_kept(filled: Lake) -> None:
    """Stale branches of this pipeline go, in one commit; running ones, other pipelines' and people's stay."""
    stale = [named("orders", 1, 5), named("orders", 2, 5), named("orders", 3, STALE + 1)]
    others = [
        "audit",
        named("orders", 3, STALE - 1),
        named("payments", 1, 2 * STALE),
        named("orders-x", 1, 2 * STALE),
        "frazil-orders-1",
    ]
    for name in (*stale, *others):
        make_branch(filled, name)

    assert sorted(remove_stale_branches(filled, TABLE, "orders", 2, NOW)) == sorted(stale)

    assert branches(filled) == sorted(others)
    assert remove_stale_branches(filled, TABLE, "orders", 2, NOW) == ()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("step", [answer_lost, never_arrived], ids=["landed", "did not land"])
def test_lost_answer_still_removes_stale_branches(
    filled: Lake, error: Exception, step: Callable[[Exception], Step]
) -> None:
    """Sweeping is repeated until the table says it is done."""
    make_branch(filled, named("orders", 1, 5))
    follow(filled, step(error))

    remove_stale_branches(filled, TABLE, "orders", 2, NOW)

    assert branches(filled) == []


def test_branch_removed_meanwhile_does_not_stop_the_cleanup(filled: Lake) -> None:
    """Somebody else sweeps at the same moment."""
    first, second = named("orders", 1, 5), named("orders", 2, 5)
    make_branch(filled, first)
    make_branch(filled, second)
    follow(filled, overtaken(lambda: drop_branch(filled, first)))

    assert remove_stale_branches(filled, TABLE, "orders", 2, NOW) == (second,)
    assert branches(filled) == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ERRORS[0], Retryable), (ERRORS[1], Retryable), (ERRORS[2], Retryable), (UnauthorizedError("401"), Terminal)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_failed_cleanup_is_an_error(filled: Lake, error: Exception, expected: type[Exception]) -> None:
    """A catalog that takes no commit: the error says what the caller may do."""
    make_branch(filled, named("orders", 1, 5))
    follow(filled, *[never_arrived(error)] * ATTEMPTS)

    with pytest.raises(expected, match=f"removing stale branches of table {TABLE}"):
        remove_stale_branches(filled, TABLE, "orders", 2, NOW)
