"""Values that are one line of CSV or the like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from frazil.records import option, pa
from frazil.records.model.format import Format, FormatSpec


@dataclass(frozen=True, slots=True)
class DelimitedSpec(FormatSpec):
    """Lines of CSV; see `frazil.records.formats.delimited.delimited.DelimitedFormat`."""

    fields: tuple[str, ...] | Mapping[str, str] | None = ()
    delimiter: str = option("`delimited`: one character between fields.", ",")
    quote: str | None = option("`delimited`: one character around a field, or null for none.", '"')
    escape: str | None = option("`delimited`: one character that takes the special meaning from the next one.", None)
    null_text: str | None = option(
        "`delimited`: a field with this text, without quotes, is null. `null`: no text stands for null.", ""
    )
    header: bool = option(
        "`delimited`: each record has two lines, and the first has the field names, in any order.", False
    )

    names = ("delimited",)
    remark = "CSV"
    shared_keys = ("fields", "sub_micros")
    is_text = True

    def problems(self, *, registered: bool) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - lines have no registry
        """Yield a problem if the names are missing, or if no field can have the null text."""
        if not isinstance(self.fields, tuple):
            yield "fields", "format delimited needs the names of the fields of a line, as a list"
        if self.null_text and any(sign in self.null_text for sign in (self.delimiter, "\r", "\n")):
            yield "null_text", f"{self.null_text!r} has a delimiter or line break in it, so no field can be it"

    def open(self, *, blocks: bool) -> Format:
        """Make the format."""
        from frazil.records.formats.delimited.delimited import DelimitedFormat

        marks = (self.delimiter, self.quote, self.escape, self.null_text)
        return DelimitedFormat(tuple(self.fields or ()), *marks, self.header, blocks)

    def declared_fields(self, fields: pa.Schema | None) -> pa.Schema:  # noqa: ARG002 - JSON's
        """Return the fields of a line."""
        return pa.schema([pa.field(name, pa.string()) for name in self.fields or ()])
