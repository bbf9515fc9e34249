"""Transforms one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from frazil.errors import Terminal
from frazil.records import pa, pc
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.format import Frame, Transform, Transformed


def chain(transforms: Sequence[Transform], frame: Frame, *, is_inferred: bool = False) -> Transformed:
    """Apply transforms in their order, until no row is left.

    Where the fields are those that values happen to have, `is_inferred`, a transform that they don't fit makes dead letters of
    these records, as it does behind `JsonToMap` whose objects have inferred types; fields that are declared, or come with a
    schema, are the business of a person.

    Every record of the frame ends in exactly one way: it has rows, or a reason, or it was left out. A record of several
    rows (from an exploded list) of which one fails is dead as a whole; it was left out only if none of its rows is left.

    Raises:
        Terminal: what a transform raises.
    """
    frames: tuple[Frame, ...] = (frame,)
    dead: dict[int, Reason] = {}
    filtered: set[int] = set()
    for transform in transforms:
        nonempty = [frame for frame in frames if len(frame)]
        if not nonempty:
            break
        done = _step(transform, nonempty, is_inferred=is_inferred)
        is_inferred = is_inferred or _infers(transform)
        # The first reason stays: rows of a record that failed are gone before the next transform.
        dead |= done.dead
        filtered |= done.filtered
        frames = done.frames
    # What lost one row may lose the others, or fail, further on.
    return combine_outcomes(frames, dict(sorted(dead.items())), filtered)


def _infers(transform: Transform) -> bool:
    """Return whether each value tells the fields that come out of a transform, as objects do that `JsonToMap` reads."""
    inner = getattr(transform, "transform", None)  # behind a condition
    return bool(getattr(transform, "infers", False)) if inner is None else _infers(inner)


def _applied(transform: Transform, frame: Frame, *, is_inferred: bool) -> Transformed:
    try:
        return transform.apply(frame)
    except Terminal as misfit:
        if not is_inferred:
            raise
        reason = Reason(DeadCode.TRANSFORM_FAILED, misfit.message)
        nothing = frame.take(pa.array([], pa.int64()))
        return Transformed(nothing, dict.fromkeys(frame.positions.to_pylist(), reason))


def _step(transform: Transform, frames: Sequence[Frame], *, is_inferred: bool) -> Transformed:
    steps = [_applied(transform, frame, is_inferred=is_inferred) for frame in frames]
    dead: dict[int, Reason] = {}
    for step in steps:
        dead = {**step.dead, **dead}  # the first reason of a record stays
    filtered = frozenset[int]().union(*(step.filtered for step in steps))
    return combine_outcomes([frame for step in steps for frame in step.frames], dead, filtered)


def combine_outcomes(frames: Sequence[Frame], dead: Mapping[int, Reason], filtered: AbstractSet[int]) -> Transformed:
    """Give each record one outcome: a dead record loses all rows, and it is filtered only if no row is left.

    No frame is empty, unless all are. Neighbouring frames of one shape become one.
    """
    frames_left = [drop_dead_records(frame, dead) for frame in frames]
    first, *other_frames = _merge_neighbours([frame for frame in frames_left if len(frame)] or frames_left[:1])
    left_out = frozenset(filtered - dead.keys())
    for frame in (first, *other_frames) if left_out else ():
        left_out -= set(frame.positions.to_pylist())
    return Transformed(first, dead, left_out, tuple(other_frames))


def drop_dead_records(frame: Frame, dead: Mapping[int, Reason]) -> Frame:
    """Return the frame without the other rows of dead records."""
    if not dead or not len(frame):
        return frame
    of_dead = pc.is_in(frame.positions, value_set=pa.array(list(dead), pa.int64()))
    if not of_dead.true_count:
        return frame
    return frame.take(pc.indices_nonzero(pc.invert(of_dead)).cast(pa.int64()))


def _merge_neighbours(frames: Sequence[Frame]) -> list[Frame]:
    """Concatenate neighbouring frames with the same fields; the rows of a record keep their order."""
    parts: list[list[Frame]] = []
    for frame in frames:
        if parts and _same_shape(parts[-1][-1], frame):
            parts[-1].append(frame)
        else:
            parts.append([frame])
    return [part[0] if len(part) == 1 else _concat(part) for part in parts]


def _same_shape(first: Frame, second: Frame) -> bool:
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
