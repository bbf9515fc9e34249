"""What records had and no column took: counted, so that somebody sees it. Names in a bounded number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Final

NAMES_SHOWN: Final = 20
"""Of the fields of one batch: who looks wants to know which, not all of them."""

_NAMES_KEPT: Final = 500
"""While counting. A producer that uses values as names has another one in every record."""

_NAME_CHARACTERS: Final = 80

_LISTED_CHARACTERS: Final = 400
"""Of the names in one line: the note of a run in Airflow takes 1,000 characters in all."""


@dataclass(frozen=True, slots=True)
class UnknownFields:
    """Fields that no column takes, of records that landed without them.

    Attributes:
        records: How many records had any.
        names: How many records had each of them. Of many names the most frequent ones, each at least so often.
    """

    records: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def counted(cls, records: int, names: Mapping[str, int]) -> UnknownFields:
        """Return counts with as many names as are kept, none longer than is shown, control characters escaped."""
        cut: Counter[str] = Counter()
        for raw, count in names.items():
            name = raw if raw.isprintable() else encode_basestring_ascii(raw)[1:-1]
            cut[name if len(name) <= _NAME_CHARACTERS else f"{name[:_NAME_CHARACTERS]}…"] += count
        return cls(records, _most_frequent(cut, _NAMES_KEPT))

    def __add__(self, other: UnknownFields) -> UnknownFields:
        if not other.records or not self.records:
            return self if self.records else other
        names = Counter(self.names)
        names.update(other.names)
        return UnknownFields(self.records + other.records, _most_frequent(names, _NAMES_KEPT))

    @property
    def shown(self) -> UnknownFields:
        """The same with the most frequent names only: what is kept of a batch."""
        return UnknownFields(self.records, _most_frequent(self.names, NAMES_SHOWN))

    @property
    def said(self) -> str | None:
        """One line for people, or None if there is nothing to say.

        Producers choose the names. Each stands in backticks, which are a code span in Markdown: nothing in it is markup.
        """
        if not self.records:
            return None
        listed = self._listed()
        count = "1 record" if self.records == 1 else f"{self.records:,} records"
        return f"{count} with fields that no column takes{f' ({listed})' if listed else ''}"

    def _listed(self) -> str:
        parts: list[str] = []
        for name, count in self.shown.names.items():
            quoted = name.replace("`", "'") or '""'
            parts.append(f"`{quoted}` {count:,}")
            if sum(map(len, parts)) > _LISTED_CHARACTERS:
                return ", ".join([*parts[:-1], f"and {len(self.names) - len(parts) + 1:,} more"])
        return ", ".join(parts)

    def without_names(self) -> UnknownFields:
        """Return the number of records alone, where names may be secrets too."""
        return UnknownFields(self.records)


def _most_frequent(names: Mapping[str, int], most: int) -> dict[str, int]:
    return dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))[:most])
