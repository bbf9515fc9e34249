"""What staged files were made for, and whether a table still is that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


@dataclass(frozen=True, slots=True)
class Fit:
    """What files were staged for: the table's UUID, its partition spec, and the type of every field by its id.

    Of a struct, list or map the type is that word alone: its parts have ids of their own.
    """

    uuid: str
    spec_id: int
    fields: Mapping[int, str]

    def mismatch(self, table_fit: Fit) -> str | None:
        """Why files staged for this don't fit the table as found, or None.

        A field that was added or widened meanwhile is harmless: a reader has null for the one, and reads the files'
        values as the wider type.
        """
        if table_fit.uuid != self.uuid:
            return f"it was replaced: files were staged for {self.uuid}, found {table_fit.uuid}"
        if table_fit.spec_id != self.spec_id:
            return f"its partition spec changed from {self.spec_id} to {table_fit.spec_id} since files were staged"
        changed = [
            f"{n}: {staged_type} -> {table_fit.fields.get(n, 'gone')}"
            for n, staged_type in self.fields.items()
            if not _is_read_as(staged_type, table_fit.fields.get(n, ""))
        ]
        return f"columns changed since files were staged: {', '.join(changed)}" if changed else None


def _is_read_as(staged: str, current: str) -> bool:
    """Whether values of one type are read as another; promotions as the table specification's version 2 has them."""
    if staged == current or (staged, current) in {("int", "long"), ("float", "double")}:
        return True
    before, after = _DECIMAL.fullmatch(staged), _DECIMAL.fullmatch(current)
    return bool(before and after and before[2] == after[2] and int(before[1]) <= int(after[1]))
