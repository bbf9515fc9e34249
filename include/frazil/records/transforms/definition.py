"""The single definition of a transform: its options with their descriptions, its docstring, its code.

From it come the keys of pipeline files with their checks (`frazil.pipeline.transforms`), and the texts of docs/transforms.md and the
JSON Schema: the first paragraph of its docstring, and the sentences of its options. `frazil import` takes from it which class of
Kafka Connect becomes this transform. docs/extending.md says how to add one.
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
"""Java packages of Kafka Connect's own transforms, and of its Iceberg sink's."""

Names = Iterable[str | None] | None
"""Names of fields; None: the transform reads all fields, or its outcome depends on which fields exist."""


@dataclass(frozen=True, slots=True)
class ConnectClass:
    """The class of Kafka Connect that a transform stands for.

    Attributes:
        name: Its name, with the package.
        renames: Kafka Connect's name of an option -> Frazil's, if they differ.
        defaults: Kafka Connect's name of an option -> its default, if Frazil's default differs.
        note: Any further difference.
    """

    name: str
    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def split(names: object) -> object:
    """Return a text such as `a, b`, a list in Kafka Connect's spelling, as `["a", "b"]`. Return anything else unchanged."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def pairs(written: object) -> object:
    """Return a text such as `a:b, c:d`, or a list of such pairs, as a mapping. Return anything else unchanged.

    Raises:
        ValueError: A pair has no colon, or a name comes twice.
    """
    items = split(written)
    if not isinstance(items, list):
        return items
    mapping: dict[str, str] = {}
    for item in items:
        name, colon, mapped = str(item).rpartition(":")
        if not colon:
            raise ValueError(f"expected a pair such as a:b, found {item!r}")
        if name.strip() in mapping:
            raise ValueError(f"{name.strip()!r} is named twice")
        mapping[name.strip()] = mapped.strip()
    return mapping


def target_option() -> Any:
    """Declare the option `target`: a transform works on values or keys. `Cast$Key` is short for `Cast` with `target: key`."""
    return option("Fields of the value or of the key.", "value")


def _listed(names: str | Iterable[str]) -> Iterable[str]:
    return [names] if isinstance(names, str) else names


class Definition:
    """Base of Frazil's own transforms and predicates: frozen dataclasses of options.

    `__post_init__` raises a ValueError for options that don't fit together; the author of the pipeline file reads its message.
    It runs while a DAG is parsed, so it must not load Arrow.
    """

    __slots__ = ()

    def prepare(self) -> None:
        """Check options, as far as that needs Arrow.

        Raises:
            Terminal: They don't fit.
        """


class TransformDefinition(Definition):
    """A transform. `frazil.records.model.format` specifies `apply` and `lacks`."""

    __slots__ = ()

    connect_class: ClassVar[ConnectClass | None] = None
    uses_fields: ClassVar[bool] = True
    """Whether it reads or writes fields; if not, all of them pass through."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Attributes of the options that name required fields."""
    needs_condition: ClassVar[str] = ""
    """Why it is refused without `when`; empty if it is not."""

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
        """Return the top-level fields that it reads or writes. It keeps or drops each other field independently of all others."""
        if not self.reads:
            return None if self.uses_fields else ()
        return [name for option in self.reads for name in _listed(getattr(self, option))]


class Predicate(Definition):
    """A condition on rows, for a transform that applies to some of them."""

    __slots__ = ()

    needs_negation: ClassVar[str] = ""
    """Why it is refused without `negate`; empty if it is not."""

    def holds(self, frame: Frame) -> pa.BooleanArray:
        """Return, per row, whether the condition holds; never null."""
        raise NotImplementedError
