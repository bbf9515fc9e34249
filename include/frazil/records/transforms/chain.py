"""Applies transforms one after the other, and gives each record one outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from frazil.errors import Terminal
from frazil.records import pa, pc
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import Frame, Transform, Transformed
from frazil.records.transforms.fields import reject_all


def chain(transforms: Sequence[Transform], frame: Frame, *, is_inferred: bool = False) -> Transformed:
    """Apply transforms in their order, until no row is left.

    Each record of the frame has exactly one outcome: rows, a reason, or filtered. If one row of a record fails (its list was
    exploded), the whole record is dead. A record is filtered only if none of its rows is left.

    Args:
        transforms: The transforms.
        frame: The records.
        is_inferred: Whether each value brought its own fields. Then records whose fields don't fit a transform are dead letters;
            so they are behind a `JsonToMap` that infers types.

    Raises:
        Terminal: Declared fields, or those of a schema, don't fit a transform.
    """
    frames: tuple[Frame, ...] = (frame,)
    dead: dict[int, Reason] = {}
    filtered: set[int] = set()
    for transform in transforms:
        nonempty = [frame for frame in frames if len(frame)]
        if not nonempty:
            break
        done = _apply_to_frames(transform, nonempty, is_inferred=is_inferred)
        is_inferred = is_inferred or _infers(transform)
        # No reason is overwritten: the rows of a dead record are gone before the next transform.
        dead |= done.dead
        filtered |= done.filtered
        frames = done.frames
    # A record that one transform took a row of may still have others, or fail in a later transform.
    return combine_outcomes(frames, dict(sorted(dead.items())), filtered)


def _infers(transform: Transform) -> bool:
    """Return whether a transform infers fields from each value, as `JsonToMap` does without types."""
    inner = getattr(transform, "transform", None)  # behind a condition
    return bool(getattr(transform, "infers", False)) if inner is None else _infers(inner)


def _apply(transform: Transform, frame: Frame, *, is_inferred: bool) -> Transformed:
    try:
        return transform.apply(frame)
    except Terminal as misfit:
        if not is_inferred:
            raise
        return reject_all(frame, misfit.message)


def _apply_to_frames(transform: Transform, frames: Sequence[Frame], *, is_inferred: bool) -> Transformed:
    outcomes = [_apply(transform, frame, is_inferred=is_inferred) for frame in frames]
    dead: dict[int, Reason] = {}
    for outcome in outcomes:
        dead = {**outcome.dead, **dead}  # the first reason of a record stays
    filtered = frozenset[int]().union(*(outcome.filtered for outcome in outcomes))
    return combine_outcomes([frame for outcome in outcomes for frame in outcome.frames], dead, filtered)


def combine_outcomes(frames: Sequence[Frame], dead: Mapping[int, Reason], filtered: AbstractSet[int]) -> Transformed:
    """Give each record one outcome: a dead record loses all rows, and a record is filtered only if no row is left.

    No frame is empty, unless all are. Neighbouring frames of one shape become one.
    """
    frames_left = [drop_dead_records(frame, dead) for frame in frames]
    first, *other_frames = _merge_neighbours([frame for frame in frames_left if len(frame)] or frames_left[:1])
    without_rows = frozenset(filtered - dead.keys())
    for frame in (first, *other_frames) if without_rows else ():
        without_rows -= set(frame.positions.to_pylist())
    return Transformed(first, dead, without_rows, tuple(other_frames))


def drop_dead_records(frame: Frame, dead: Mapping[int, Reason]) -> Frame:
    """Return the frame without the rows of dead records."""
    if not dead or not len(frame):
        return frame
    is_dead = pc.is_in(frame.positions, value_set=pa.array(list(dead), pa.int64()))
    if not is_dead.true_count:
        return frame
    return frame.take(pc.indices_nonzero(pc.invert(is_dead)).cast(pa.int64()))


def _merge_neighbours(frames: Sequence[Frame]) -> list[Frame]:
    """Concatenate neighbouring frames with the same fields; the rows of a record keep their order."""
    runs: list[list[Frame]] = []
    for frame in frames:
        if runs and _has_same_fields(runs[-1][-1], frame):
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return [run[0] if len(run) == 1 else _concat(run) for run in runs]


def _has_same_fields(first: Frame, second: Frame) -> bool:
    if first.key is None or second.key is None:
        same_keys = first.key is second.key
    else:
        same_keys = first.key.schema.equals(second.key.schema, check_metadata=True)
    return same_keys and first.value.schema.equals(second.value.schema, check_metadata=True)


def _concat(frames: Sequence[Frame]) -> Frame:
    """Concatenate frames and sort by position; rows of one position keep the order of the frames."""
    keys = [frame.key for frame in frames if frame.key is not None]
    rows = Frame(
        pa.concat_batches([frame.records for frame in frames]),
        pa.concat_arrays([frame.positions for frame in frames]),
        pa.concat_arrays([frame.topic for frame in frames]),
        pa.concat_batches([frame.value for frame in frames]),
        pa.concat_batches(keys) if keys else None,
        pa.concat_arrays([frame.headers for frame in frames]),
    )
    return rows.take(pc.sort_indices(rows.positions).cast(pa.int64()))  # a stable sort
