"""The schema changes that records may cause: plain data, since it is sent to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["add", "widen", "full"]
OnIncompatible = Literal["rescue", "dead_letter", "variant_column", "fail"]

_LEVELS: Final[tuple[Level, ...]] = ("add", "widen", "full")


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a table follows its records.

    Attributes:
        level: `add`: columns and fields of structs; `widen`: also wider types; `full`: also null in required columns.
        on_incompatible: What becomes of a value of a type that its column can't be widened to. `rescue` is for columns that
            nobody declared: their types are what the first records had, so a later value may be as right as those.
        max_columns: Columns that records may bring the table to; those in structs count one by one.
        max_depth: Levels that columns made for records may have.
        max_name_length: Characters that their names may have.
        reserved: Names at the top that are columns of something else: of Kafka, of the key, of merging.
        never_null: Names at the top of columns that identify rows, or have a field that does, or order their changes.
        as_text: Kinds of values that become texts in new columns, `time` or `uuid`: the table's engine has no such type.
    """

    level: Level = "widen"
    on_incompatible: OnIncompatible = "rescue"
    max_columns: int = 1_000
    max_depth: int = 24
    max_name_length: int = 255
    reserved: frozenset[str] = frozenset()
    never_null: frozenset[str] = frozenset()
    as_text: frozenset[str] = frozenset()

    @property
    def widens(self) -> bool:
        """Whether columns may get wider types."""
        return _LEVELS.index(self.level) >= _LEVELS.index("widen")

    def relaxes(self, *path: str) -> bool:
        """Whether a required column or field may become optional."""
        return self.level == "full" and path[0] not in self.never_null
