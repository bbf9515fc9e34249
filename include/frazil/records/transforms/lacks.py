"""What transforms won't find in any record, told before one is read: misspelled names of fields, mostly."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.frame import Checked, Frame, Lack, Transform
from frazil.records.sample import sample
from frazil.records.transforms.catalogue import TRANSFORMS
from frazil.records.transforms.conditions import Filter
from frazil.records.transforms.shapes import each_once, parted


def lacks(transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None) -> Iterator[tuple[int, Lack]]:
    """Follow the fields from transform to transform, and return what the first one lacks that lacks anything.

    Transforms are followed as long as it is sure which fields they leave: up to an own one that is not `Checked`, and to
    one that fails on a record of nulls. Behind a condition records are of several shapes: only what all of them lack is
    told.

    Args:
        transforms: The transforms in their order.
        shape: The fields of all values before them.
        key_shape: The fields of all keys; None if they are not decoded, or each key says its own.

    Returns:
        Number of the transform, from 0, and what it lacks.
    """
    yield from _followed(transforms, sample(shape, key_shape))


def left(transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None) -> list[Frame] | None:
    """Return records of nulls with the fields that transforms leave, one of each shape; None if that is not sure.

    Args:
        transforms: The transforms in their order.
        shape: The fields of all values before them.
        key_shape: The fields of all keys; None if they are not decoded, or each key says its own.
    """
    steps = _followed(transforms, sample(shape, key_shape))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[Frame] | None = end.value
            return found


def _followed(transforms: Sequence[Transform], frame: Frame) -> Generator[tuple[int, Lack], None, list[Frame] | None]:
    """Yield what the first transform lacks that lacks anything; return what the last one leaves, None if that is not sure."""
    frames: list[Frame] | None = [frame]
    for number, given in enumerate(transforms):
        inner, conditional, of_key = parted(given)
        if not frames or not _is_followed(inner):
            return None
        meant = [frame for frame in frames if not of_key or frame.key is not None]
        tried = [_tried(inner, frame) for frame in meant]
        if found := _common([each.lacks for each in tried]):
            yield from ((number, lack) for lack in found)
            return None
        passing = frames if conditional else [frame for frame in frames if of_key and frame.key is None]
        if any(each.left is None for each in tried):
            return None
        frames = each_once([*passing, *(frame for each in tried for frame in each.left or ())])
    return frames or None


@dataclass(frozen=True, slots=True)
class _Tried:
    """What a transform lacks in a shape, and the shapes that it leaves; None if these depend on values."""

    lacks: list[Lack]
    left: list[Frame] | None


def _common(found: Sequence[list[Lack]]) -> list[Lack]:
    """Return what is lacking in every shape."""
    first, *others = found or [[]]
    known = [{(lack.option, lack.name) for lack in other} for other in others]
    return [lack for lack in first if all((lack.option, lack.name) in each for each in known)]


def _is_built_in(transform: Transform) -> bool:
    return type(transform) in TRANSFORMS.values()


def _is_followed(transform: Transform) -> bool:
    return _is_built_in(transform) or isinstance(transform, Checked)


def _tried(transform: Transform, frame: Frame) -> _Tried:
    try:
        found = list(transform.lacks(frame)) if isinstance(transform, Checked) else []
        return _Tried(found, _left(transform, frame, lacking=bool(found)))
    except Terminal as e:
        return _Tried([Lack("", e.message)], [])


def _left(transform: Transform, frame: Frame, *, lacking: bool) -> list[Frame] | None:
    """Return records with the fields that a transform leaves, none if it fails for what it lacks; None: it depends on values."""
    if isinstance(transform, Filter):
        return [frame]
    done = transform.apply(frame)
    if done.dead:
        return [] if lacking else None
    if not (len(done.frame) or _is_built_in(transform)):
        return None
    # Also of no rows: what is filtered has the fields of what is not.
    return [sample(of.value.schema, None if of.key is None else of.key.schema) for of in done.frames]
