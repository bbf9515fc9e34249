"""One value of some format on its way into a column: what the tests and the docs share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frazil.records.model.dead_letter import DeadCode

COLUMN = "c"
"""The one column of a case, and the field that it is taken from."""


_TEXT = re.compile(r'"|string[ :]|\{type: "string"\}:')
"""How what is sent begins where it is just a text to its format."""


@dataclass(frozen=True, slots=True)
class Case:
    """One value on its way into one column.

    Attributes:
        group: Heading of its table.
        sent: The value, readable.
        column: The declared column, as in the pipeline file.
        result: The value in the table, readable, or a reason code.
        data: The value, as Kafka has it.
        value: The section `value:` of the pipeline file.
        schema: What the registry knows as schema 1, if the section names a registry.
    """

    group: str
    sent: str
    column: Mapping[str, Any]
    result: str | DeadCode
    data: bytes
    value: Mapping[str, Any] = field(default_factory=dict)
    schema: str | None = None

    @property
    def kind(self) -> str:
        """The column's type without its parts: `decimal`, `list`."""
        return re.split(r"\W", str(self.column["type"]), maxsplit=1)[0]

    @property
    def is_text(self) -> bool:
        """Whether to its format the value is just a text."""
        return self.group == "delimited" or _TEXT.match(self.sent) is not None

    @property
    def declared(self) -> str:
        """The column and the options that the case is about, readable."""
        shown = {name: option_value for name, option_value in self.value.items() if name in ("casts", "null_text")}
        options = {name: option_value for name, option_value in self.column.items() if name != "type"} | shown
        return "; ".join(
            [
                str(self.column["type"]),
                *(f"{name}: {json.dumps(option_value)}" for name, option_value in options.items()),
            ]
        )


def column_of(definition: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """A column as the pipeline file declares it."""
    return {"type": definition} if isinstance(definition, str) else definition
