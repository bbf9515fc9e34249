"""Fields that no column takes, and which values have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import UnknownFields

_COUNTED = 10_000
"""Names of one batch, the most frequent ones."""


@dataclass(frozen=True, slots=True)
class UnknownAt:
    """Pairs of a value's position and the name of a field of it that is left out; a pair may be there twice.

    Attributes:
        positions: int64.
        names: Text, as many.
    """

    positions: pa.Int64Array
    names: pa.StringArray

    @classmethod
    def of(cls, found: Mapping[int, Iterable[str]]) -> UnknownAt:
        """Return the pairs of names by position."""
        pairs = [(at, name.encode("utf-8", "replace").decode()) for at, names in found.items() for name in names]
        return cls(pa.array([at for at, _ in pairs], pa.int64()), pa.array([name for _, name in pairs], pa.string()))

    @classmethod
    def together(cls, parts: Iterable[UnknownAt]) -> UnknownAt:
        """Return the pairs of all parts."""
        found = [part for part in parts if len(part)]
        if len(found) <= 1:
            return found[0] if found else NOTHING_UNKNOWN
        return cls(
            pa.concat_arrays([part.positions for part in found]), pa.concat_arrays([part.names for part in found])
        )

    def __len__(self) -> int:
        return len(self.positions)

    def among(self, positions: pa.Int64Array) -> UnknownAt:
        """Return the positions that a selection of values has among all: `positions` of them."""
        return UnknownAt(positions.take(self.positions), self.names) if len(self) else self

    def only(self, positions: pa.Int64Array) -> UnknownAt:
        """Return the pairs of some values."""
        if not len(self):
            return self
        kept = pc.is_in(self.positions, value_set=positions)
        return UnknownAt(self.positions.filter(kept), self.names.filter(kept))

    def without(self, names: Collection[str]) -> UnknownAt:
        """Return the pairs with other names."""
        if not (names and len(self)):
            return self
        kept = pc.invert(pc.is_in(self.names, value_set=pa.array(sorted(names), pa.string())))
        return UnknownAt(self.positions.filter(kept), self.names.filter(kept))

    def by_position(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each position once, ascending, with its names."""
        pairs = sorted(zip(self.positions.to_pylist(), self.names.to_pylist(), strict=True), key=lambda pair: pair[0])
        for at, found in groupby(pairs, key=lambda pair: pair[0]):
            yield at, list(dict.fromkeys(name for _, name in found))

    def counted(self) -> UnknownFields:
        """Count values and names, each name once per value."""
        if not len(self):
            return UnknownFields()
        encoded = self.names.dictionary_encode()
        names, codes = encoded.dictionary, encoded.indices.cast(pa.int64())
        pairs = pc.add(pc.multiply(self.positions, len(names)), codes)
        once = pc.unique(pairs)
        if len(once) < len(pairs):
            codes = pc.subtract(once, pc.multiply(pc.divide(once, len(names)), len(names)))
        found = pc.value_counts(codes)
        if len(found) > _COUNTED:  # keys may be data
            rows = pa.RecordBatch.from_struct_array(found)
            found = found.take(pc.select_k_unstable(rows, _COUNTED, sort_keys=[("counts", "descending")]))
        counts = {names[of["values"]].as_py(): of["counts"] for of in found.to_pylist()}
        return UnknownFields.counted(len(pc.unique(self.positions)), counts)


NOTHING_UNKNOWN = UnknownAt.of({})
