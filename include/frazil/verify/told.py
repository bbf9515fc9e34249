"""What a record tells of rows that are merged by their key: an own reading, by the promises of docs/changes.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from frazil.pipeline.changes import FACTS, Changes
from frazil.pipeline.model import Destination, Pipeline, Value
from frazil.pipeline.types import ColumnType, Primitive
from frazil.pipeline.value import Column
from frazil.verify.documents import decoder_of, object_of
from frazil.verify.envelopes import READERS, Change, Op, Row, require_texts
from frazil.verify.expected import Bad
from frazil.verify.figures import Figure, Unfit
from frazil.verify.grown import grows, without_empties
from frazil.verify.takers import Takers

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_COUNTED = {"int", "long", "float", "double", "decimal"}


def unread_changes(pipeline: Pipeline, destination: Destination) -> Iterator[str]:
    """Why what records tell of a merged table can't be worked out anew."""
    if destination.changes is not None:
        value = pipeline.value
        if isinstance(value.fields, dict):
            yield "value.fields says what changes hold"
        if value.casts != "none" or value.field_names != "exact":
            yield "value.casts or value.field_names changes what envelopes mean"


@dataclass(frozen=True, slots=True)
class Told:
    """What a record tells of one row, in canonical values.

    Attributes:
        op: What happens to it.
        key: Its key; none of a truncate.
        order: The value of the column of `order_by`, if there is one.
        row: All values of an upsert; else the key, the order and facts about the change, and null for all others.
    """

    op: Op
    key: tuple[Any, ...] = ()
    order: Any = None
    row: tuple[Any, ...] = ()


class Teller:
    """Reads what records tell; takes the place of an expectation of rows.

    Args:
        destination: The table that rows are merged into.
        columns: Those of it that are compared.
        value: What the pipeline file says of values.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, destination: Destination, columns: Mapping[str, Column], value: Value) -> None:
        self._of = destination
        self._is_grown = grows(destination)
        self._names = tuple(columns)
        self._takers = Takers(columns, value, in_orc=destination.file_format == "orc")
        self._decoder = decoder_of(
            once=value.duplicate_keys == "dead_letter", any_case=value.field_names == "case_insensitive"
        )
        optional = {name: of.model_copy(update={"required": False}) for name, of in columns.items()}
        self._loose = Takers(optional, value)
        paths = {name: of.source or (name,) for name, of in columns.items()}
        self._fields = frozenset(path[0] for path in paths.values())
        self._types = {path[0]: columns[name].parsed for name, path in paths.items() if len(path) == 1}
        self._is_fact = [(of.source or ())[:1] == (FACTS,) for of in columns.values()]
        # Elsewhere a field of that name is the record's own.
        self._takes_facts = destination.changes is not None and any(self._is_fact)

    def row(self, raw: bytes) -> tuple[Told, ...] | Bad:
        """What a value tells, in the order in which it is applied; nothing if it is of no row."""
        try:
            whole = object_of(raw, self._decoder)
            changes = self._of.changes
            if changes is None:
                return (self._upsert(whole, {}),)
            told = [
                of
                for change in READERS[changes.format](whole, changes, self._fields)
                for of in self._told(change, changes)
            ]
        except Unfit as unfit:
            return Bad(str(unfit))
        return tuple(sorted(told, key=lambda of: of.op == "upsert"))

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Other files are not known."""
        return Bad("another file")

    def _told(self, change: Change, changes: Changes) -> Iterator[Told]:
        for image in change.images:
            if not self._is_grown:
                self._readable(image or {}, changes)
            elif change.op in {"upsert", "delete"}:
                self._readable_key(self._typed(image or {}, changes))
        if change.op == "truncate":
            yield Told("truncate", (), self._order({}, change.facts), self._bare((), {}, change.facts))
        elif change.op is not None:
            if change.row is None:
                raise Unfit("a change without its row")
            row, before = (self._typed(of, changes) for of in (change.row, change.before or {}))
            if change.op == "delete":
                key = self._key(row, change.facts)
                yield Told("delete", key, self._order(row, change.facts), self._bare(key, row, change.facts))
                return
            self._whole(change, change.row, changes)
            upsert = self._upsert(row, change.facts)
            was = {**row, **{name: of for name, of in before.items() if of is not None}}
            if change.before is not None and (old := self._key(was, change.facts)) != upsert.key:
                yield Told("delete", old, upsert.order, self._bare(old, row, change.facts))
            yield upsert

    def _whole(self, change: Change, row: Row, changes: Changes) -> None:
        """A row as it is now has all that columns take."""
        if self._fields.intersection(change.lost):
            raise Unfit("a value that was not sent")
        if self._is_grown and changes.format == "canal":
            require_texts(row, *self._types)

    def _readable(self, image: Row, changes: Changes) -> None:
        """A field of an image that is not what its column takes makes the record unfit, also where it does not count.

        Not so where records bring columns: of other images only the key is looked at.
        """
        if changes.format == "canal":  # all of it text, of which only what counts must be what its column takes
            require_texts(image, *self._types)
            return
        document = self._loose.document(image)
        for take, is_fact in zip(self._loose.takes, self._is_fact, strict=True):
            if not is_fact:
                take(document)

    def _readable_key(self, image: Row) -> None:
        """Where records bring columns, the key and the order of an image are all that must be what their columns take."""
        document = self._loose.document(image)
        needed = {*self._of.identifier, self._of.order_by}
        for name, take, is_fact in zip(self._names, self._loose.takes, self._is_fact, strict=True):
            if name in needed and not is_fact:
                take(document)

    def _typed(self, row: Row, changes: Changes) -> Row:
        """Canal sends all values as text."""
        if changes.format != "canal":
            return row
        return {name: _figure(of, self._types[name]) if name in self._types else of for name, of in row.items()}

    def _document(self, row: Row, facts: Row) -> Any:
        return self._takers.document({**row, FACTS: facts} if self._takes_facts else row)

    def _upsert(self, row: Row, facts: Row) -> Told:
        document = self._document(row, facts)
        values = tuple([take(document) for take in self._takers.takes])
        values = tuple(map(without_empties, values)) if self._is_grown else values
        found = dict(zip(self._names, values, strict=True))
        key = tuple([found[name] for name in self._of.identifier])
        order = None if self._of.order_by is None else found[self._of.order_by]
        if self._of.order_by is not None and order is None:
            raise Unfit("a change without order")
        return Told("upsert", key, order, values)

    def _bare(self, key: tuple[Any, ...], row: Row, facts: Row) -> tuple[Any, ...]:
        """Values of a row of which not much is known any more."""
        document, found = (
            self._document(row, facts),
            dict(zip(self._of.identifier, key, strict=False)),
        )
        told = zip(self._names, self._takers.takes, self._is_fact, strict=True)
        return tuple(
            [
                take(document) if is_fact or name == self._of.order_by else found.get(name)
                for name, take, is_fact in told
            ]
        )

    def _key(self, row: Row, facts: Row) -> tuple[Any, ...]:
        return tuple([self._one(name, row, facts) for name in self._of.identifier])

    def _order(self, row: Row, facts: Row) -> Any:
        return None if self._of.order_by is None else self._one(self._of.order_by, row, facts)

    def _one(self, name: str, row: Row, facts: Row) -> Any:
        found = self._takers.takes[self._names.index(name)](self._document(row, facts))
        if found is None:
            raise Unfit(f"no {name}")
        return found


def _figure(value: Any, of: ColumnType) -> Any:
    if type(value) is not str or not isinstance(of, Primitive):
        return value
    if of.name in _COUNTED and _NUMBER.fullmatch(value):
        return Figure(value)
    return {"true": True, "false": False}.get(value, value) if of.name == "boolean" else value
