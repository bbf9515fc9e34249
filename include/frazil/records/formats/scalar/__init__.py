"""Values that are one text, one run of bytes or one number. They make one column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frazil.records import pa
from frazil.records.model.format import BARE, Format, FormatSpec

_KAFKA: Final = "org.apache.kafka.connect."


@dataclass(frozen=True, slots=True)
class ScalarSpec(FormatSpec):
    """A single primitive value."""

    names = ("string", "bytes", "boolean", "short", "int", "long", "float", "double")
    converters = (
        f"{_KAFKA}storage.StringConverter",
        f"{_KAFKA}converters.ByteArrayConverter",
        *(f"{_KAFKA}converters.{kind}Converter" for kind in ("Boolean", "Short", "Integer", "Long", "Float", "Double")),
    )
    remark = ""
    shared_keys = ()

    def open(self, *, blocks: bool) -> Format:  # noqa: ARG002 - it has one way
        """Make the format."""
        from frazil.records.formats.scalar.scalar import ScalarFormat

        return ScalarFormat(self.name)

    def declared_fields(self, fields: pa.Schema | None) -> pa.Schema:  # noqa: ARG002 - JSON's
        """Return the field `value`."""
        from frazil.records.formats.scalar.scalar import scalar_type

        return pa.schema([pa.field(BARE, scalar_type(self.name))])
