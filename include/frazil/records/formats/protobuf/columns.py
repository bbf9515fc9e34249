"""Fields of many messages to columns. Values that can't be converted are suspect: the reader of single values judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import MAXYEAR, MINYEAR
from decimal import Decimal
from functools import partial
from itertools import accumulate, chain
from operator import attrgetter, methodcaller
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from frazil.records.formats.logical import INSTANT
from frazil.records.formats.protobuf.well_known import FIRST_SECOND, LAST_SECOND, NANOS, Convert
from frazil.records.json.times import SECOND
from frazil.records.model.dead_letter import Rejection

ReadColumn = Callable[[Sequence[Any], set[int]], pa.Array]
"""Takes values, or messages of which it reads one field; adds positions of suspect ones to the set. Their rows mean nothing."""

_INT64_DIGITS: Final = 18
_MONTHS: Final = 12
_EPOCH_YEAR: Final = 1970


def values(convert: Convert | None, data_type: pa.DataType) -> ReadColumn:
    """Return a reader of values; those that `convert` rejects are suspect."""
    if convert is None:
        return lambda items, _suspects: pa.array(items, data_type)
    return lambda items, suspects: pa.array(_converted(convert, items, suspects), data_type)


def texts(convert: Convert) -> ReadColumn:
    """Return a reader of texts; `convert` rejects those that the runtime hands out as bytes."""
    read_all = values(convert, pa.string())

    def read_column(items: Sequence[Any], suspects: set[int]) -> pa.Array:
        return read_all(items, suspects) if bytes in set(map(type, items)) else pa.array(items, pa.string())

    return read_column


def _converted(convert: Convert, items: Sequence[Any], suspects: set[int]) -> list[object]:
    converted: list[object] = []
    remaining = iter(items)
    while True:
        try:
            converted.extend(map(convert, remaining))
        except Rejection:  # `extend` has kept what came before
            suspects.add(len(converted))
            converted.append(None)
        else:
            return converted


def plain(name: str, read: ReadColumn) -> ReadColumn:
    """Return a reader of a field without presence."""
    getter = attrgetter(name)
    return lambda messages, suspects: read(list(map(getter, messages)), suspects)


def optional(name: str, read: ReadColumn) -> ReadColumn:
    """Return a reader of a field with presence: null where it is not set."""
    getter, has_field = attrgetter(name), methodcaller("HasField", name)

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        is_set = np.fromiter(map(has_field, messages), np.bool_, len(messages))
        if is_set.all():
            return read(list(map(getter, messages)), suspects)
        rows = np.flatnonzero(is_set)
        inner: set[int] = set()
        column = read([getter(messages[row]) for row in rows.tolist()], inner)
        suspects.update(int(rows[item]) for item in inner)
        return column.take(pa.array(np.cumsum(is_set) - 1, mask=~is_set))

    return read_column


def repeated(name: str, data_type: pa.DataType, read: ReadColumn) -> ReadColumn:
    """Return a reader of a repeated field, of a type of lists."""
    getter = attrgetter(name)

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        lists = [getter(message)[:] for message in messages]
        ends = np.fromiter(accumulate(map(len, lists), initial=0), np.int32, len(lists) + 1)
        inner: set[int] = set()
        items = read(list(chain.from_iterable(lists)), inner)
        suspects.update(int(np.searchsorted(ends, item, "right")) - 1 for item in inner)
        return pa.ListArray.from_arrays(pa.array(ends), items, data_type)

    return read_column


def struct(data_type: pa.StructType, readers: Sequence[ReadColumn]) -> ReadColumn:
    """Return a reader of messages by their fields."""
    fields = list(data_type)
    return lambda messages, suspects: pa.StructArray.from_arrays(
        [read(messages, suspects) for read in readers], fields=fields
    )


def instants(messages: Sequence[Any], suspects: set[int], *, truncates: bool = False) -> pa.Array:
    """Read `google.protobuf.Timestamp`."""
    seconds, nanos = _integers("seconds", messages), _integers("nanos", messages)
    bad = (seconds < FIRST_SECOND) | (seconds > LAST_SECOND) | (nanos < 0) | (nanos >= NANOS)
    if not truncates:
        bad |= nanos % 1_000 != 0
    suspects.update(np.flatnonzero(bad).tolist())
    return pa.array(np.where(bad, 0, seconds) * SECOND + nanos // 1_000).cast(INSTANT)


def dates(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
    """Read `google.type.Date`."""
    years, months, days = (_integers(name, messages) for name in ("year", "month", "day"))
    bad = (years < MINYEAR) | (years > MAXYEAR) | (months < 1) | (months > _MONTHS)
    month = np.where(bad, 0, (years - _EPOCH_YEAR) * _MONTHS + months - 1)
    first, following = (
        number.astype("datetime64[M]").astype("datetime64[D]").astype(np.int32) for number in (month, month + 1)
    )
    bad |= (days < 1) | (days > following - first)
    suspects.update(np.flatnonzero(bad).tolist())
    return pa.array((first + np.where(bad, 1, days) - 1).astype(np.int32)).cast(pa.date32())


def decimals(data_type: pa.DataType, convert: Convert) -> ReadColumn:
    """Return a reader of `confluent.type.Decimal` of a declared precision and scale."""
    if not pa.types.is_decimal128(data_type) or data_type.precision > _INT64_DIGITS:
        return values(convert, data_type)
    scale, limit = data_type.scale, 10**data_type.precision

    def unscaled(message: Any) -> int:
        if message.scale == scale:
            digits = int.from_bytes(message.value, "big", signed=True)
            if -limit < digits < limit:
                return digits
        return int(cast("Decimal", convert(message)).scaleb(scale))

    def read_column(messages: Sequence[Any], suspects: set[int]) -> pa.Array:
        low = pa.array(_converted(unscaled, messages, suspects), pa.int64()).fill_null(0).to_numpy()
        words = np.stack([low, low >> 63], axis=1)  # 128 bits, the low ones first, then those of the sign
        return pa.Array.from_buffers(data_type, len(low), [None, pa.py_buffer(words)])

    return read_column


def _integers(name: str, messages: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.array(list(map(attrgetter(name), messages)), np.int64)


KNOWN_COLUMNS: Final[Mapping[str, ReadColumn]] = {"google.protobuf.Timestamp": instants, "google.type.Date": dates}
TRUNCATING_COLUMNS: Final[Mapping[str, ReadColumn]] = {
    **KNOWN_COLUMNS,
    "google.protobuf.Timestamp": partial(instants, truncates=True),
}
"""The same without what is finer than microseconds."""
"""Readers of messages that stand for one value."""
