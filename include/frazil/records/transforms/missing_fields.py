"""Finds fields that transforms need and no record can have, mostly misspelled names, before any record is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.model.format import Checked, Frame, MissingField, Transform
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.records.transforms.definition import TransformDefinition
from frazil.records.transforms.fields import null_row
from frazil.records.transforms.kinds.conditions import Filter, When, WithKey
from frazil.records.transforms.kinds.nested import JsonToMap


def _sample_frame(shape: pa.Schema, key_shape: pa.Schema | None) -> Frame:
    """Return a frame of one row of nulls, to try transforms on."""
    records = pa.RecordBatch.from_arrays([_sample(field) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)
    key = None if key_shape is None else null_row(key_shape)
    return Frame.from_records(records, pa.array([0], pa.int64()), null_row(shape), key)


def _sample(field: pa.Field) -> pa.Array:
    """Return one value of a column of a consumed record: null, or some text or number where null is not allowed."""
    if field.nullable and field.name != "value":
        return pa.nulls(1, field.type)
    return pa.array([{"value": b"", "topic": "topic"}.get(field.name, 0)], field.type)


_MAX_SHAPES: Final = 64
"""Most distinct shapes to trace: each condition may double their number."""


def _unwrap_condition(transform: Transform) -> tuple[Transform, bool, bool]:
    """Return the transform without its conditions, whether it is conditional, and whether it needs a key."""
    needs_key = isinstance(transform, WithKey)
    inner = transform.transform if isinstance(transform, WithKey) else transform
    return (inner.transform, True, needs_key) if isinstance(inner, When) else (inner, False, needs_key)


def _distinct_shapes(frames: Iterable[Frame]) -> list[Frame] | None:
    """Return one frame per shape; None if there are too many shapes."""
    distinct: list[Frame] = []
    for frame in frames:
        if not any(_has_same_shape(frame, earlier) for earlier in distinct):
            distinct.append(frame)
    return distinct if len(distinct) <= _MAX_SHAPES else None


def _has_same_shape(first: Frame, second: Frame) -> bool:
    keys = [None if frame.key is None else frame.key.schema for frame in (first, second)]
    return first.value.schema == second.value.schema and keys[0] == keys[1]


Missing = list[tuple[int, MissingField]]
"""Index of a transform, and a field that it needs and no record has."""


def missing_fields(transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None) -> Missing:
    """Return the missing fields of the first transform that misses any.

    Each transform is tried on a row of nulls, and its output goes to the next one. The search ends at an own transform that is
    not `Checked`, and at a transform that fails on nulls: its output is not known. After a condition there are several shapes; a
    field is missing only if all of them lack it.

    Without `key_shape`, keys are not decoded or each key has its own fields.
    """
    return _trace(transforms, _sample_frame(shape, key_shape))[0]


def certain_outputs(
    transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None
) -> list[Frame] | None:
    """Return one row of nulls per shape that transforms are sure to output; None if the shapes depend on values."""
    return _trace(transforms, _sample_frame(shape, key_shape))[1]


def _trace(transforms: Sequence[Transform], sample: Frame) -> tuple[Missing, list[Frame] | None]:
    """Return the missing fields of the first transform that misses any, and the last outputs; None if they are not sure."""
    frames = [sample]
    for number, transform in enumerate(transforms):
        inner, is_conditional, needs_key = _unwrap_condition(transform)
        if not isinstance(inner, Checked):
            return [], None
        trials = [_try(inner, frame) for frame in frames if not needs_key or frame.key is not None]
        if missing := _missing_in_all([missing for missing, _ in trials]):
            return [(number, missing_field) for missing_field in missing], None
        outputs = frames if is_conditional else [frame for frame in frames if needs_key and frame.key is None]
        for _, new_outputs in trials:
            if new_outputs is None:
                return [], None
            outputs = [*outputs, *new_outputs]
        frames = _distinct_shapes(outputs) or []
        if not frames:
            return [], None
    return [], frames


def _missing_in_all(missing_by_shape: Sequence[list[MissingField]]) -> list[MissingField]:
    """Return the fields that are missing in every shape."""
    first, *other_shapes = missing_by_shape or [[]]
    other_keys = [{(field.option, field.name) for field in missing} for missing in other_shapes]
    return [field for field in first if all((field.option, field.name) in keys for keys in other_keys)]


def _try(transform: Checked, frame: Frame) -> tuple[list[MissingField], list[Frame] | None]:
    """Return the missing fields of a transform on one shape, and its outputs; None if the outputs depend on values."""
    try:
        missing = list(transform.lacks(frame))
        return missing, _output_samples(transform, frame, has_missing=bool(missing))
    except Terminal as e:
        return [MissingField("", e.message)], []


def _output_samples(transform: Transform, frame: Frame, *, has_missing: bool) -> list[Frame] | None:
    """Return samples of a transform's outputs: none if it fails for missing fields, None if they depend on values."""
    if isinstance(transform, Filter):
        return [frame]
    if isinstance(transform, JsonToMap) and transform.infers:
        return [] if has_missing else None
    done = transform.apply(frame)
    if done.dead:
        return [] if has_missing else None
    if not (len(done.frame) or isinstance(transform, TransformDefinition)):
        return None
    # An output without rows counts too: filtered rows would have had the same fields.
    return [
        _sample_frame(output.value.schema, None if output.key is None else output.key.schema) for output in done.frames
    ]
