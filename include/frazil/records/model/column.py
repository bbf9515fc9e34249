"""One column: where its values come from, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

TimeUnit = Literal["s", "ms", "us", "ns"]
"""What numbers count that are sent for a time: since 1970-01-01T00:00Z, or since midnight."""

WHOLE_VALUE: Final[tuple[str, ...]] = ()
"""The source of a column that takes the whole value as JSON text."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the JSON values of one column are read, at any level of its type.

    Attributes:
        unit: What numbers in place of times count; None takes texts only.
        local_time: Whether a text with an offset may become a timestamp without zone, which keeps its wall clock.
        cast_text: Whether numbers and booleans become texts, as they were sent.
        inferred: Whether nobody declared the column: whatever is no text becomes its JSON text where the column, or a part of
            it, is a text.
        fold: What fields mean that differ in case only, where they are found whatever their case; None if they are not.
    """

    unit: TimeUnit | None = None
    local_time: Literal["keep", "dead_letter"] = "keep"
    cast_text: bool = False
    inferred: bool = False
    fold: Literal["last", "dead_letter"] | None = None


AS_IT_IS: Final = Reading()
"""Nothing but what the JSON value itself says."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One declared column.

    Attributes:
        name: Its name in the table.
        type: Its Arrow type.
        required: Whether null is refused.
        source: Field names from the value's root to the field it is taken from; None means the
            field of its name, no names (`WHOLE_VALUE`) the value itself as JSON text.
        has_default: Whether `default` is used where the field is missing (and where a required one
            is null).
        default: A JSON value: text, number, bool, list, dict or None.
        reading: How its values are read.
        variant: Whether its texts become variants, so that what those can't hold is refused.
    """

    name: str
    type: pa.DataType
    required: bool
    source: tuple[str, ...] | None = None
    has_default: bool = False
    default: object = None
    reading: Reading = AS_IT_IS
    variant: bool = False

    @property
    def steps(self) -> tuple[str, ...]:
        """Field names from the root of the value to the field; none for the value itself."""
        return (self.name,) if self.source is None else self.source
