"""Checks before any record is read: which fields transforms need that no record can have, mostly misspelled names."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from frazil.errors import Terminal
from frazil.records.model.format import Checked, Frame, MissingField, Transform
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.records.transforms.definition import TransformDefinition
from frazil.records.transforms.fields import batch_of
from frazil.records.transforms.kinds.conditions import Filter, When, WithKey
from frazil.records.transforms.kinds.nested import JsonToMap


def _sample_frame(shape: pa.Schema, key_shape: pa.Schema | None) -> Frame:
    """Return a frame of one row of nulls, to try transforms on."""
    records = pa.RecordBatch.from_arrays([_sample(field) for field in KAFKA_SCHEMA], schema=KAFKA_SCHEMA)
    key = None if key_shape is None else _null_row(key_shape)
    return Frame.from_records(records, pa.array([0], pa.int64()), _null_row(shape), key)


def _null_row(shape: pa.Schema) -> pa.RecordBatch:
    """Return one row of nulls."""
    nullable = pa.schema([field.with_nullable(nullable=True) for field in shape])
    # A shape may have no fields at all, and still has one row.
    return batch_of([(field, pa.nulls(1, field.type)) for field in nullable], 1)


def _sample(field: pa.Field) -> pa.Array:
    """Return one value of a column of a consumed record: null, or some text or number where null is not allowed."""
    if field.nullable and field.name != "value":
        return pa.nulls(1, field.type)
    return pa.array([b"" if field.name == "value" else "topic" if field.name == "topic" else 0], field.type)


_MAX_SHAPES: Final = 64
"""Most distinct shapes to trace: each condition may double their number."""


def _unwrap_condition(transform: Transform) -> tuple[Transform, bool, bool]:
    """Return the transform without its conditions, whether it is conditional, and whether it needs a key."""
    of_key = isinstance(transform, WithKey)
    inner = transform.transform if isinstance(transform, WithKey) else transform
    return (inner.transform, True, of_key) if isinstance(inner, When) else (inner, False, of_key)


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


def missing_fields(
    transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None
) -> Iterator[tuple[int, MissingField]]:
    """Yield the missing fields of the first transform that misses any.

    Each transform is tried on a row of nulls, and its output goes to the next one. That ends at an own transform that is
    not `Checked`, and at one that fails on nulls: its output is not known. Behind a condition there are several shapes; a
    field is missing only if all of them lack it.

    Without `key_shape` keys are not decoded, or each says its own fields.

    Returns:
        Index of the transform, and a field that it misses.
    """
    yield from _trace(transforms, _sample_frame(shape, key_shape))


def certain_outputs(
    transforms: Sequence[Transform], shape: pa.Schema, key_shape: pa.Schema | None
) -> list[Frame] | None:
    """Return one row of nulls per shape that transforms are sure to make; None if that depends on values."""
    trace = _trace(transforms, _sample_frame(shape, key_shape))
    while True:
        try:
            next(trace)
        except StopIteration as end:
            outputs: list[Frame] | None = end.value
            return outputs


def _trace(
    transforms: Sequence[Transform], frame: Frame
) -> Generator[tuple[int, MissingField], None, list[Frame] | None]:
    """Yield the missing fields of the first transform that misses any; return the last outputs, None if they are not sure."""
    frames: list[Frame] | None = [frame]
    for number, transform in enumerate(transforms):
        inner, conditional, of_key = _unwrap_condition(transform)
        if not frames or not _is_traceable(inner):
            return None
        applicable = [frame for frame in frames if not of_key or frame.key is not None]
        trials = [_try(inner, frame) for frame in applicable]
        if missing := _missing_in_all([trial.missing for trial in trials]):
            yield from ((number, missing_field) for missing_field in missing)
            return None
        untouched = frames if conditional else [frame for frame in frames if of_key and frame.key is None]
        if any(trial.outputs is None for trial in trials):
            return None
        frames = _distinct_shapes([*untouched, *(frame for trial in trials for frame in trial.outputs or ())])
    return frames or None


@dataclass(frozen=True, slots=True)
class _Trial:
    """Missing fields of a transform on one shape, and its outputs; None if these depend on values."""

    missing: list[MissingField]
    outputs: list[Frame] | None


def _missing_in_all(missing_by_shape: Sequence[list[MissingField]]) -> list[MissingField]:
    """Return the fields that are missing in every shape."""
    first, *other_shapes = missing_by_shape or [[]]
    other_keys = [{(field.option, field.name) for field in missing} for missing in other_shapes]
    return [field for field in first if all((field.option, field.name) in keys for keys in other_keys)]


def _is_built_in(transform: Transform) -> bool:
    return isinstance(transform, TransformDefinition)


def _is_traceable(transform: Transform) -> bool:
    return _is_built_in(transform) or isinstance(transform, Checked)


def _try(transform: Transform, frame: Frame) -> _Trial:
    try:
        missing = list(transform.lacks(frame)) if isinstance(transform, Checked) else []
        return _Trial(missing, _output_samples(transform, frame, has_missing=bool(missing)))
    except Terminal as e:
        return _Trial([MissingField("", e.message)], [])


def _output_samples(transform: Transform, frame: Frame, *, has_missing: bool) -> list[Frame] | None:
    """Return samples of a transform's outputs: none if it fails for missing fields, None if they depend on values."""
    if isinstance(transform, Filter):
        return [frame]
    if isinstance(transform, JsonToMap) and transform.infers:
        return [] if has_missing else None
    done = transform.apply(frame)
    if done.dead:
        return [] if has_missing else None
    if not (len(done.frame) or _is_built_in(transform)):
        return None
    # An output without rows counts too: filtered rows would have had the same fields.
    return [
        _sample_frame(output.value.schema, None if output.key is None else output.key.schema) for output in done.frames
    ]
