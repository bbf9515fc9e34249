"""Derives the row of a record of any format, also with transforms and a decoded key.

Cells whose value can't be derived are not compared: they are counted per column, with the first reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from frazil.error_codes import BAD_SETTING, BAD_TRANSFORM, INTERNAL
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.value import Column, Decoding, Value
from frazil.verify.values.canonical import null_empty_values
from frazil.verify.values.cdc_expectation import ChangeReader, RowChange
from frazil.verify.values.column_readers import (
    Bad,
    ColumnReaders,
    Document,
    InferredColumn,
    column_default,
    count_unjudged,
    has_undeclared_columns,
    options_of,
)
from frazil.verify.values.formats import READ, Decode, TombstoneError, format_decoder
from frazil.verify.values.json_document import Unfit, decoder_of, object_of
from frazil.verify.values.native import UNKNOWN, Fields, SchemaReader, UnjudgedError, native_reader
from frazil.verify.values.readers import Read
from frazil.verify.values.transforms import HeaderCells, Headers, Record, headers_of, transform, unsupported_steps

FILTERED: Final = Bad("a transform filters it")
"""Result for a record that a transform filters."""

_UNJUDGED: Final = Bad("not read here")

SchemasOf = Callable[[str], SchemaReader]
"""Registry name -> reader of its schemas."""


def no_registry(name: str) -> SchemaReader:
    """Refuse every registry, for pipelines that use none."""
    raise BAD_SETTING.terminal(f"registry {name} is not in the settings", next_step="add it under registries")


def is_typed(pipeline: Pipeline) -> bool:
    """Whether a pipeline's values are not JSON, its keys are decoded, or it has transforms: then this module derives rows."""
    return pipeline.value.format != "json" or pipeline.key is not None or bool(pipeline.transforms)


def typed_reasons(pipeline: Pipeline) -> Iterator[str]:
    """Reasons why rows of a typed pipeline can't be derived here."""
    value = pipeline.value
    yield from _format_reasons(pipeline)
    if unsupported := unsupported_steps(pipeline.transforms):
        yield f"transforms change them ({', '.join(unsupported)})"
    columns = [column for destination in pipeline.destinations for column in destination.columns.values()]
    is_declared = not pipeline.transforms or value.format != "json" or isinstance(value.fields, dict)
    if value.fields == "inferred" or (not is_declared and any(map(_is_special, columns))):
        yield "transforms change fields that value.fields does not declare"
    how = value.format if value.format != "json" else "transformed or with keys"
    for destination in pipeline.destinations:
        if destination.write != "append":
            if not reads_changes(pipeline, destination):
                yield f"{destination.table}: changes of records that are {how}"
        elif has_undeclared_columns(destination) and (value.format not in ("avro", "json") or pipeline.transforms):
            yield f"{destination.table}: columns that records add, of records that are {how}"
    is_changed = value.format != "json" or bool(pipeline.transforms)
    route = pipeline.route
    if is_changed and route is not None and route.topic is None and (route.part == "value" or pipeline.transforms):
        yield f"records that are {how} are routed by a field or a header"
    if value.field_names != "exact" or (value.unknown_fields != "ignore" and is_changed):
        yield "value.field_names or value.unknown_fields decides about fields"


def _format_reasons(pipeline: Pipeline) -> Iterator[str]:
    if pipeline.value.format not in READ:
        yield f"value.format is {pipeline.value.format}"
    if pipeline.key is not None and pipeline.key.format not in READ:
        yield f"keys are decoded (key.format is {pipeline.key.format})"


def _is_special(column: Column) -> bool:
    return column.part == "value" and (
        column.unit is not None or column.local_time != "keep" or column.has_default or len(column.source or ("",)) != 1
    )


@dataclass
class TypedExpectation:
    """Reads records into columns. If records may add columns (`is_evolving`), a JSON value without type counts as null, as in
    `Expectation`.
    """

    pipeline: Pipeline
    columns: Mapping[str, Column]
    schemas: SchemasOf = no_registry
    in_orc: bool = False
    is_evolving: bool = False
    unjudged: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    """Column -> cells that were not compared, and the first reason."""

    def __post_init__(self) -> None:
        self._last: tuple[Message, tuple[Any, ...] | Bad] | None = None
        value, key = self.pipeline.value, self.pipeline.key
        self._is_json = value.format == "json" and not self.pipeline.transforms
        self.is_evolving = self.is_evolving and self._is_json
        truncates = value.sub_micros == "truncate"
        self._value = None if self._is_json else _decoder(self._declared(value), self.schemas, truncates=truncates)
        self._key = None if key is None else _decoder(key, self.schemas, truncates=truncates)
        of_value = {name: column for name, column in self.columns.items() if column.part == "value"}
        self._json = ColumnReaders(of_value, value, in_orc=self.in_orc) if self._is_json else None
        self._headers = HeaderCells(self.columns, value, in_orc=self.in_orc)
        self.unjudged = self._headers.unjudged
        self._json_decoder = decoder_of(once=value.duplicate_keys == "dead_letter", any_case=False)
        options = {name: options_of(column, value, in_orc=self.in_orc) for name, column in self.columns.items()}
        self._reads = {
            name: _lenient(read) if isinstance(column, InferredColumn) else read
            for name, column in self.columns.items()
            for read in [native_reader(column.parsed, options[name])]
        }
        self._defaults = {
            name: column_default(name, column, value, in_orc=self.in_orc) for name, column in self.columns.items()
        }

    def _declared(self, value: Decoding) -> Decoding:
        """How values are decoded before transforms, with the fields that `value.fields` declares, or else the columns."""
        if value.format != "json" or isinstance(value.fields, dict):
            return value
        fields = {
            (column.source or (name,))[0]: column.type
            for name, column in self.columns.items()
            if column.part == "value"
        }
        return value.model_copy(update={"fields": fields})

    def row(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Not possible: the row depends on the whole message."""
        raise INTERNAL.terminal("the row of a typed record was requested without its message")

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Not known for other pipeline files."""
        return Bad("another file")

    def record(self, message: Message) -> tuple[Any, ...] | Bad:
        """The cells of the row that a record must become, `Bad` for unknown ones; or `Bad` if it must be a dead letter."""
        if self._last is None or self._last[0] is not message:
            self._last = message, self._record(message)
        return self._last[1]

    def may_filter(self, message: Message) -> bool:
        """Whether the pipeline has a transform that filters records, and its effect on this one can't be derived."""
        row = self.record(message)
        filters = any(step.name == "Filter" for step in self.pipeline.transforms)
        return filters and not isinstance(row, Bad) and all(isinstance(cell, Bad) for cell in row)

    def is_broken(self, message: Message) -> bool | None:
        """Whether value or key can't be decoded, whatever the columns are; None if that can't be derived."""
        headers = _contents(headers_of(message))
        raw_key, raw = message.key(), message.value() or b""
        try:
            if raw_key is not None and self._key is not None:
                self._key(bytes(raw_key), headers)
            if self._value is None:
                object_of(raw, self._json_decoder)
            else:
                self._value(raw, headers)
        except Unfit:
            return True
        except UnjudgedError:
            return None
        except TombstoneError:
            return False
        return False

    def _record(self, message: Message) -> tuple[Any, ...] | Bad:
        headers = headers_of(message)
        contents = _contents(headers)
        try:
            raw_key, raw = message.key(), message.value() or b""
            key = None if raw_key is None or self._key is None else self._key(bytes(raw_key), contents)
            if self._json is not None:
                document = self._json.document(self._own(object_of(raw, self._json_decoder)))
                row = self._cells({}, key, document)
                return self._headers.join(tuple(map(null_empty_values, row)) if self.is_evolving else row, headers)
            if self._value is None:
                return FILTERED
            fields = self._value(raw, contents)
            kind, milliseconds = message.timestamp()
            micros = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1_000
            place = message.topic() or "", message.partition() or 0, message.offset() or 0
            outcome = transform(Record(fields, key, *place, micros, headers), self.pipeline.transforms)
            cells = FILTERED if outcome is None else self._cells(outcome.value, outcome.key, None)
            return self._headers.join(cells, headers if outcome is None else outcome.headers)
        except TombstoneError:
            return Bad("no value") if self.pipeline.value.null_value == "dead_letter" else FILTERED
        except UnjudgedError as error:
            return tuple(count_unjudged(self.unjudged, name, str(error)) for name in self.columns)
        except Unfit as unfit:
            return Bad(str(unfit))

    def _own(self, whole: Fields) -> Fields:
        """Fields of a JSON value, without those whose name belongs only to columns for keys or headers."""
        value_names = {(column.source or (name,))[0] for name, column in self.columns.items() if column.part == "value"}
        keys = {name for name, column in self.columns.items() if column.part != "value"} - value_names
        return {name: value for name, value in whole.items() if name not in keys} if keys else whole

    def _cells(self, value: Fields, key: Fields | None, document: Document | None) -> tuple[Any, ...]:
        cell_readers = iter(() if self._json is None else self._json.cell_readers)
        cells: list[Any] = []
        for name, column in self.columns.items():
            try:
                if column.part == "header":
                    cells.append(None)  # HeaderCells fills it in
                elif document is not None and column.part == "value":
                    cells.append(next(cell_readers)(document))
                else:
                    cells.append(self._cell(name, column, key if column.part == "key" else value))
            except UnjudgedError as error:
                cells.append(count_unjudged(self.unjudged, name, str(error)))
        return tuple(cells)

    def _cell(self, name: str, column: Column, fields: Fields | None) -> Any:
        path = (name,) if column.source is None else column.source
        if not path:
            raise UnjudgedError("the whole value as JSON")
        # Without a key, its fields count as null, not as absent.
        cell, is_there = (None, True) if fields is None else _at_path(fields, path)
        return (
            _value_if_null(column, self._defaults[name], is_there=is_there) if cell is None else self._reads[name](cell)
        )


def _decoder(decoding: Decoding, schemas: SchemasOf, *, truncates: bool) -> Decode:
    registry = None if decoding.registry is None else schemas(decoding.registry)
    decoder = format_decoder(decoding, registry, truncates=truncates)
    if decoder is None:
        raise BAD_TRANSFORM.terminal(f"format {decoding.format} is not read by verify")
    return decoder


def _contents(headers: Headers) -> dict[str, bytes]:
    return {name: content if isinstance(content, bytes) else b"" for name, content in headers.items()}


def _value_if_null(column: Column, default: Any, *, is_there: bool) -> Any:
    """The value of a column whose field is null, or absent (`is_there` is false)."""
    if column.has_default and (column.required or not is_there):
        return default
    if column.required:
        raise Unfit("a required field is missing or null")
    return None


def _lenient(read: Read) -> Read:
    """The reader of a column that records added: a value that does not fit may be rescued, or may have fitted earlier."""

    def read_fitting(value: Any) -> Any:
        try:
            return read(value)
        except Unfit as unfit:
            raise UnjudgedError("it does not fit the column that records brought") from unfit

    return read_fitting


_SURE_KEYS: Final = ("int", "long", "string", "boolean")
"""Types of key columns whose values can always be derived here."""


def reads_changes(pipeline: Pipeline, destination: Destination) -> bool:
    """Whether the changes in typed records of a destination can be derived here."""
    columns, value = destination.columns, pipeline.value
    plain = value.field_names == "exact" and value.unknown_fields == "ignore"
    of_value = all(column.part == "value" and column.source != () for column in columns.values())
    return (
        (destination.is_merged and destination.changes is not None and destination.changes.format == "debezium")
        and (value.format == "avro" and pipeline.key is None and not pipeline.transforms and plain and of_value)
        and (bool(destination.identifier) and not has_undeclared_columns(destination))
        and all(columns[name].type in _SURE_KEYS for name in destination.identifier)
    )


class TypedChanges(ChangeReader):
    """Reads the changes in typed records.

    Attributes:
        unjudged: Column -> cells that were not compared, and the first reason.
        is_unsure: Whether a record that changed rows could not be read here, so that no row is known for sure.
    """

    def __init__(
        self, pipeline: Pipeline, destination: Destination, columns: Mapping[str, Column], schemas: SchemasOf
    ) -> None:
        super().__init__(destination, columns, pipeline.value)
        self._checks_images = False
        value = pipeline.value
        self._null_value = value.null_value
        self._decode = _decoder(value, schemas, truncates=value.sub_micros == "truncate")
        in_orc = destination.file_format == "orc"
        optional = {name: column.model_copy(update={"required": False}) for name, column in columns.items()}
        # The same interface, for plain values.
        self._column_readers = _NativeColumns(columns, value, self, in_orc=in_orc)  # type: ignore[assignment]
        self._nullable_readers = _NativeColumns(optional, value, self, in_orc=in_orc)  # type: ignore[assignment]
        self.unjudged: dict[str, tuple[int, str]] = {}
        self.is_unsure = False
        self._is_whole = True

    def record(self, message: Message) -> tuple[RowChange | Bad, ...] | Bad:
        """The row changes in a record, `Bad` for unknown ones. An upsert has no row if not all values are read here.

        If any part of the record is not read here, even one that no row needs, a `Bad` is added, because that part may make
        the record a dead letter.
        """
        self._is_whole = True
        try:
            fields = self._decode(message.value() or b"", _contents(headers_of(message)))
            changes = self.changes_in(fields)
        except TombstoneError:
            return Bad("no value") if self._null_value == "dead_letter" else ()
        except UnjudgedError:
            return (_UNJUDGED,)
        except Unfit as unfit:
            return Bad(str(unfit))
        if self._is_whole:
            return (*changes, _UNJUDGED) if _has_unknown(fields) else changes
        return (*(RowChange(change.op, change.key, change.order) for change in changes), _UNJUDGED)

    def count_unjudged_cell(self, name: str, error: UnjudgedError) -> None:
        """Count a cell that is not read here.

        Raises:
            UnjudgedError: The cell belongs to the key or the order, so that nothing of the record is known.
        """
        if name in (*self._destination.identifier, self._order_by):
            raise error
        count_unjudged(self.unjudged, name, str(error))
        self._is_whole = False


def _has_unknown(value: Any) -> bool:
    """Whether a part of decoded fields is not read here."""
    if isinstance(value, dict):
        return any(map(_has_unknown, value.values()))
    return any(map(_has_unknown, value)) if isinstance(value, list) else value is UNKNOWN


class _NativeColumns:
    """Reads columns out of rows with plain Python values, as `ColumnReaders` does out of JSON."""

    def __init__(self, columns: Mapping[str, Column], value: Value, owner: TypedChanges, *, in_orc: bool) -> None:
        self._value, self._owner, self._in_orc = value, owner, in_orc
        self.cell_readers = [self._cell_reader(name, column) for name, column in columns.items()]

    def document(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row as it is."""
        return row

    def _cell_reader(self, name: str, column: Column) -> Callable[[dict[str, Any]], Any]:
        read = native_reader(column.parsed, options_of(column, self._value, in_orc=self._in_orc))
        default = column_default(name, column, self._value, in_orc=self._in_orc)
        path = (name,) if column.source is None else column.source

        def read_cell(row: dict[str, Any]) -> Any:
            cell, is_there = _at_path(row, path)
            if cell is None:
                return _value_if_null(column, default, is_there=is_there)
            try:
                return read(cell)
            except UnjudgedError as error:
                self._owner.count_unjudged_cell(name, error)
                return None

        return read_cell


def _at_path(row: Any, path: tuple[str, ...]) -> tuple[Any, bool]:
    """The value at the end of a path, and whether the path exists."""
    for step in path:
        if row is None:
            return None, False
        if not isinstance(row, dict):
            raise UnjudgedError("no struct on the way to the field")
        if step not in row:
            return None, False
        row = row[step]
    return row, True
