"""Routing: which tables each decoded row is for, by a field of its value or by its topic. Pure: Arrow in, places out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.batch.schema_change import unfit_because
from frazil.records.casting.nested import matching
from frazil.records.casting.renames import former_names
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.patterns import WholeMatch

Otherwise = Literal["dead_letter", "filter", "fail"]
"""What becomes of a record that no table is for."""

_GROUP: Final = re.compile(r"\\(?:g<(?P<name>\w+)>|(?P<number>[1-9]\d?))")

_DECIDED: Final = 10_000
"""Values whose tables are remembered: routes have few, and a field with ever new ones must not fill the memory."""


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A record goes to every table whose expression matches the whole value of a field.

    Attributes:
        field: Names from the root of the value to the field.
        tables: Table -> regular expression.
    """

    field: tuple[str, ...]
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FieldRoute:
    """The value of a field names the table.

    Attributes:
        field: Names from the root of the value to the field.
        allow: Expressions of which one must match the whole name; none: any name will do.
        deny: Expressions of which none may match it.
        lower_case: Whether the value is made lower-case before it is a name.
    """

    field: tuple[str, ...]
    allow: tuple[str, ...]
    deny: tuple[str, ...] = ()
    lower_case: bool = False


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The topic names the table, as transforms left it.

    Attributes:
        rename: Expression that matches a whole topic -> name of the table, which may take up groups; the first that
            matches counts.
        deny: Expressions of which none may match the whole name.
    """

    rename: Mapping[str, str]
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTables:
    """Tables that records name and that are not there.

    Attributes:
        spec: How values become rows of such a table.
        refused: Names of which none is made now -> why.
        rest: Why no other is made either; None: they are asked for.
    """

    spec: RecordSpec
    refused: Mapping[str, str] = field(default_factory=dict)
    rest: str | None = None

    def refusal(self, name: str) -> str | None:
        """Why no table of that name is made now; None if it is asked for."""
        return self.refused.get(name, self.rest)


@dataclass(frozen=True, slots=True)
class Route:
    """How records find their tables.

    Attributes:
        by: What decides.
        otherwise: What becomes of a record that no table is for: no match, no value, or a table that is no destination.
        new: What becomes of tables that are not there; None: there are no others than the pipeline's.
        beside: Table that gets what another one gets -> that one. No record gets there by its name.
    """

    by: StaticRoute | FieldRoute | TopicRoute
    otherwise: Otherwise = "dead_letter"
    new: NewTables | None = None
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def field(self) -> tuple[str, ...] | None:
        """Names from the root of the value to the field that decides; None if none does."""
        return None if isinstance(self.by, TopicRoute) else self.by.field


@dataclass(frozen=True, slots=True)
class Routed:
    """Where rows go.

    Attributes:
        rows: int64, row by row and table by table: which row; ascending within a table.
        tables: int32, beside `rows`: number of the table.
        without: int64, rows that no table is for, ascending.
    """

    rows: pa.Int64Array
    tables: pa.Int32Array
    without: pa.Int64Array

    def of_tables(self, count: int) -> list[pa.Int64Array]:
        """The rows of each table."""
        order = pc.sort_indices(self.tables)  # a stable sort
        rows, tables = self.rows.take(order), self.tables.take(order)
        sizes = {of["values"]: of["counts"] for of in pc.value_counts(tables).to_pylist()}
        found, start = [], 0
        for table in range(count):
            size = sizes.get(table, 0)
            found.append(rows.slice(start, size))
            start += size
        return found


class Router:
    """Routes rows to a pipeline's tables.

    Args:
        route: What decides; None: every row goes to every table.
        tables: Names of the tables, in their order.
    """

    def __init__(self, route: Route | None, tables: Sequence[str]) -> None:
        self._numbers: Final = {table: number for number, table in enumerate(tables)}
        self._route: Final = route
        beside = {} if route is None else route.beside
        named = {table: number for table, number in self._numbers.items() if table not in beside}
        self._decide: Final = None if route is None else _decision(route.by, self._numbers, named)
        self._decided: Final[dict[str, Decided]] = {}
        self._beside: Final = [
            (self._numbers[of], self._numbers[to]) for of, to in beside.items() if of in self._numbers
        ]

    def route(self, texts: pa.StringArray) -> Routed:
        """Where rows go, by the text that decides about each; null where there is none."""
        if self._decide is None:
            return self._everywhere(len(texts))
        encoded = texts.dictionary_encode()
        numbers = [of.tables for of in self._look_up(encoded.dictionary.to_pylist())]
        found = pa.array(numbers, pa.list_(pa.int32())).take(encoded.indices)
        none = pc.equal(pc.fill_null(pc.list_value_length(found), 0), 0)
        rows = pc.list_parent_indices(found).cast(pa.int64())
        return Routed(rows, pc.list_flatten(found), pc.indices_nonzero(none).cast(pa.int64()))

    def new_table(self, value: str | None) -> str | None:
        """Name of the table that a value or topic without table asks for; None if there can be none."""
        if self._route is None or self._route.new is None or value is None:
            return None
        name = self._look_up([value])[0].name
        return None if name is None or name in self._numbers or unfit_because(name) else name

    def finds(self, value: str) -> bool:
        """Whether there is a table for a value or topic, or one may be made."""
        return bool(self._look_up([value])[0].tables) or self.new_table(value) is not None

    def _everywhere(self, size: int) -> Routed:
        count = len(self._numbers)
        each = pa.array(range(size), pa.int64())
        rows = pa.concat_arrays([each] * count)
        tables = pa.concat_arrays([pa.repeat(pa.scalar(number, pa.int32()), size) for number in range(count)])
        return Routed(rows, tables, pa.array([], pa.int64()))

    def _look_up(self, values: Sequence[str]) -> list[Decided]:
        """What is decided about values, those that are new all at once."""
        if self._decide is None:
            raise AssertionError("every row goes to every table")
        new = [value for value in values if value not in self._decided]
        if len(self._decided) + len(new) > _DECIDED and new:
            self._decided.clear()
            new = list(values)
        for value, (found, name) in zip(new, self._decide(new) if new else (), strict=True):
            beside = {number for number, other in self._beside if other in found}
            self._decided[value] = Decided(tuple(sorted({*found, *beside})), name)
        return [self._decided[value] for value in values]


@dataclass(frozen=True, slots=True)
class Decided:
    """Where a value, or a topic, leads.

    Attributes:
        tables: Numbers of the tables, ascending.
        name: The table that it names, there or not; None if it names none.
    """

    tables: tuple[int, ...]
    name: str | None


_Decide = Callable[[Sequence[str]], Iterable[tuple[Collection[int], str | None]]]
"""Numbers of the tables for each value, and the table that it names."""


def _decision(
    by: StaticRoute | FieldRoute | TopicRoute, numbers: Mapping[str, int], named: Mapping[str, int]
) -> _Decide:
    if isinstance(by, StaticRoute):
        return _static(by, numbers)
    names_of = _by_name(by) if isinstance(by, FieldRoute) else _by_topic(by)

    def decide(values: Sequence[str]) -> Iterator[tuple[Collection[int], str | None]]:
        for name in names_of(values):
            number = None if name is None else named.get(name)
            yield () if number is None else (number,), name

    return decide


def _static(by: StaticRoute, numbers: Mapping[str, int]) -> _Decide:
    patterns = [(WholeMatch(pattern), numbers[table]) for table, pattern in by.tables.items()]

    def decide(values: Sequence[str]) -> Iterator[tuple[Collection[int], str | None]]:
        texts = pa.array(values, pa.string())
        found: list[list[int]] = [[] for _ in values]
        for pattern, number in patterns:
            for row in pc.indices_nonzero(pattern.holds(texts)).to_pylist():
                found[row].append(number)
        return ((tables, None) for tables in found)

    return decide


def _by_name(by: FieldRoute) -> Callable[[Sequence[str]], Iterable[str | None]]:
    allow, deny = ([WholeMatch(pattern) for pattern in of] for of in (by.allow, by.deny))

    def names_of(values: Sequence[str]) -> list[str | None]:
        names = pa.array([value.lower() if by.lower_case else value for value in values], pa.string())
        refused = _any(deny, names)
        if allow:
            refused = pc.or_(refused, pc.invert(_any(allow, names)))
        found: list[str | None] = pc.if_else(refused, None, names).to_pylist()
        return found

    return names_of


def _by_topic(by: TopicRoute) -> Callable[[Sequence[str]], Iterable[str | None]]:
    patterns = [(found := WholeMatch(pattern), _pieces(found, table)) for pattern, table in by.rename.items()]
    deny = [WholeMatch(pattern) for pattern in by.deny]

    def names_of(topics: Sequence[str]) -> list[str | None]:
        texts = names = pa.array(topics, pa.string())
        is_left = pa.array([True] * len(texts), pa.bool_())
        for pattern, pieces in patterns:
            matched = pc.and_(is_left, pattern.holds(texts))
            names = pc.if_else(matched, pattern.replaced(texts, pieces), names)
            is_left = pc.and_not(is_left, matched)
        found: list[str | None] = pc.if_else(_any(deny, names), None, names).to_pylist()
        return found

    return names_of


def _any(patterns: Iterable[WholeMatch], texts: pa.StringArray) -> pa.BooleanArray:
    """Per text whether one of the expressions matches it."""
    found = pa.array([False] * len(texts), pa.bool_())
    for pattern in patterns:
        found = pc.or_(found, pattern.holds(texts))
    return found


def _pieces(pattern: WholeMatch, name: str) -> list[str | int]:
    r"""A name as texts and numbers of the groups that it takes up: `\1` or `\g<year>`."""
    pieces: list[str | int] = []
    position = 0
    for group in _GROUP.finditer(name):
        pieces += [name[position : group.start()], int(group["number"] or pattern.names[group["name"]])]
        position = group.end()
    return [*pieces, name[position:]]


def route_texts(value: pa.RecordBatch, path: Sequence[str], *, case_insensitive: bool = False) -> pa.StringArray:
    """The texts that decide, of decoded fields: a text as it is, numbers and booleans as JSON writes them, else null.

    A field that was renamed decides as before, as its column takes its values as before.

    Args:
        value: The fields of the values.
        path: Names from the root to the field.
        case_insensitive: Whether names that differ by case only are the same field; an exact match goes first.
    """
    found: pa.Array = (
        pa.StructArray.from_arrays(value.columns, fields=list(value.schema)) if value.num_columns else None
    )
    for name in path:
        at = None if found is None else _index(found.type, name, case_insensitive=case_insensitive)
        if at is None:
            return pa.nulls(len(value), pa.string())
        found = pc.struct_field(found, [at])
    return _text(found)


def _index(of: pa.DataType, name: str, *, case_insensitive: bool) -> int | None:
    if not pa.types.is_struct(of):
        return None
    names = [field.name for field in of]
    if name in names:
        return names.index(name)
    folded = [each.casefold() for each in names]
    if case_insensitive and name.casefold() in folded:
        return folded.index(name.casefold())
    before = (matching(name, former_names(field), case_insensitive=case_insensitive) for field in of)
    return next((at for at, found in enumerate(before) if found is not None), None)


def _text(values: pa.Array) -> pa.StringArray:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    of = values.type
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return values.cast(pa.string())
    if pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_decimal(of):
        return values.cast(pa.string())
    return pa.nulls(len(values), pa.string())
