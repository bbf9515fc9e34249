"""What transforms won't find in any record, told before one is read: misspelled names of fields, mostly."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.frame import Checked, Frame, Lack, Transform
from frazil.records.kafka import KAFKA_SCHEMA
from frazil.records.transforms.catalogue import TRANSFORMS
from frazil.records.transforms.conditions import Filter, When, WithKey
from frazil.records.transforms.fields import batch_of


def sample(shape: pa.Schema, key_shape: pa.Schema | None) -> Frame:
    """Return one row of a shape, all of it null.

    Args:
        shape: The fields of the value.
        key_shape: The fields of the key; None if there is none.
    """
    records = pa.RecordBatch.from_arrays([_sample(field) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)
    key = None if key_shape is None else _nothing(key_shape)
    return Frame.of(records, pa.array([0], pa.int64()), _nothing(shape), key)


def _nothing(shape: pa.Schema) -> pa.RecordBatch:
    """One row of a shape, all of it null."""
    nullable = pa.schema([field.with_nullable(nullable=True) for field in shape])
    # A shape may have no fields at all, and still has one row.
    return batch_of([(field, pa.nulls(1, field.type)) for field in nullable], 1)


def _sample(field: pa.Field) -> pa.Array:
    """One value of a column of a consumed record: of a text or number some, else null."""
    if field.nullable and field.name != "value":
        return pa.nulls(1, field.type)
    return pa.array([b"" if field.name == "value" else "topic" if field.name == "topic" else 0], field.type)


_MOST: Final = 64
"""Shapes that are followed: each condition may double them."""


def parted(transform: Transform) -> tuple[Transform, bool, bool]:
    """Return what is applied, whether only to some records, and whether only to those with a key."""
    of_key = isinstance(transform, WithKey)
    inner = transform.transform if isinstance(transform, WithKey) else transform
    return (inner.transform, True, of_key) if isinstance(inner, When) else (inner, False, of_key)


def left_by(transforms: Sequence[Transform], given: Frame) -> list[Frame]:
    """Return one record of each shape that transforms can leave of a record of nulls, none where that depends on values.

    Raises:
        Terminal: a transform fits none of the shapes that it gets.
    """
    frames = [given]
    for transform in transforms:
        inner, conditional, of_key = parted(transform)
        meant = [frame for frame in frames if not of_key or frame.key is not None]
        left = [] if conditional and isinstance(inner, Filter) else _applied(inner, meant)
        if not all(len(frame) for frame in left):
            return []
        passing = [frame for frame in frames if conditional or (of_key and frame.key is None)]
        frames = each_once([*passing, *left]) or []
    return frames


def _applied(transform: Transform, frames: Sequence[Frame]) -> list[Frame]:
    left: list[Frame] = []
    refused: Terminal | None = None
    for frame in frames:
        try:
            left += transform.apply(frame).frames
        except Terminal as e:
            refused = e
    if refused is not None and not left:
        raise refused
    return left


def each_once(frames: Iterable[Frame]) -> list[Frame] | None:
    """Return one frame of each shape; None if there are too many."""
    found: list[Frame] = []
    for frame in frames:
        if not any(_same(frame, known) for known in found):
            found.append(frame)
    return found if len(found) <= _MOST else None


def _same(one: Frame, other: Frame) -> bool:
    keys = [None if frame.key is None else frame.key.schema for frame in (one, other)]
    return one.value.schema == other.value.schema and keys[0] == keys[1]


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
