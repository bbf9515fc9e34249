"""Images of rows in values that are JSON objects, before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from frazil.batch.changes import DELETE, UPSERT
from frazil.records.json.text import JsonValue

Object = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Sent:
    """A value, as it was sent.

    Attributes:
        whole: All of it.
        fold: Whether names that differ in case only are the same field.
    """

    whole: Object
    fold: bool = False

    def at(self, path: str) -> JsonValue:
        """Return what is at a name or path; None if there is nothing."""
        found = self._field(self.whole, path)
        if found is not None or "." not in path:
            return found
        here: JsonValue = self.whole
        for step in path.split("."):
            here = self._field(here, step)
        return here

    def _field(self, of: JsonValue, name: str) -> JsonValue:
        if not isinstance(of, dict):
            return None
        if not self.fold:
            return of.get(name)
        sought = name.casefold()
        return next((item for key, item in reversed(of.items()) if key.casefold() == sought), None)


def all_is_sent(_item: JsonValue) -> bool:
    """Whether a format has words for a value that it leaves out: this one has none."""
    return False


@dataclass(frozen=True, slots=True)
class SentImages:
    """The images in a value.

    Attributes:
        now: Rows as they are after an insert or update: what they hold becomes columns.
        others: Deleted rows, and rows as they were: of these the key counts.
        void: Rows in a value that tells of none: nothing of them counts.
        is_left_out: Tells a value that was not sent from others.
        hidden: Names of fields that tell of the change where those of the row are: no columns, unless the file declares them.
    """

    now: tuple[Object, ...] = ()
    others: tuple[Object, ...] = ()
    void: tuple[Object, ...] = ()
    is_left_out: Callable[[JsonValue], bool] = field(default=all_is_sent)
    hidden: frozenset[str] = frozenset()


def sent_images(op: str | None, now: JsonValue, was: JsonValue) -> SentImages:
    """Return the images of a value that holds two rows, or two lists of rows."""
    rows, before = tuple(_objects(now)), tuple(_objects(was))
    if op == UPSERT:
        return SentImages(rows, before)
    every = (*rows, *before)
    return SentImages((), every) if op == DELETE else SentImages(void=every)


def _objects(found: JsonValue) -> Iterable[Object]:
    return (of for of in (found if isinstance(found, list) else [found]) if isinstance(of, dict))
