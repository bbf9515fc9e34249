"""JSON values straight into the columns of a table that follows them.

Values are decoded as for any table. Only those that another schema may decode better are looked at one by one: with a field
that no column takes, or with a value that its column does not; and all of them where columns have fields of their own.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.evolution.inspect import EVOLVABLE, Look, Object, Seen
from frazil.records.evolution.schema_requests import Asked, rescued_names
from frazil.records.json.exact import parse_object
from frazil.records.json.record import unknown_field
from frazil.records.json.values import Dead, JsonValues
from frazil.records.model.dead_letter import Reason, Rejection
from frazil.records.model.json_text import document
from frazil.records.model.rows import Block, in_order
from frazil.records.model.spec import RecordSpec
from frazil.records.model.unknown_fields import UnknownAt


class EvolvingJson:
    """Decodes JSON objects, and tells what they need that their table does not have.

    Args:
        spec: What is wanted of the values, with an evolution.
        asked: Takes what they need.
        blocks: Whether values may be parsed as blocks where that is exact.

    Raises:
        Terminal: as `JsonValues`.
    """

    def __init__(self, spec: RecordSpec, asked: Asked, *, blocks: bool = True) -> None:
        self._spec: Final = spec
        # What no value can hold by chance: the fields of a value must not pass for the rest of one.
        self._rest_name: Final = f"_{secrets.token_hex(16)}"
        self._json: Final = JsonValues(_plain(spec, self._rest_name), blocks=blocks) if spec.columns.names else None
        self._look: Final = Look(spec)
        self._asked: Final = asked

    def rows(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows and reasons, as `JsonValues.rows`. They have no meaning if anything is asked for."""
        block, dead = self._bare(values) if self._json is None else self._json.rows(values)
        texts: dict[int, bytes] = {}
        rescued: dict[int, list[str]] = {}
        refused: Dead = {}
        asked = Asked(self._spec.fold is not None)
        for position in self._suspects(block, dead, len(values)):
            value = self._parsed(values, position)
            seen = self._look.at(value, is_row=position not in dead)
            asked.take(seen.asked)
            if asked.is_full:  # whatever the others need: there is no meaning in the rows
                break
            if self._rest(seen) and self._spec.rescued_column not in self._spec.columns.names:
                asked.add((self._spec.rescued_column,), pa.string())
            if asked or seen.is_dead:
                continue
            if seen.others and self._spec.unknown_fields == "fail":
                refused[position] = unknown_field(sorted(seen.others)).reason
            elif (rest := self._rest(seen)) or seen.is_moved:
                texts[position] = self._written(value, rest, self._parsed(values, position))
                rescued[position] = rescued_names(self._spec, seen.kept)
        self._asked.take(asked)
        if asked or not (texts or refused):
            return block, dead
        return self._replaced(block, dead, texts, refused, UnknownAt.of(rescued))

    def _suspects(self, block: Block, dead: Dead, size: int) -> list[int]:
        """Return the positions of values that are looked at, ascending."""
        lost = {at for at, of in dead.items() if of.code not in EVOLVABLE}
        if self._look.has_structs or self._json is None:
            plain = pc.is_in(pa.arange(0, size), value_set=block.plain)
            found = set(pc.indices_nonzero(pc.invert(plain)).to_pylist())
        else:
            found = set(pc.unique(block.unknown.positions).to_pylist())
        return sorted(found.union(dead) - lost)

    def _parsed(self, values: pa.BinaryArray, position: int) -> Object:
        """Return a value that was parsed before, which did not fail."""
        repeated, in_order_ = self._spec.duplicate_keys == "last", self._spec.fold is not None
        return parse_object(values[position].as_py(), repeated_keys=repeated, in_order=in_order_)

    def _rest(self, seen: Seen) -> set[str]:
        """Return the fields that the column for rescued fields takes."""
        if seen.is_dead:
            return set()
        return seen.rest | seen.others if self._spec.unknown_fields == "rescue" else seen.rest

    def _written(self, value: Object, rest: set[str], original: Object) -> bytes:
        """Return an object with the rest of its fields as the text of one."""
        kept = {name: item for name, item in value.items() if name not in rest or self._look.has(name)}
        if rest:
            kept[self._rest_name] = document({name: original[name] for name in original if name in rest})
        return document(kept).encode()

    def _replaced(
        self, block: Block, dead: Dead, texts: dict[int, bytes], refused: Dead, rescued: UnknownAt
    ) -> tuple[Block, Dead]:
        places = pa.array(texts, pa.int64())
        gone = pa.array([*texts, *refused], pa.int64())
        kept = pc.invert(pc.is_in(block.positions, value_set=gone))
        stays = pc.invert(pc.is_in(block.unknown.positions, value_set=gone))
        unknown = UnknownAt(block.unknown.positions.filter(stays), block.unknown.names.filter(stays))
        blocks = [Block(block.rows.filter(kept), block.positions.filter(kept), unknown)]
        reasons = {at: of for at, of in dead.items() if at not in texts} | refused
        if self._json is not None and texts:
            again, failed = self._json.rows(pa.array(list(texts.values()), pa.binary()))
            blocks.append(Block(again.rows, places.take(again.positions), again.unknown.among(places)))
            reasons |= {places[at].as_py(): of for at, of in failed.items()}
        whole = in_order(blocks, block.rows.schema)
        found = UnknownAt.together([*(of.unknown for of in blocks), rescued])
        return Block(whole.rows, whole.positions, found), dict(sorted(reasons.items()))

    def _bare(self, values: pa.BinaryArray) -> tuple[Block, Dead]:
        """Return rows without columns, of a table that has none yet."""
        found: dict[int, tuple[str, ...]] = {}
        dead: dict[int, Reason] = {}
        for position in range(len(values)):
            try:
                found[position] = tuple(self._parsed(values, position))
            except Rejection as verdict:
                dead[position] = verdict.reason
        rows = pa.RecordBatch.from_struct_array(pa.array([{}] * len(found), pa.struct([])))
        return Block(rows, pa.array(found, pa.int64()), UnknownAt.of(found)), dead


def _plain(spec: RecordSpec, rest_name: str) -> RecordSpec:
    """Return what is wanted of values whose table stays as it is, and the rest of a value by its own name."""
    has = spec.rescued_column in spec.columns.names
    sources = {**spec.sources, spec.rescued_column: (rest_name,)} if has else spec.sources
    return replace(spec, evolution=None, unknown_fields="ignore", sources=sources)
