"""Keys for the source of records, for where the first run begins, and for the routes of records to tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from pydantic import AwareDatetime, Field, field_validator, model_validator

from frazil.batch.schema_change import PLAIN_VALUE, VALUE
from frazil.pipeline.models.destination import Create
from frazil.pipeline.syntax.patterns import Expression, matches, refuse_unknown_groups
from frazil.pipeline.syntax.strict import InvalidKey, Model, TableName, TopicName


def _passes(name: str, allow: tuple[str, ...], deny: tuple[str, ...]) -> bool:
    allowed = not allow or any(matches(pattern, name) for pattern in allow)
    return allowed and not any(matches(pattern, name) for pattern in deny)


RoutePart = Literal["value", "header"]

_TEMPLATE: Final = re.compile(r"[\w-]+(\.[\w-]+)*\.[\w-]*\{value\}[\w-]*")

_PART: Final = "What decides: a field of the value, or (`header`) the last header with that name, as text in UTF-8."


class StaticRoute(Model):
    """Routes by the value of a field, to tables that the pipeline file lists."""

    field: str = Field(min_length=1, description="Field of the value, after transforms: a name or a path, `data.kind`.")
    part: RoutePart = Field("value", description=_PART)
    tables: dict[TableName, Expression] = Field(
        min_length=1,
        description="Destination -> regular expression that must match the whole value. A record goes to every"
        " destination whose expression matches.",
    )


class FieldRoute(Model):
    """Routes by a field whose value names the table."""

    name: str = Field(min_length=1, description="Field of the value, after transforms: a name or a path, `data.table`.")
    part: RoutePart = Field("value", description=_PART)
    allow: tuple[Expression, ...] = Field(
        (),
        description="Regular expressions, of which one must match the whole name. Without: every destination. Required with"
        " `create`, so that records can't create tables anywhere.",
    )
    deny: tuple[Expression, ...] = Field((), description="Regular expressions, of which none may match the whole name.")
    table: str | None = Field(
        None,
        description="Name of the destination with `{value}` in its last part, such as `events.{value}`, if the value is only a part"
        " of the name. A value may then only have letters, digits, `_` and `-`. Without: the value is the whole name.",
    )
    lower_case: bool = Field(
        False,
        description="Whether the value is converted to lower case before it names a table, as in Kafka Connect's sink. Then no"
        " destination may have capitals, because no record would go there.",
    )

    @field_validator("table")
    @classmethod
    def _has_value_in_last_part(cls, table: str | None) -> str | None:
        if table is not None and not _TEMPLATE.fullmatch(table):
            raise ValueError(
                f"expected a name with {{value}} once, in its last part: events.{{value}}, found {table!r}"
            )
        return table

    def names(self, table: str) -> bool:
        """Whether any value of the field can name this table."""
        if self.table is None:
            return not self.lower_case or table == table.lower()
        before, _, behind = self.table.partition(VALUE)
        value = table.removeprefix(before).removesuffix(behind)
        is_named = table == f"{before}{value}{behind}" and PLAIN_VALUE.fullmatch(value) is not None
        return is_named and (not self.lower_case or value == value.lower())


class TopicRoute(Model):
    """Routes by topic, whose name is the table's or is mapped to it."""

    rename: dict[Expression, TableName] = Field(
        default_factory=dict,
        description="Regular expression for a whole topic name, after transforms -> destination, which may refer to groups of"
        " the expression, as in `shop.orders_\\1`. The first matching expression counts. The name of any other topic is the"
        " name of its destination.",
    )
    deny: tuple[Expression, ...] = Field(
        (), description="Regular expressions, of which none may match the whole name of the destination."
    )

    @field_validator("rename")
    @classmethod
    def _has_groups(cls, value: dict[str, str]) -> dict[str, str]:
        for expression, name in value.items():
            refuse_unknown_groups(expression, name)
        return value

    @property
    def names(self) -> Iterable[str]:
        """Names of tables in `rename` that don't depend on the topic."""
        return [name for name in self.rename.values() if "\\" not in name]


class Route(Model):
    """Which records go to which destinations. One of `static`, `field` and `topic`."""

    static: StaticRoute | None = Field(None, description="By the value of a field, with a list of destinations.")
    field: FieldRoute | None = Field(None, description="By a field whose value is the name of the destination.")
    topic: TopicRoute | None = Field(None, description="By the topic.")
    create: Create | None = Field(
        None,
        description="Layout of tables that `field` or `topic` names and that don't exist: they are created. Without, only"
        " destinations that the file lists get records.",
    )
    otherwise: Literal["dead_letter", "filter", "fail"] = Field(
        "dead_letter",
        description="What to do with a record without destination: nothing matches, the field is null or missing, or it names"
        " another table or one that can't be created. `dead_letter`: it is a dead letter. `filter`: it is dropped and counted."
        " `fail`: the run fails.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Route:
        ways = [name for name in ("static", "field", "topic") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise ValueError(f"expected one of static, field and topic, found {' and '.join(ways) or 'none'}")
        return self

    @model_validator(mode="after")
    def _creates_within_bounds(self) -> Route:
        if self.create is None:
            return self
        if self.static is not None:
            raise InvalidKey(
                "create", "static lists every table: name them under destinations, or route by field or topic"
            )
        if self.field is not None and not self.field.allow:
            raise InvalidKey("field.allow", "is required with create: it limits the table names that records may use")
        return self

    @property
    def part(self) -> RoutePart:
        """Part of the record, value or header, that decides its route. Routing by topic counts as the value."""
        by_field = self.static or self.field
        return "value" if by_field is None else by_field.part

    def allows(self, table: str) -> bool:
        """Whether the route may still send records to an auto-created table, judged by its name."""
        if self.field is not None:
            is_named = self.field.table is None or self.field.names(table)
            return is_named and _passes(table, self.field.allow, self.field.deny)
        return self.topic is not None and _passes(table, (), self.topic.deny)

    def refuse_unreached(self, tables: Iterable[str]) -> None:
        """Refuse destinations that no record can name.

        Raises:
            InvalidKey: There are some, because they are not in lower case as `lower_case` requires, or don't fit `table`.
        """
        if self.field is None or not (lost := [name for name in tables if not self.field.names(name)]):
            return
        if self.field.table is not None:
            raise InvalidKey("route.field.table", f"no record goes to {', '.join(lost)}: no value makes that name")
        raise InvalidKey(
            "route.field.lower_case", f"no record goes to {', '.join(lost)}: lower-case names are no others"
        )

    @property
    def tables(self) -> Iterable[str]:
        """Names of the tables that the route names, and that must be destinations of the file."""
        if self.static is not None:
            return self.static.tables.keys()
        return self.topic.names if self.topic is not None and self.create is None else ()


class Source(Model):
    """The topics that a pipeline reads."""

    cluster: str = Field("local", description="Name of a Kafka cluster in the settings file.")
    topics: tuple[TopicName, ...] = Field((), description="Topics to read, by exact name.")
    topics_pattern: Expression | None = Field(
        None,
        description="Instead of `topics`: a regular expression in RE2's syntax that matches whole names, such as"
        " `events\\.\\d{8}`. Topics that appear later are read from their beginning. You may delete topics that"
        " were read to their end.",
    )
    on_data_loss: Literal["fail", "skip_recorded"] = Field(
        "fail",
        description="What to do if Kafka deleted records before they were read. `fail`: the run stops and names the"
        " offsets. `skip_recorded`: the run continues after them, and records the skipped offsets in the"
        " snapshot and the ledger. In a new partition, and in a new topic of a pattern, records that were"
        " deleted before the first run count as lost. Of a topic that you add to `topics`, such records are always"
        " skipped and recorded.",
    )
    on_unreadable: Literal["dead_letter", "fail"] = Field(
        "dead_letter",
        description="What to do with a batch of records that the Kafka client can't unpack, because it is damaged or"
        " larger than the cluster's `receive.message.max.bytes`. `dead_letter`: each of its offsets becomes a"
        " dead letter `UNREADABLE_BATCH`. `fail`: the run fails and names the offset.",
    )
    consumer_group: str | Literal[False] | None = Field(
        None,
        description="Consumer group to which each run copies the position, for lag tools; Frazil never reads it. Default:"
        " `frazil-<pipeline>`. `false`: none.",
    )

    @field_validator("topics")
    @classmethod
    def _once(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(topics)) < len(topics):
            raise ValueError("a topic is named twice")
        return topics

    @model_validator(mode="after")
    def _either(self) -> Source:
        if bool(self.topics) == bool(self.topics_pattern):
            raise ValueError("give either topics or topics_pattern")
        return self

    def reads(self, topic: str) -> bool:
        """Whether a topic belongs to the pipeline."""
        if self.topics_pattern is None:
            return topic in self.topics
        return matches(self.topics_pattern, topic)

    @property
    def described(self) -> str:
        """The topics as text, for messages."""
        return ", ".join(self.topics) if self.topics_pattern is None else f"topics like {self.topics_pattern}"


class StartAt(Model):
    """An instant, or offsets, at which the first run begins."""

    timestamp: AwareDatetime | None = Field(
        None, description="The first record at or after this instant, such as 2026-05-01T00:00:00Z."
    )
    offsets: dict[TopicName, dict[int, int]] | None = Field(
        None, description="Topic -> partition -> first offset. Every partition must be named."
    )

    @model_validator(mode="after")
    def _either(self) -> StartAt:
        if (self.timestamp is None) == (self.offsets is None):
            raise ValueError("name either a timestamp or offsets")
        return self

    def __str__(self) -> str:
        return self.timestamp.isoformat() if self.timestamp else "given offsets"


Start = Literal["earliest", "latest"] | StartAt
"""Where the very first run begins."""
