"""Fields that no column takes, and the positions of the values that have them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.facts import UnknownFields

_MAX_NAMES = 10_000
"""At most so many names are counted per batch: the most frequent ones."""


@dataclass(frozen=True, slots=True)
class UnknownFieldPairs:
    """Pairs of a value's position and the name of one of its fields that no column takes. A pair may repeat."""

    positions: pa.Int64Array
    names: pa.StringArray

    @classmethod
    def from_names(cls, names_by_position: Mapping[int, Iterable[str]]) -> UnknownFieldPairs:
        """Return the pairs of a mapping from position to names."""
        pairs = [
            (position, name.encode("utf-8", "replace").decode())
            for position, names in names_by_position.items()
            for name in names
        ]
        return cls(
            pa.array([position for position, _ in pairs], pa.int64()),
            pa.array([name for _, name in pairs], pa.string()),
        )

    @classmethod
    def concat(cls, parts: Iterable[UnknownFieldPairs]) -> UnknownFieldPairs:
        """Return the pairs of all parts."""
        filled = [part for part in parts if len(part)]
        if len(filled) <= 1:
            return filled[0] if filled else NOTHING_UNKNOWN
        return cls(
            pa.concat_arrays([part.positions for part in filled]), pa.concat_arrays([part.names for part in filled])
        )

    def __len__(self) -> int:
        return len(self.positions)

    def map_positions(self, positions: pa.Int64Array) -> UnknownFieldPairs:
        """Translate positions in a selection of values into positions among all values: `positions` of the selected ones."""
        return UnknownFieldPairs(positions.take(self.positions), self.names) if len(self) else self

    def at_positions(self, positions: pa.Int64Array) -> UnknownFieldPairs:
        """Return the pairs of the values at these positions."""
        if not len(self):
            return self
        selected = pc.is_in(self.positions, value_set=positions)
        return UnknownFieldPairs(self.positions.filter(selected), self.names.filter(selected))

    def drop_names(self, names: Collection[str]) -> UnknownFieldPairs:
        """Return the pairs whose name is not one of these."""
        if not (names and len(self)):
            return self
        selected = pc.invert(pc.is_in(self.names, value_set=pa.array(sorted(names), pa.string())))
        return UnknownFieldPairs(self.positions.filter(selected), self.names.filter(selected))

    def by_position(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each position once, ascending, with its names."""
        pairs = sorted(zip(self.positions.to_pylist(), self.names.to_pylist(), strict=True), key=lambda pair: pair[0])
        for position, group in groupby(pairs, key=lambda pair: pair[0]):
            yield position, list(dict.fromkeys(name for _, name in group))

    def count(self) -> UnknownFields:
        """Count values and names, each name once per value."""
        if not len(self):
            return UnknownFields()
        encoded = self.names.dictionary_encode()
        names, codes = encoded.dictionary, encoded.indices.cast(pa.int64())
        # Position and name in one integer, so that repeated pairs are found by `unique`.
        pairs = pc.add(pc.multiply(self.positions, len(names)), codes)
        once = pc.unique(pairs)
        if len(once) < len(pairs):
            codes = pc.subtract(once, pc.multiply(pc.divide(once, len(names)), len(names)))
        frequencies = pc.value_counts(codes)
        if len(frequencies) > _MAX_NAMES:  # keys may be data
            rows = pa.RecordBatch.from_struct_array(frequencies)
            frequencies = frequencies.take(pc.select_k_unstable(rows, _MAX_NAMES, sort_keys=[("counts", "descending")]))
        counts = {names[frequency["values"]].as_py(): frequency["counts"] for frequency in frequencies.to_pylist()}
        return UnknownFields.counted(len(pc.unique(self.positions)), counts)


NOTHING_UNKNOWN = UnknownFieldPairs.from_names({})
