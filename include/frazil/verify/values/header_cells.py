"""Derives the cells of columns that take headers, independently of the code that writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Message

from frazil.pipeline.models.value import Column, Value
from frazil.verify.values.cdc_expectation import RowChange
from frazil.verify.values.column_readers import Bad, column_default, options_of
from frazil.verify.values.json_document import Unfit
from frazil.verify.values.native import LineText, UnjudgedError, native_reader

Headers = Mapping[str, bytes | UnjudgedError | None]
"""Headers by name, of several the last one; an error where a transform made one that is not read here."""

_NOT_SENT: Final = object()


def headers_of(message: Message) -> Headers:
    """The headers of a record."""
    pairs = message.headers() or []
    listed = pairs.items() if isinstance(pairs, dict) else pairs
    return {name: content.encode() if isinstance(content, str) else content for name, content in listed}


def header_text(message: Message, name: str) -> str | None:
    """The text of a header; None if there is none, or none that is UTF-8."""
    content = headers_of(message).get(name)
    try:
        return content.decode() if isinstance(content, bytes) else None
    except UnicodeDecodeError:
        return None


class HeaderCells:
    """Reads the columns of a table that take headers.

    Attributes:
        unjudged: Column -> cells that were not compared, and the first reason.

    Args:
        columns: Name -> column, of the whole table, in the order of its rows.
        value: What the pipeline file says of values.
        order_by: The column that orders changes, if there is one.
        in_orc: Whether the columns are in ORC files.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(
        self, columns: Mapping[str, Column], value: Value, order_by: str | None = None, *, in_orc: bool = False
    ) -> None:
        names = list(columns)
        self.unjudged: Final[dict[str, tuple[int, str]]] = {}
        own = {name: column for name, column in columns.items() if column.part == "header"}
        self._readers: Final[dict[int, Callable[[Headers], Any]]] = {
            names.index(name): self._reader(name, column, value, in_orc=in_orc) for name, column in own.items()
        }
        self._order: Final = names.index(order_by) if order_by in own else None

    def join(self, row: tuple[Any, ...] | Bad, headers: Headers) -> tuple[Any, ...] | Bad:
        """The row, or the changes of rows, with the cells of headers; `Bad` if one of them makes it a dead letter."""
        if isinstance(row, Bad):
            return row
        try:
            cells = {index: read(headers) for index, read in self._readers.items()}
        except Unfit as unfit:
            return Bad(str(unfit))
        if not row or not isinstance(row[0], RowChange):
            return _with_cells(row, cells)
        order = None if self._order is None else cells[self._order]
        if self._order is not None and order is None:
            return Bad("a change without order")
        return tuple(
            replace(
                change,
                row=_with_cells(change.row, cells),
                order=change.order if self._order is None else order,
            )
            for change in row
        )

    def join_known(self, row: tuple[Any, ...] | Bad, headers: Headers) -> tuple[Any, ...] | Bad:
        """The same for a batch under another pipeline file: a cell whose value depends on that is `Bad` alone."""
        if isinstance(row, Bad):
            return row
        cells: dict[int, Any] = {}
        for index, read in self._readers.items():
            try:
                cells[index] = read(headers)
            except Unfit as unfit:
                cells[index] = Bad(str(unfit))
        return _with_cells(row, cells)

    def _reader(self, name: str, column: Column, value: Value, *, in_orc: bool) -> Callable[[Headers], Any]:
        header = name if column.source is None else column.source[0]
        read_text = native_reader(column.parsed, options_of(column, value, in_orc=in_orc))
        default = column_default(name, column, value, in_orc=in_orc)

        def read(headers: Headers) -> Any:
            content = headers.get(header, _NOT_SENT)
            if content is _NOT_SENT and column.has_default:
                return default
            if content is None or content is _NOT_SENT:
                if not column.required:
                    return None
                if column.has_default:
                    return default
                raise Unfit(f"no header {header}")
            try:
                return _cell(content, column.type, read_text)
            except UnjudgedError as error:
                count, first = self.unjudged.get(name, (0, str(error)))
                self.unjudged[name] = count + 1, first
                return Bad(str(error))

        return read


def _with_cells(row: tuple[Any, ...], cells: Mapping[int, Any]) -> tuple[Any, ...]:
    return tuple(cells.get(index, cell) for index, cell in enumerate(row))


def _cell(content: Any, kind: str, read_text: Callable[[Any], Any]) -> Any:
    if isinstance(content, UnjudgedError):
        raise content
    if kind == "binary":
        return content
    if kind.startswith("fixed"):
        if f"fixed[{len(content)}]" != kind:
            raise Unfit(f"a header of {len(content)} bytes")
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise Unfit("a header that is not UTF-8") from error
    return text if kind == "string" else read_text(LineText(text))
