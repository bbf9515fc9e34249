"""The single definition of a transform: its options with their descriptions, its docstring, its code.

Of a definition come the keys of pipeline files with their checks (`frazil.pipeline.transforms`), docs/transforms.md and the JSON
Schema, which say its first paragraph and the sentences of its options, and what `frazil import` makes of the class of Kafka
Connect that it stands for. docs/extending.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from frazil.records import option, options_of

if TYPE_CHECKING:
    from frazil.records import pa
    from frazil.records.model.format import Frame, MissingField, Transformed

__all__ = ["option", "options_of"]

KAFKA: Final = "org.apache.kafka.connect.transforms."
SINK: Final = "org.apache.iceberg.connect.transforms."
"""Packages of the transforms that Kafka Connect brings, and of those of its Iceberg sink."""

Names = Iterable[str | None] | None
"""Names of fields; None: the transform reads all fields, or its outcome depends on which fields there are."""


@dataclass(frozen=True, slots=True)
class ConnectClass:
    """The class of Kafka Connect that a transform stands for.

    Attributes:
        name: With its package.
        renames: Options that are called otherwise there -> here.
        defaults: Options whose default is another one there -> that one.
        note: What else differs.
    """

    name: str
    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def split(names: object) -> object:
    """`a, b` as Kafka Connect writes lists, as the list `[a, b]`; anything else as it is."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def pairs(written: object) -> object:
    """`a:b, c:d`, or a list of such pairs, as a mapping; anything else as it is.

    Raises:
        ValueError: A piece has no colon, or a name comes twice.
    """
    items = split(written)
    if not isinstance(items, list):
        return items
    mapping: dict[str, str] = {}
    for item in items:
        name, colon, meaning = str(item).rpartition(":")
        if not colon:
            raise ValueError(f"{item!r} is no pair; expected name:other")
        if name.strip() in mapping:
            raise ValueError(f"{name.strip()!r} is named twice")
        mapping[name.strip()] = meaning.strip()
    return mapping


def target_option(meaning: str = "Fields of the value or of the key.") -> Any:
    """Declare that a transform works on values or keys; then `Cast$Key` is the one on keys."""
    return option(meaning, "value")


def _listed(names: str | Iterable[str]) -> Iterable[str]:
    return [names] if isinstance(names, str) else names


class Definition:
    """Base of the transforms that come with Frazil, and of predicates: frozen dataclasses of options.

    `__post_init__` refuses options that don't fit together, by a ValueError that a pipeline file's author reads. It may be
    called while a DAG is parsed.
    """

    __slots__ = ()

    def prepare(self) -> None:
        """Refuse options that only Arrow can judge.

        Raises:
            Terminal: They don't fit.
        """


class TransformDefinition(Definition):
    """A transform; `frazil.records.model.format` specifies `apply` and `lacks`."""

    __slots__ = ()

    connect_class: ClassVar[ConnectClass | None] = None
    uses_fields: ClassVar[bool] = True
    """Whether fields are read or written; if not, all of them pass through."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Options that name fields which must be there."""
    needs_condition: ClassVar[str] = ""
    """Why a file must say `when`, if it must."""

    def apply(self, frame: Frame) -> Transformed:
        """Transform a frame."""
        raise NotImplementedError

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the configured fields that do not exist."""
        from frazil.records.transforms.fields import fields_of, lacking

        for name in self.reads:
            fields = fields_of(frame, getattr(self, "target", "value"))
            yield from lacking(fields, name, _listed(getattr(self, name)))

    def referenced_names(self) -> Names:
        """Return the top-level fields that are read or written; all others pass through, or are left out each by itself."""
        if not self.reads:
            return None if self.uses_fields else ()
        return [name for option in self.reads for name in _listed(getattr(self, option))]


class Predicate(Definition):
    """Tells for which rows a transform is meant."""

    __slots__ = ()

    needs_negation: ClassVar[str] = ""
    """Why a file must say `negate`, if it must."""

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return per row whether it holds, never null."""
        raise NotImplementedError
