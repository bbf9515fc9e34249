"""Keys for how values and keys of records are decoded, and for the columns of a destination."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields as fields_of
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, create_model, field_validator, model_validator

from frazil.pipeline.syntax.strict import InvalidKey, Model, kinds_by_key, nearest, option_keys
from frazil.pipeline.syntax.types import VARIANT, ColumnType, Primitive, holds, parse_type
from frazil.records import options_of
from frazil.records.formats.catalogue import FORMATS, GROUP
from frazil.records.formats.scalar import ScalarSpec
from frazil.records.model.format import FormatSpec, SchemaFormatSpec, SchemaSource

_FORMATS_OF: Final = kinds_by_key({name: (*spec.shared_keys, *options_of(spec)) for name, spec in FORMATS.items()})
"""Key of the pipeline file that not all formats have -> formats that have it."""

_WORD = re.compile(r"[a-z]+")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _formats() -> str:
    """The formats with their remarks, and at last those of a single value."""
    specs = {name: spec for name, spec in FORMATS.items() if spec is not ScalarSpec}
    names = (f"`{name}` ({spec.remark})" if spec.remark else f"`{name}`" for name, spec in specs.items())
    return f"{', '.join(names)}, or one value alone, which becomes the field `value`: {_quoted(ScalarSpec.names)}."


class _Decoding(Model):
    """How bytes become fields: the keys that `value` and `key` have in common."""

    format: str = Field("json", description=f"{_formats()} Other packages may bring more.")
    registry: str | None = Field(
        None,
        description=f"{_quoted(_FORMATS_OF['registry'])}: name of a Schema Registry in the settings file. Each value must carry the"
        " id of its schema, at its beginning or in a header.",
    )
    schema_: str | None = Field(
        None,
        alias="schema",
        description=f"{_quoted(_FORMATS_OF['schema_'])}: the one schema of all values, or of all keys, if they carry no"
        " schema id: Avro, or the text of a .proto file.",
    )
    schema_file: str | None = Field(
        None,
        description="The same, in a file: its path from the folder `schemas`, which is next to the folder of pipeline"
        " files.",
    )
    fields: tuple[str, ...] | dict[str, str] | Literal["inferred"] | None = Field(
        None,
        description="`delimited`: names of the fields of a line. `json`: the fields of an object, as name -> type. A key"
        " always needs them; a value only if transforms or changes come before the columns (else the columns"
        " are its fields). `inferred`, for values of `json`: fields and types come from each object, whole"
        " numbers as long, other numbers as double.",
    )

    @field_validator("format")
    @classmethod
    def _known(cls, name: str) -> str:
        if name in FORMATS:  # the search of installed packages takes longer than the rest of the file
            return name
        installed_names = entry_points(group=GROUP).names
        if name not in installed_names:
            raise ValueError(f"{name!r} is not a format, {nearest(name, [*FORMATS, *installed_names])}")
        return name

    @property
    def options(self) -> dict[str, Any]:
        """The options of the format, by name."""
        return {name: getattr(self, name) for name in options_of(self._kind)}

    @property
    def _kind(self) -> type[FormatSpec]:
        return FORMATS.get(self.format, FormatSpec)

    def spec(self, source: SchemaSource | None = None, *, truncates: bool = False) -> FormatSpec:
        """The format with its options. `source` reads the schemas of the registry; `truncates` is described in `FormatSpec`."""
        shared = {"schema": self.schema_, "fields": self.fields}
        declared = {field.name for field in fields_of(self._kind)}
        framing = "confluent" if source is None else source.framing
        named = {name: shared[name] for name in declared & shared.keys()}
        return self._kind(self.format, source, truncates, framing, **named, **self.options)

    @field_validator("fields")
    @classmethod
    def _typed(cls, fields: tuple[str, ...] | dict[str, str] | None) -> tuple[str, ...] | dict[str, str] | None:
        if not isinstance(fields, dict):
            return fields
        parsed = {name: parse_type(text) for name, text in fields.items()}
        if any(holds(field_type, VARIANT) for field_type in parsed.values()):
            raise ValueError("a field has no type variant: only a column that takes the whole value can be one")
        return {name: str(field_type) for name, field_type in parsed.items()}

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        for name, formats in _FORMATS_OF.items():
            if name in self.model_fields_set and self.format not in formats:
                *first_formats, last = formats
                described = f"{', '.join(first_formats)} or {last}" if first_formats else last
                raise InvalidKey(name.rstrip("_"), f"is for format {described}; the format is {self.format}")
        if self.format == "json" and isinstance(self.fields, tuple):
            raise InvalidKey("fields", "fields of format json have types: write name: type, or inferred")
        sources = [self.registry, self.schema_, self.schema_file]
        if issubclass(self._kind, SchemaFormatSpec) and sources.count(None) != len(sources) - 1:
            raise ValueError(f"format {self.format} needs one of registry, schema or schema_file")
        for key, problem in self.spec().problems(registered=self.registry is not None):
            raise InvalidKey(key, problem)
        return self


if TYPE_CHECKING:
    Decoding = _Decoding
else:
    Decoding = create_model(
        "Decoding",
        __base__=_Decoding,
        __module__=__name__,
        __doc__=_Decoding.__doc__,
        **option_keys(dict.fromkeys(FORMATS.values())),
    )


class Value(Decoding):
    """How the value of a record is decoded."""

    null_value: Literal["delete", "filter", "dead_letter"] = Field(
        "delete",
        description="What to do with a record without a value (a tombstone). `delete`: it deletes the row of its key in"
        " tables with `write: upsert`, and adds a delete to tables with `write: history` and no `changes` (`key`"
        " declares how to decode keys); other tables drop it and count it. `filter`: all tables drop it and count"
        " it. `dead_letter`: it is a dead letter.",
    )
    empty_value: Literal["dead_letter", "filter"] = Field(
        "dead_letter",
        description="What to do with a value of 0 bytes. `dead_letter`: it is a dead letter. `filter`: it is dropped and"
        " counted.",
    )
    unknown_fields: Literal["ignore", "rescue", "fail"] = Field(
        "ignore",
        description="What to do with fields at the top level of a value that have no column. `ignore`: they are dropped,"
        " and their records counted. `rescue`: they are kept as one JSON object in `rescued_column`, which is"
        " null without such fields. `fail`: the record is a dead letter.",
    )
    rescued_column: str = Field(
        "_rescued", description="Column for rescued fields. Declare it as an optional string column."
    )
    duplicate_keys: Literal["last", "dead_letter"] = Field(
        "last",
        description="What to do if an object has a field twice, at any level. `last`: the last one counts. `dead_letter`:"
        " the record is a dead letter.",
    )
    field_names: Literal["exact", "case_insensitive"] = Field(
        "exact",
        description="`case_insensitive`: the field `Id` fills the column `id`. If fields differ in case only,"
        " `duplicate_keys` decides. Keys of maps and names in JSON texts stay as they are."
        " `exact`: names must be equal.",
    )
    casts: Literal["none", "text"] = Field(
        "none",
        description="`text`: numbers and booleans land in string columns, as the text that was sent; and in a column with"
        " `unit`, a number may be sent as text.",
    )
    sub_micros: Literal["refuse", "truncate"] = Field(
        "refuse",
        description="For `json`, `avro`, `protobuf` and `delimited`: what to do with a time finer than microseconds, such"
        " as Go's nine digits, in a value or a key. Tables hold microseconds. `refuse`: the record is a dead"
        " letter (LOSSY_CAST). `truncate`: the further digits are cut off.",
    )

    @property
    def folds_names(self) -> bool:
        """Whether names that differ in case only are the same field."""
        return self.field_names == "case_insensitive"

    @model_validator(mode="after")
    def _options_fit(self) -> Value:
        if self.casts == "text" and self.format == "bytes":
            raise InvalidKey("casts", "text is for numbers and booleans; format bytes has none")
        if "rescued_column" in self.model_fields_set and self.unknown_fields != "rescue":
            raise InvalidKey("rescued_column", f"is for unknown_fields: rescue; it is {self.unknown_fields}")
        return self


class Key(Decoding):
    """How the key of a record is decoded. For a record without key, columns with `part: key` are null."""

    @model_validator(mode="after")
    def _has_fields(self) -> Key:
        if self.format == "json" and (not self.fields or self.fields == "inferred"):
            raise InvalidKey("fields", "a key of format json needs its fields, as name: type")
        return self


class Column(Model):
    """One column of a destination."""

    type: str = Field(description="Type in Iceberg's spelling: long, decimal(10,2), list<string>, struct<a: int> …")
    required: bool = Field(False, description="A record without a value in this column is a dead letter.")
    doc: str | None = Field(None, description="Comment that is stored with the column.")
    source: tuple[str, ...] | None = Field(
        None,
        alias="from",
        description="The field that fills the column, if it has another name than the column: its exact name, or a list"
        " of names from the top level down, such as `[customer, address, zip]`. `[]` is the whole value, or"
        " the whole key, as JSON, for a column of type string or variant.",
    )
    part: Literal["value", "key", "header"] = Field(
        "value",
        description="What fills the column: a field of the value, a field of the key (`key` declares how to decode it),"
        " or the last header with the name. For types binary and fixed the header's bytes are taken, for all"
        " others its text in UTF-8.",
    )
    default: Any = Field(
        None,
        description="Value for a missing field, and for null if the column is required. Write it as a JSON record would"
        " have it. A field that `value.fields` or `key.fields` declares counts as null where it is missing, so only"
        " a required column gets its default.",
    )
    unit: Literal["s", "ms", "us", "ns"] | None = Field(
        None,
        description="For types time, timestamp and timestamptz: the unit of times that are sent as numbers, counted from"
        " 1970-01-01T00:00Z, or from midnight for time. Texts are accepted too. A number that comes as text"
        " needs `delimited` or `casts: text`.",
    )
    local_time: Literal["keep", "dead_letter"] = Field(
        "keep",
        description="For a column of type timestamp: what to do with a text that has a zone offset. `keep`: the offset is"
        " dropped, and the time of day stays as written. `dead_letter`: the record is a dead letter.",
    )

    @field_validator("type")
    @classmethod
    def _known(cls, value: str) -> str:
        return str(parse_type(value))

    @field_validator("source", mode="before", json_schema_input_type=tuple[str, ...] | str | None)
    @classmethod
    def _one_name(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        if value is not None and not isinstance(value, list | tuple):
            raise ValueError(f"expected a name or a list of names, found {value!r}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _names_its_part(cls, column: Any) -> Any:
        if isinstance(column, dict) and "of" in column:
            raise InvalidKey("of", "is called part now: write part: key")
        return column

    @model_validator(mode="after")
    def _options_fit(self) -> Column:
        if self.source == () and self.type not in ("string", "variant"):
            raise InvalidKey(
                "from", f"[] takes the whole value as JSON; the type is {self.type}, not string or variant"
            )
        if self.parsed == VARIANT and self.source != ():
            raise InvalidKey("from", "type variant takes the whole value, or the whole key: write from: []")
        if self.parsed != VARIANT and holds(self.parsed, VARIANT):
            raise InvalidKey("type", f"{self.type}: a variant is a column of its own, with from: []")
        if self.source == () and self.has_default:
            raise InvalidKey(
                "default", "from: [] takes the whole value, which is never missing: a default has no meaning"
            )
        if self.part == "header" and not isinstance(self.parsed, Primitive):
            raise InvalidKey(
                "type", f"{self.type}: a header is bytes or a text: write string, binary or another simple type"
            )
        if self.part == "header" and self.source is not None and len(self.source) != 1:
            raise InvalidKey("from", "expected the name of one header: a header has no fields")
        words = set(_WORD.findall(self.type))
        if self.unit is not None and not words & {"time", "timestamp", "timestamptz"}:
            raise InvalidKey("unit", f"is for time, timestamp and timestamptz; the type is {self.type}")
        if self.local_time != "keep" and "timestamp" not in words:
            raise InvalidKey("local_time", f"is for timestamp; the type is {self.type}")
        return self

    @property
    def has_default(self) -> bool:
        """Whether a default is declared, even if it is null."""
        return "default" in self.model_fields_set

    @property
    def parsed(self) -> ColumnType:
        """The parsed type."""
        return parse_type(self.type)
