"""What transforms won't find in any record, told before one is read: misspelled names of fields, mostly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.frame import Checked, Frame, Lack, Transform, Transformed
from frazil.records.sample import sample
from frazil.records.transforms.catalogue import TRANSFORMS
from frazil.records.transforms.conditions import Filter, When, WithKey


def lacks(transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None) -> Iterator[tuple[int, Lack]]:
    """Follow the fields from transform to transform, and return what the first one lacks that lacks anything.

    Transforms are followed as long as it is sure which fields they leave: up to an own one that is not `Checked`, and to
    one that fails on a record of nulls.

    Args:
        transforms: The transforms in their order.
        shape: The fields of all values before them.
        key_shape: The fields of all keys; None if they are not decoded, or each key says its own.

    Returns:
        Number of the transform, from 0, and what it lacks.
    """
    frame: Frame | None = sample(shape, key_shape)
    for number, given in enumerate(transforms):
        of_key, inner = (True, given.transform) if isinstance(given, WithKey) else (False, given)
        conditional, inner = (True, inner.transform) if isinstance(inner, When) else (False, inner)
        if frame is None or not _is_followed(inner):
            return
        if of_key and frame.key is None:
            continue
        try:
            found = list(inner.lacks(frame)) if isinstance(inner, Checked) else []
            left = None if found else _left(inner, frame, inner.apply(frame))
        except Terminal as e:
            found, left = [Lack("", e.message)], None
        yield from ((number, lack) for lack in found)
        frame = _either(frame, left) if conditional and left is not None else left


def _is_built_in(transform: Transform) -> bool:
    return type(transform) in TRANSFORMS.values()


def _is_followed(transform: Transform) -> bool:
    return _is_built_in(transform) or isinstance(transform, Checked)


def _left(transform: Transform, frame: Frame, done: Transformed) -> Frame | None:
    """Return a record with the fields that a transform leaves; None if that depends on values."""
    if isinstance(transform, Filter):
        return frame
    if done.dead or not (len(done.frame) or _is_built_in(transform)):
        return None
    left = done.frame  # also of no rows: what is filtered has the fields of what is not
    return sample(left.value.schema, None if left.key is None else left.key.schema)


def _either(untouched: Frame, touched: Frame) -> Frame | None:
    """Return a record with the fields of both, as `When` leaves them; None if a field can be of two types."""
    keys = [frame.key.schema for frame in (untouched, touched) if frame.key is not None]
    try:
        value = pa.unify_schemas([untouched.value.schema, touched.value.schema])
        return sample(value, pa.unify_schemas(keys) if keys else None)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
