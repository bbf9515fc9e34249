"""Routes decoded rows to tables, by a field of the value, by a header or by the topic."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.schema_change import PLAIN_VALUE, VALUE, table_name_problem
from frazil.error_codes import RECORD_REFUSED
from frazil.errors import Terminal
from frazil.records.casting.nested import index_of_name
from frazil.records.casting.renames import former_names
from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.fields import WholeMatch

Otherwise = Literal["dead_letter", "filter", "fail"]
"""What becomes of a record that no table is for."""

RoutePart = Literal["value", "header"]

_GROUP: Final = re.compile(r"\\(?:g<(?P<name>\w+)>|(?P<number>[1-9]\d?))")

_MAX_CACHED: Final = 10_000
"""Routing values whose tables are cached: a field with ever new values must not fill the memory."""


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A record goes to every table whose regular expression matches the whole value of a field.

    Attributes:
        field: Names from the root of the value to the field, or the one name of a header.
        tables: Table -> its regular expression.
        part: Part of the record that has the field.
    """

    field: tuple[str, ...]
    tables: Mapping[str, str]
    part: RoutePart = "value"


@dataclass(frozen=True, slots=True)
class FieldRoute:
    """The value of a field names the table.

    Attributes:
        field: Names from the root of the value to the field, or the one name of a header.
        allow: Regular expressions, one of which must match the whole name; if there are none, every name is allowed.
        deny: Regular expressions, none of which may match the whole name.
        lower_case: Whether the value is put in lower case first.
        table: Name of the table, in which the value replaces `VALUE`; None: the value is the name.
        part: Part of the record that has the field.
    """

    field: tuple[str, ...]
    allow: tuple[str, ...]
    deny: tuple[str, ...] = ()
    lower_case: bool = False
    table: str | None = None
    part: RoutePart = "value"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The topic, as transforms left it, names the table.

    Attributes:
        rename: Regular expression for a whole topic -> name of the table, which may contain groups of the match. The first expression
            that matches counts.
        deny: Regular expressions, none of which may match the whole name.
    """

    rename: Mapping[str, str]
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTables:
    """Which missing tables are created when records name them.

    Attributes:
        spec: How values become rows of such a table.
        refused: Name of a table that is not created -> why.
        rest: Why no table but the existing ones is created; None: all are, but for the refused ones.
    """

    spec: RecordSpec
    refused: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None

    def refusal(self, name: str) -> str | None:
        """Return why a table of that name is not created; None if it is to be created."""
        return self.refused.get(name, self.rest)


@dataclass(frozen=True, slots=True)
class Route:
    """How records find their tables.

    Attributes:
        rule: Which table a record is for.
        otherwise: What becomes of a record that no table is for: no match, no value, or a table that is no destination.
        new: Which missing tables are created; None: no table is.
        histories: History table -> the table whose records it gets as well. Records can't name a history.
    """

    rule: StaticRoute | FieldRoute | TopicRoute
    otherwise: Otherwise = "dead_letter"
    new: NewTables | None = None
    histories: Mapping[str, str] = field(default_factory=dict)

    @property
    def field(self) -> tuple[str, ...] | None:
        """Names from the root of the value to the routing field; None if the topic or a header routes."""
        return None if isinstance(self.rule, TopicRoute) or self.rule.part == "header" else self.rule.field

    @property
    def header(self) -> str | None:
        """Name of the header that routes; None if none does."""
        return None if isinstance(self.rule, TopicRoute) or self.rule.part == "value" else self.rule.field[0]

    @property
    def path(self) -> str:
        """Path of the routing field in reasons of dead letters."""
        if isinstance(self.rule, TopicRoute):
            return "topic"
        return ".".join(self.rule.field if self.header is None else ("header", *self.rule.field))


class Router:
    """Routes rows to a pipeline's tables."""

    def __init__(self, route: Route, tables: Sequence[str]) -> None:
        self._table_numbers: Final = {table: number for number, table in enumerate(tables)}
        self._route: Final = route
        self.otherwise: Final = route.otherwise
        numbers_by_name = {
            table: number for table, number in self._table_numbers.items() if table not in route.histories
        }
        self._decide: Final = _decider(route.rule, self._table_numbers, numbers_by_name)
        self._decisions: Final[dict[str, RouteDecision]] = {}
        self._histories: Final = [
            (self._table_numbers[history], self._table_numbers[source])
            for history, source in route.histories.items()
            if history in self._table_numbers
        ]

    def rows_by_table(self, texts: pa.StringArray) -> tuple[list[pa.Int64Array], pa.Int64Array]:
        """Return the rows of each table, and the rows that no table is for, each ascending."""
        encoded = texts.dictionary_encode()
        numbers = [decision.tables for decision in self._look_up(encoded.dictionary.to_pylist())]
        table_lists = pa.array(numbers, pa.list_(pa.int32())).take(encoded.indices)
        has_no_table = pc.equal(pc.fill_null(pc.list_value_length(table_lists), 0), 0)
        tables = pc.list_flatten(table_lists)
        order = pc.sort_indices(tables)  # a stable sort
        rows, tables = pc.list_parent_indices(table_lists).cast(pa.int64()).take(order), tables.take(order)
        sizes = {value_count["values"]: value_count["counts"] for value_count in pc.value_counts(tables).to_pylist()}
        rows_by_table, start = [], 0
        for table in range(len(self._table_numbers)):
            size = sizes.get(table, 0)
            rows_by_table.append(rows.slice(start, size))
            start += size
        return rows_by_table, pc.indices_nonzero(has_no_table).cast(pa.int64())

    def new_table(self, value: str | None) -> str | None:
        """Return the name of the missing table that a value or topic names; None if no such table can be created."""
        if self._route.new is None or value is None:
            return None
        name = self._look_up([value])[0].name
        return None if name is None or name in self._table_numbers or table_name_problem(name) else name

    def find_unrouted(
        self, texts: Iterable[tuple[int, str | None]], only: str | None = None
    ) -> tuple[dict[int, Reason], set[str]]:
        """Tell records that no table is for from those whose table is missing and must be created first.

        Args:
            texts: The record's position and the routing text of each row without a table.
            only: The one table to decode for: no other table is created then.

        Returns:
            The reasons of records that no table is for, by position; and the names of the tables to create.
        """
        dead, new_tables = dict[int, Reason](), set[str]()
        reasons: dict[str | None, Reason | None] = {}
        for position, text in texts:
            if text not in reasons:
                name = self.new_table(text)
                reasons[text] = _unrouted_reason(self._route, text) if name is None else self._refusal(name, only)
                if name is not None and reasons[text] is None:
                    new_tables.add(name)
            if (reason := reasons[text]) is not None:
                dead.setdefault(position, reason)
        return dead, new_tables

    def _refusal(self, name: str, only: str | None) -> Reason | None:
        """Return the reason of a record whose table is not created; None if the table is to be created."""
        refusal = None if self._route.new is None else self._route.new.refusal(name)
        if refusal is None and only is not None:
            refusal = f"the letter is of table {only}"
        path = "" if isinstance(self._route.rule, TopicRoute) else self._route.path
        return (
            None
            if refusal is None
            else Reason(DeadCode.TABLE_NOT_MADE, f"table {name} was not created: {refusal}", path)
        )

    def unrouted_error(self, record: Mapping[str, object]) -> Terminal:
        """Return the error for a record without a table. It has the record's offset, never its payload, which may be secret."""
        by_topic = isinstance(self._route.rule, TopicRoute)
        routed_by = "its topic" if by_topic else f"its field {self._route.path}"
        return RECORD_REFUSED.terminal(
            f"topic {record['topic']}, partition {record['partition']}, offset {record['offset']}: {routed_by} names no destination"
            " for this record; nothing was published",
            next_step="name its table under destinations and route, or set route.otherwise to dead_letter or filter",
        )

    def has_table(self, value: str) -> bool:
        """Return whether a value or topic leads to a table, which exists or may be created."""
        return bool(self._look_up([value])[0].tables) or self.new_table(value) is not None

    def _look_up(self, values: Sequence[str]) -> list[RouteDecision]:
        """Return the decisions about values. Those that are not cached are made together."""
        new = [value for value in values if value not in self._decisions]
        if len(self._decisions) + len(new) > _MAX_CACHED and new:
            self._decisions.clear()
            new = list(values)
        for value, (tables, name) in zip(new, self._decide(new) if new else (), strict=True):
            histories = {number for number, source in self._histories if source in tables}
            self._decisions[value] = RouteDecision(tuple(sorted({*tables, *histories})), name)
        return [self._decisions[value] for value in values]


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """The tables that a routing value or topic leads to.

    Attributes:
        tables: Numbers of the tables.
        name: Name of the table that it names, which may be missing; None if it names none.
    """

    tables: tuple[int, ...]
    name: str | None


_Decide = Callable[[Sequence[str]], Iterable[tuple[Collection[int], str | None]]]
"""Takes routing values, returns for each the numbers of its tables, and the name of the table that it names."""


def _decider(
    rule: StaticRoute | FieldRoute | TopicRoute, numbers: Mapping[str, int], numbers_by_name: Mapping[str, int]
) -> _Decide:
    """Return what decides by a rule. A static rule knows all tables by `numbers`; names lead to those of `numbers_by_name`."""
    if isinstance(rule, StaticRoute):
        return _static_decider(rule, numbers)
    table_names = _field_names(rule) if isinstance(rule, FieldRoute) else _topic_names(rule)

    def decide(values: Sequence[str]) -> Iterator[tuple[Collection[int], str | None]]:
        for name in table_names(values):
            number = None if name is None else numbers_by_name.get(name)
            yield () if number is None else (number,), name

    return decide


def _static_decider(rule: StaticRoute, numbers: Mapping[str, int]) -> _Decide:
    patterns = [(WholeMatch(pattern), numbers[table]) for table, pattern in rule.tables.items()]

    def decide(values: Sequence[str]) -> Iterator[tuple[Collection[int], str | None]]:
        texts = pa.array(values, pa.string())
        tables_of_values: list[list[int]] = [[] for _ in values]
        for pattern, number in patterns:
            for row in pc.indices_nonzero(pattern.holds(texts)).to_pylist():
                tables_of_values[row].append(number)
        return ((tables, None) for tables in tables_of_values)

    return decide


def _field_names(rule: FieldRoute) -> Callable[[Sequence[str]], Iterable[str | None]]:
    allow, deny = ([WholeMatch(pattern) for pattern in patterns] for patterns in (rule.allow, rule.deny))

    def table_names(values: Sequence[str]) -> list[str | None]:
        names = pa.array([_table_name(rule, value) for value in values], pa.string())
        refused = _any_matches(deny, names)
        if allow:
            refused = pc.or_(refused, pc.invert(_any_matches(allow, names)))
        return pc.if_else(refused, None, names).to_pylist()  # type: ignore[no-any-return]

    return table_names


def _table_name(rule: FieldRoute, value: str) -> str | None:
    name = value.lower() if rule.lower_case else value
    if rule.table is None:
        return name
    return rule.table.replace(VALUE, name) if PLAIN_VALUE.fullmatch(name) else None


def _topic_names(rule: TopicRoute) -> Callable[[Sequence[str]], Iterable[str | None]]:
    patterns = [
        (match := WholeMatch(pattern), _template_pieces(match, table)) for pattern, table in rule.rename.items()
    ]
    deny = [WholeMatch(pattern) for pattern in rule.deny]

    def table_names(topics: Sequence[str]) -> list[str | None]:
        texts = names = pa.array(topics, pa.string())
        is_unmatched = pa.array([True] * len(texts), pa.bool_())
        for pattern, pieces in patterns:
            matched = pc.and_(is_unmatched, pattern.holds(texts))
            names = pc.if_else(matched, pattern.replace(texts, pieces), names)
            is_unmatched = pc.and_not(is_unmatched, matched)
        return pc.if_else(_any_matches(deny, names), None, names).to_pylist()  # type: ignore[no-any-return]

    return table_names


def _any_matches(patterns: Iterable[WholeMatch], texts: pa.StringArray) -> pa.BooleanArray:
    """Return for each text whether one of the expressions matches it."""
    matches = pa.array([False] * len(texts), pa.bool_())
    for pattern in patterns:
        matches = pc.or_(matches, pattern.holds(texts))
    return matches


def _template_pieces(pattern: WholeMatch, name: str) -> list[str | int]:
    r"""Return the pieces of a name with references to groups, `\1` or `\g<year>`: texts, and numbers of groups."""
    pieces: list[str | int] = []
    position = 0
    for group in _GROUP.finditer(name):
        pieces += [name[position : group.start()], int(group["number"] or pattern.names[group["name"]])]
        position = group.end()
    return [*pieces, name[position:]]


def route_texts(value: pa.RecordBatch, path: Sequence[str], *, case_insensitive: bool = False) -> pa.StringArray:
    """Return the routing text of each decoded value: a text as it is, a number or boolean as JSON writes it, else null.

    A renamed field still routes, as its column still takes its values. Where names ignore case, an exact match goes first, else the
    last field counts, as for columns.
    """
    values: pa.Array = (
        pa.StructArray.from_arrays(value.columns, fields=list(value.schema)) if value.num_columns else None
    )
    for name in path:
        index = None if values is None else _field_index(values.type, name, case_insensitive=case_insensitive)
        if index is None:
            return pa.nulls(len(value), pa.string())
        values = pc.struct_field(values, [index])
    return _route_text(values)


def _field_index(data_type: pa.DataType, name: str, *, case_insensitive: bool) -> int | None:
    if not pa.types.is_struct(data_type):
        return None
    index = index_of_name(name, [field.name for field in data_type], case_insensitive=case_insensitive)
    if index is not None:
        return index
    former_matches = (
        index_of_name(name, former_names(field), case_insensitive=case_insensitive) for field in data_type
    )
    return next((index for index, former_match in enumerate(former_matches) if former_match is not None), None)


def _route_text(values: pa.Array) -> pa.StringArray:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return values.cast(pa.string())
    if pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_decimal(data_type):
        return values.cast(pa.string())
    return pa.nulls(len(values), pa.string())


_MAX_SHOWN: Final = 80
"""Characters of a value that a message shows."""


def _unrouted_reason(route: Route, text: str | None) -> Reason:
    """Return why a record has no table; `text` is the text that routes it, or None."""
    path, by_topic = route.path, isinstance(route.rule, TopicRoute)
    if text is None:
        return Reason(DeadCode.UNROUTED, "expected a text that names the table, found none", path)
    shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    unfit_reason = table_name_problem(text) if route.new is not None and not by_topic else None
    if isinstance(route.rule, FieldRoute) and route.rule.table is not None:
        is_plain = PLAIN_VALUE.fullmatch(text) is not None
        unfit_reason = None if is_plain else "is no part of a name: it has more than letters, digits, '_' and '-'"
    suffix = f", which {unfit_reason}" if unfit_reason else ""
    if by_topic:
        return Reason(DeadCode.UNROUTED, f"expected a topic with a destination, found {shown!r}")
    return Reason(DeadCode.UNROUTED, f"expected a value with a destination, found {shown!r}{suffix}", path)
