"""Transforms one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import Reason
from frazil.records.frame import Frame, Transform, Transformed


def chain(transforms: Sequence[Transform], frame: Frame) -> Transformed:
    """Apply transforms in their order, until no row is left.

    Every record of the frame ends in exactly one way: it has rows, or a reason, or it was left out. A record of several
    rows (from an exploded list) of which one fails is dead as a whole; it was left out only if none of its rows is left.

    Raises:
        Terminal: what a transform raises.
    """
    dead: dict[int, Reason] = {}
    filtered: set[int] = set()
    for transform in transforms:
        if not len(frame):
            break
        step = transform.apply(frame)
        done = settled(step.frame, step.dead, step.filtered)
        # The first reason stays: rows of a record that failed are gone before the next transform.
        dead |= done.dead
        filtered |= done.filtered
        frame = done.frame
    # What lost one row may lose the others, or fail, further on.
    return settled(frame, dict(sorted(dead.items())), filtered)


def settled(frame: Frame, dead: Mapping[int, Reason], filtered: AbstractSet[int]) -> Transformed:
    """Return what became of records as one outcome each: no rows of a dead one, filtered only without any row left."""
    rows = _without(frame, dead)
    left_out = filtered - dead.keys() - set(rows.positions.to_pylist()) if filtered else filtered
    return Transformed(rows, dead, frozenset(left_out))


def _without(frame: Frame, dead: Mapping[int, Reason]) -> Frame:
    """Return the frame without the other rows of dead records."""
    if not dead or not len(frame):
        return frame
    of_dead = pc.is_in(frame.positions, value_set=pa.array(list(dead), pa.int64()))
    if not of_dead.true_count:
        return frame
    return frame.take(pc.indices_nonzero(pc.invert(of_dead)).cast(pa.int64()))
