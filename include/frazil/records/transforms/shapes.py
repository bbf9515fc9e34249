"""Which fields records can have behind a transform: a `When` leaves those that it touches and the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from frazil.errors import Terminal
from frazil.records.frame import Frame, Transform
from frazil.records.transforms.conditions import Filter, When, WithKey

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
