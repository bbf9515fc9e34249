"""Derives the row of a record of any format, also after transforms and with a decoded key.

Cells whose value can't be derived are not compared: they are counted per column, with the first reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from frazil.error_codes import BAD_SETTING, BAD_TRANSFORM, INTERNAL
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.value import Column, Decoding
from frazil.verify.values.canonical import null_empty_values
from frazil.verify.values.cdc_expectation import ChangeReader, RowChange
from frazil.verify.values.column_readers import (
    Bad,
    ColumnReaders,
    Document,
    InferredColumn,
    column_default,
    has_undeclared_columns,
    options_of,
)
from frazil.verify.values.formats import READ, Decode, TombstoneError, format_decoder
from frazil.verify.values.json_document import Unfit, decoder_of, object_of
from frazil.verify.values.native import UNKNOWN, Fields, SchemaReader, UnjudgedError, native_reader
from frazil.verify.values.readers import Read
from frazil.verify.values.transforms import HeaderCells, Record, headers_of, transform, unread_steps

LEFT_OUT: Final = Bad("a transform leaves it out")
"""Result for a record that a transform filters."""

_UNJUDGED: Final = Bad("not read here")
_ABSENT: Final = object()

SchemasOf = Callable[[str], SchemaReader]
"""Registry name -> reader of its schemas."""


def no_registry(name: str) -> SchemaReader:
    """Refuses every registry, for pipelines that use none."""
    raise BAD_SETTING.terminal(f"registry {name} is not in the settings", next_step="add it under registries")


def is_typed(pipeline: Pipeline) -> bool:
    """Whether rows of a pipeline need this expectation: another format than JSON, a decoded key, or transforms."""
    return pipeline.value.format != "json" or pipeline.key is not None or bool(pipeline.transforms)


def untyped_because(pipeline: Pipeline) -> Iterator[str]:
    """Reasons why rows of such a pipeline can't be derived here."""
    value = pipeline.value
    yield from _unread_formats(pipeline)
    if unread := unread_steps(pipeline.transforms):
        yield f"transforms change them ({', '.join(unread)})"
    columns = [column for destination in pipeline.destinations for column in destination.columns.values()]
    is_declared = not pipeline.transforms or value.format != "json" or isinstance(value.fields, dict)
    if value.fields == "inferred" or (not is_declared and any(map(_is_special, columns))):
        yield "transforms change fields that value.fields does not declare"
    how = value.format if value.format != "json" else "transformed or with keys"
    for destination in pipeline.destinations:
        if destination.is_merged or destination.is_history:
            if not reads_changes(pipeline, destination):
                yield f"{destination.table}: changes of records that are {how}"
        elif has_undeclared_columns(destination) and (value.format not in ("avro", "json") or pipeline.transforms):
            yield f"{destination.table}: columns that records bring, of records that are {how}"
    is_changed = value.format != "json" or bool(pipeline.transforms)
    route = pipeline.route
    if is_changed and route is not None and route.topic is None and (route.part == "value" or pipeline.transforms):
        yield f"records that are {how} go by a field or a header"
    if value.field_names != "exact" or (value.unknown_fields != "ignore" and is_changed):
        yield "value.field_names or value.unknown_fields decides about fields"


def _unread_formats(pipeline: Pipeline) -> Iterator[str]:
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
    """Reads records into columns. Where records add columns (`is_grown`) a JSON value without type counts as null, as `Expectation`
    says.
    """

    pipeline: Pipeline
    columns: Mapping[str, Column]
    schemas: SchemasOf = no_registry
    in_orc: bool = False
    is_grown: bool = False
    unjudged: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    """Column -> cells that were not compared, and the first reason."""

    def __post_init__(self) -> None:
        self._last: tuple[Message, tuple[Any, ...] | Bad] | None = None
        value, key = self.pipeline.value, self.pipeline.key
        self._is_json = value.format == "json" and not self.pipeline.transforms
        self.is_grown = self.is_grown and self._is_json
        self._value = None if self._is_json else self._decoder(self._declared(value))
        self._key = None if key is None else self._decoder(key)
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

    def _decoder(self, decoding: Decoding) -> Decode:
        registry = None if decoding.registry is None else self.schemas(decoding.registry)
        decoder = format_decoder(decoding, registry, truncates=self.pipeline.value.sub_micros == "truncate")
        if decoder is None:
            raise BAD_TRANSFORM.terminal(f"format {decoding.format} is not read by verify")
        return decoder

    def _declared(self, value: Decoding) -> Decoding:
        """The decoding of values before transforms: with fields of the pipeline file, or of the columns."""
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
        raise INTERNAL.terminal("a record is asked for by its value alone")

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Other files are not known."""
        return Bad("another file")

    def record(self, message: Message) -> tuple[Any, ...] | Bad:
        """The cells of the row that a record must be, `Bad` for unknown ones; or `Bad` if it must be a dead letter."""
        if self._last is None or self._last[0] is not message:
            self._last = message, self._record(message)
        return self._last[1]

    def may_leave_out(self, message: Message) -> bool:
        """Whether the pipeline filters records by a transform whose effect on this one can't be derived."""
        row = self.record(message)
        filters = any(step.name == "Filter" for step in self.pipeline.transforms)
        return filters and not isinstance(row, Bad) and all(isinstance(cell, Bad) for cell in row)

    def is_broken(self, message: Message) -> bool | None:
        """Whether value or key can't be decoded, whatever the columns are; None if that can't be derived."""
        headers = {
            name: content if isinstance(content, bytes) else b"" for name, content in headers_of(message).items()
        }
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
        by_name = {name: content if isinstance(content, bytes) else b"" for name, content in headers.items()}
        try:
            raw_key, raw = message.key(), message.value() or b""
            key = None if raw_key is None or self._key is None else self._key(bytes(raw_key), by_name)
            if self._json is not None:
                document = self._json.document(self._own(object_of(raw, self._json_decoder)))
                row = self._cells({}, key, document)
                return self._headers.join(tuple(map(null_empty_values, row)) if self.is_grown else row, headers)
            if self._value is None:
                return LEFT_OUT
            fields = self._value(raw, by_name)
            kind, milliseconds = message.timestamp()
            micros = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1_000
            place = message.topic() or "", message.partition() or 0, message.offset() or 0
            outcome = transform(Record(fields, key, *place, micros, headers), self.pipeline.transforms)
            cells = LEFT_OUT if outcome is None else self._cells(outcome.value, outcome.key, None)
            return self._headers.join(cells, headers if outcome is None else outcome.headers)
        except TombstoneError:
            return Bad("no value") if self.pipeline.value.null_value == "dead_letter" else LEFT_OUT
        except UnjudgedError as error:
            return tuple(self._count_unjudged(name, str(error)) for name in self.columns)
        except Unfit as unfit:
            return Bad(str(unfit))

    def _own(self, whole: Fields) -> Fields:
        """Fields of a JSON value, without those whose names belong only to columns of the key."""
        value_names = {(column.source or (name,))[0] for name, column in self.columns.items() if column.part == "value"}
        keys = {name for name, column in self.columns.items() if column.part != "value"} - value_names
        return {name: value for name, value in whole.items() if name not in keys} if keys else whole

    def _cells(self, value: Fields, key: Fields | None, document: Document | None) -> tuple[Any, ...]:
        cell_readers = iter(() if self._json is None else self._json.cell_readers)
        cells: list[Any] = []
        for name, column in self.columns.items():
            try:
                if column.part == "header":
                    cells.append(None)  # joined at the end
                elif document is not None and column.part == "value":
                    cells.append(next(cell_readers)(document))
                else:
                    cells.append(self._cell(name, column, key if column.part == "key" else value))
            except UnjudgedError as error:
                cells.append(self._count_unjudged(name, str(error)))
        return tuple(cells)

    def _cell(self, name: str, column: Column, fields: Fields | None) -> Any:
        path = (name,) if column.source is None else column.source
        if not path:
            raise UnjudgedError("the whole value as JSON")
        field_value: Any = fields
        for step in path:
            if field_value is None or field_value is _ABSENT:
                field_value = None if fields is None else _ABSENT
                break
            if not isinstance(field_value, dict):
                raise UnjudgedError("no struct on the way to the field")
            field_value = field_value.get(step, _ABSENT)
        if field_value is _ABSENT and column.has_default:
            return self._defaults[name]
        if field_value is None or field_value is _ABSENT:
            if column.required and column.has_default:
                return self._defaults[name]
            if column.required:
                raise Unfit("a required field is missing or null")
            return None
        return self._reads[name](field_value)

    def _count_unjudged(self, name: str, why: str) -> Bad:
        count, first = self.unjudged.get(name, (0, why))
        self.unjudged[name] = count + 1, first
        return _UNJUDGED


def _lenient(read: Read) -> Read:
    """The reader of a column that records brought: what does not fit it may be rescued, or have fitted it once."""

    def read_fitting(value: Any) -> Any:
        try:
            return read(value)
        except Unfit as unfit:
            raise UnjudgedError("it does not fit the column that records brought") from unfit

    return read_fitting


_SURE_KEYS: Final = ("int", "long", "string", "boolean")
"""Types of key columns that are read without doubt."""


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
        is_unsure: Whether a record that changed rows could not be read here: then no row is known for sure.
    """

    def __init__(
        self, pipeline: Pipeline, destination: Destination, columns: Mapping[str, Column], schemas: SchemasOf
    ) -> None:
        super().__init__(destination, columns, pipeline.value)
        self._checks_images = False
        self._null_value = pipeline.value.null_value
        value = pipeline.value
        decode = format_decoder(value, None if value.registry is None else schemas(value.registry))
        if decode is None:
            raise BAD_TRANSFORM.terminal(f"format {value.format} is not read by verify")
        self._decode = decode
        in_orc = destination.file_format == "orc"
        readers = _NativeColumns(columns, pipeline, self, in_orc=in_orc)
        self._column_readers = readers  # type: ignore[assignment]  # the same interface, for plain values
        self._nullable_readers = _NativeColumns(  # type: ignore[assignment]
            {name: column.model_copy(update={"required": False}) for name, column in columns.items()},
            pipeline,
            self,
            in_orc=in_orc,
        )
        self.unjudged: dict[str, tuple[int, str]] = {}
        self.is_unsure = False
        self._is_whole = True

    def record(self, message: Message) -> tuple[RowChange | Bad, ...] | Bad:
        """The row changes in a record, `Bad` for unknown ones; an upsert whose values are not all read here has no row.

        Where a part of the record is not read here, also one that no row needs, there is a `Bad` as well: for that part the
        record may be a dead letter.
        """
        headers = {
            name: content if isinstance(content, bytes) else b"" for name, content in headers_of(message).items()
        }
        self._is_whole = True
        try:
            fields = self._decode(message.value() or b"", headers)
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

    def leave_out(self, name: str, error: UnjudgedError) -> None:
        """Count a cell that is not read here.

        Raises:
            UnjudgedError: It is of the key or the order, so that nothing of the record is known.
        """
        if name in (*self._destination.identifier, self._order_by):
            raise error
        count, first = self.unjudged.get(name, (0, str(error)))
        self.unjudged[name] = count + 1, first
        self._is_whole = False


def _has_unknown(value: Any) -> bool:
    """Whether a part of decoded fields is not read here."""
    if isinstance(value, dict):
        return any(map(_has_unknown, value.values()))
    return any(map(_has_unknown, value)) if isinstance(value, list) else value is UNKNOWN


class _NativeColumns:
    """Reads columns out of rows of plain values, as `ColumnReaders` does out of JSON."""

    def __init__(self, columns: Mapping[str, Column], pipeline: Pipeline, owner: TypedChanges, *, in_orc: bool) -> None:
        self.cell_readers = [_cell_reader(name, column, pipeline, owner, in_orc) for name, column in columns.items()]

    def document(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row as it is."""
        return row


def _cell_reader(
    name: str,
    column: Column,
    pipeline: Pipeline,
    owner: TypedChanges,
    in_orc: bool,  # noqa: FBT001 - one more of many
) -> Callable[[dict[str, Any]], Any]:
    read = native_reader(column.parsed, options_of(column, pipeline.value, in_orc=in_orc))
    default = column_default(name, column, pipeline.value, in_orc=in_orc)
    path = (name,) if column.source is None else column.source

    def read_cell(row: dict[str, Any]) -> Any:
        cell, is_there = _at_path(row, path)
        if cell is None and column.has_default and (column.required or not is_there):
            return default
        if cell is None and column.required:
            raise Unfit("a required field is missing or null")
        try:
            return None if cell is None else read(cell)
        except UnjudgedError as error:
            owner.leave_out(name, error)
            return None

    return read_cell


def _at_path(row: Any, path: tuple[str, ...]) -> tuple[Any, bool]:
    """The value at the end of a path, and whether all of the path is there."""
    for step in path:
        if row is None:
            return None, False
        if not isinstance(row, dict):
            raise UnjudgedError("no struct on the way to the field")
        if step not in row:
            return None, False
        row = row[step]
    return row, True
