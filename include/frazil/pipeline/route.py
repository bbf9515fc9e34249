"""How a pipeline file says which records go to which tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.pipeline.strict import Model, TableName


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


Expression = Annotated[str, AfterValidator(_expression)]


class StaticRoute(Model):
    """Tables by the value of a field, as the pipeline file lists them."""

    field: str = Field(min_length=1, description="Field of the value, after transforms: a name or a path, `data.kind`.")
    tables: dict[TableName, Expression] = Field(
        min_length=1,
        description="Destination -> regular expression that must match the whole value. A record goes to every"
        " destination whose expression matches.",
    )


class FieldRoute(Model):
    """The value of a field names the table."""

    name: str = Field(min_length=1, description="Field of the value, after transforms: a name or a path, `data.table`.")
    allow: tuple[Expression, ...] = Field(
        (), description="Regular expressions, of which one must match the whole name. None listed: every destination."
    )
    deny: tuple[Expression, ...] = Field((), description="Regular expressions, of which none may match it.")


class TopicRoute(Model):
    """The topic names the table."""

    rename: dict[Expression, TableName] = Field(
        default_factory=dict,
        description="Regular expression that matches a whole topic, as transforms left it -> destination. The first"
        " that matches counts; a topic that none matches names its destination itself.",
    )


class Route(Model):
    """Which records go to which destinations. One of `static`, `field` and `topic`."""

    static: StaticRoute | None = Field(None, description="By the value of a field, with a list of destinations.")
    field: FieldRoute | None = Field(None, description="By a field whose value is the name of the destination.")
    topic: TopicRoute | None = Field(None, description="By the topic.")
    otherwise: Literal["dead_letter", "filter", "fail"] = Field(
        "dead_letter",
        description="What becomes of a record that no destination is for, because nothing matches, the field is null or"
        " missing, or it names another table: a dead letter, left out and counted, or the run fails.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Route:
        ways = [name for name in ("static", "field", "topic") if getattr(self, name) is not None]
        if len(ways) != 1:
            raise ValueError(f"expected one of static, field and topic, found {' and '.join(ways) or 'none'}")
        return self

    @property
    def tables(self) -> Iterable[str]:
        """Names of the tables that it names."""
        if self.static is not None:
            return self.static.tables.keys()
        return self.topic.rename.values() if self.topic is not None else ()
