"""Change events that the pipeline file describes: a field says what happened, or the name of the field that holds the row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import Terminal
from frazil.records.cdc.images import Parts, columns_of_image, image, mapped, one_each, there
from frazil.records.cdc.parsed_value import sent_images
from frazil.records.model.changes import Images, ParsedImages, ParsedValue
from frazil.records.transforms.cdc.change import choose_image, failures
from frazil.records.transforms.fields import find

_OP_COLUMN: Final = "op_column"
_ENVELOPE: Final = "envelope"


@dataclass(frozen=True, slots=True)
class OpColumn:
    """A field says what happened.

    Attributes:
        op: Its name or path.
        words: What its values mean, as an `Op`.
        row: The field that holds the row as it is; None: the value itself is the row.
        before: The field that holds the row as it was, if any does.
        key_in_record: Whether all key columns are of the record's key.
    """

    op: str
    words: Mapping[str, str]
    row: str | None = None
    before: str | None = None
    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    @property
    def _hidden(self) -> frozenset[str]:
        """Where the value itself is the row: the fields that tell of the change."""
        paths = [self.op, *([] if self.before is None else [self.before])]
        return frozenset(path.partition(".")[0] for path in paths) if self.row is None else frozenset()

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the rows of a record."""
        op, now = value.at(self.op), value.whole if self.row is None else value.at(self.row)
        word = {True: "true", False: "false"}.get(op) if isinstance(op, bool) else str(op)
        found = sent_images(self.words.get(word or ""), now, None if self.before is None else value.at(self.before))
        return replace(found, hidden=self._hidden)

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        sent = _texts(self.op, find(value, self.op), value.num_rows)
        op, known = mapped(sent, self.words)
        now = _root(value) if self.row is None else image(_OP_COLUMN, value, self.row, nested=True)
        was = None if self.before is None else image(_OP_COLUMN, value, self.before, nested=True)
        parts = Parts(_OP_COLUMN, op, sent, now, was, facts_of(sent), self.key_in_record)
        message = f"{_OP_COLUMN}: expected one of {', '.join(self.words)}, found {{}}"
        return replace(one_each(parts, [(pc.invert(known), message, self.op)], told_before=True), hidden=self._hidden)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The row is in a field whose name says what happened: `{"insert": {…}}`.

    Attributes:
        words: What the names mean, as an `Op`.
        key_in_record: Whether all key columns are of the record's key.
    """

    words: Mapping[str, str]
    key_in_record: bool = False

    @property
    def text_casts(self) -> bool:
        """Values have types of their own."""
        return False

    def sent(self, value: ParsedValue) -> ParsedImages:
        """Find the row of a record."""
        found = [sent_images(op, value.at(name), None) for name, op in self.words.items()]
        now, others = tuple(row for of in found for row in of.now), tuple(row for of in found for row in of.others)
        # Several tell of none.
        return ParsedImages(now, others) if len(now) + len(others) == 1 else ParsedImages(void=(*now, *others))

    def images(self, value: pa.RecordBatch) -> Images:
        """Take records apart."""
        size = value.num_rows
        rows = {name: image(_ENVELOPE, value, name) for name in self.words}
        is_there = {name: there(of, size) for name, of in rows.items()}
        count = reduce(pc.add, [of.cast(pa.int8()) for of in is_there.values()])
        sent = pa.nulls(size, pa.string())
        row = columns_of_image(None)
        for name, of in rows.items():
            sent = pc.if_else(is_there[name], name, sent)
            fields = columns_of_image(of)
            row = choose_image(f"changes.format {_ENVELOPE}", row, fields, is_there[name]) if row else fields
        op, _ = mapped(sent, self.words)
        listed = ", ".join(self.words)
        verdicts = [
            (pc.not_equal(count, 1), f"{_ENVELOPE}: expected one of {listed} with a row, found none or several", "")
        ]
        failed = failures(verdicts, pa.repeat(pa.scalar(value=True), size))
        nothing = pa.repeat(pa.scalar(value=False), size)
        return Images(pa.arange(0, size), op, row, {}, nothing, facts_of(sent), failed)


def facts_of(sent: pa.StringArray) -> dict[str, pa.Array]:
    """The facts about a change of which no more is known than what happened."""
    nothing = pa.nulls(len(sent), pa.string())
    return {"op": sent, "ts": nothing, "order": nothing}


def _root(value: pa.RecordBatch) -> pa.StructArray:
    return pa.StructArray.from_arrays(value.columns, fields=list(value.schema))


def _texts(path: str, values: pa.Array | None, size: int) -> pa.StringArray:
    """The op field as text: numbers and flags as JSON writes them."""
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(size, pa.string())
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise Terminal(
            f"changes.op: expected {path} as string, long or boolean, found {kind}",
            next_step="declare it so under value.fields, or name another field",
        )
    return values.cast(pa.string())
