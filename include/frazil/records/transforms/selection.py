"""Which rows of a frame go on. A record is dead if one of its rows is, and filtered only if no row of it is left."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.dead import Reason
from frazil.records.frame import Frame, Transformed


def select(
    frame: Frame, kept: pa.BooleanArray | None = None, failed: Mapping[int, Reason] | None = None
) -> Transformed:
    """Return the rows that go on, and the records that don't.

    Args:
        frame: The rows.
        kept: Per row whether it goes on; None means all do. Null counts as false.
        failed: Reasons by row; they outdo `kept`, and take the other rows of their records with them.
    """
    dead = _by_position(frame, failed or {})
    going = _all(len(frame)) if kept is None else pc.fill_null(kept, fill_value=False)
    if dead:
        lost = pc.is_in(frame.positions, value_set=pa.array(list(dead), pa.int64()))
        going = pc.and_(going, pc.invert(lost))
    if going.true_count == len(frame):
        return Transformed(frame)
    rest = frame.take(pc.indices_nonzero(going).cast(pa.int64()))
    gone = set(pc.unique(frame.positions.filter(pc.invert(going))).to_pylist())
    return Transformed(rest, dead, frozenset(gone.difference(dead, rest.positions.to_pylist())))


def _by_position(frame: Frame, failed: Mapping[int, Reason]) -> dict[int, Reason]:
    dead: dict[int, Reason] = {}
    for row in sorted(failed):
        dead.setdefault(frame.positions[row].as_py(), failed[row])
    return dead


def _all(size: int) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value=True), size)
