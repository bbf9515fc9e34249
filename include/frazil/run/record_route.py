"""Which tables a pipeline file sends its records to, as the room of records takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from frazil.pipeline.model import Pipeline
from frazil.records.route import FieldRoute, NewTables, Route, StaticRoute, TopicRoute
from frazil.run.record_spec import Schemas, template_spec

NONE_NOW: Final = "no table is made here"
"""Why records that name a table which is not there find none, where none are made."""


def route_of(
    pipeline: Pipeline,
    columns: Mapping[str, pa.Schema],
    schemas: Schemas | None = None,
    *,
    refused: Mapping[str, str] | None = None,
    rest: str | None = NONE_NOW,
) -> Route | None:
    """How records find their tables; None: each goes to all.

    Args:
        pipeline: The pipeline.
        columns: Destination -> columns of its rows.
        schemas: The Schema Registries that the pipeline names, if it does.
        refused: Names of tables that can't be made -> why.
        rest: Why no others are made either; None: records may ask for them.
    """
    route, beside = pipeline.route, pipeline.histories
    if route is None:
        return None
    if route.static is not None:
        static = StaticRoute(_path(route.static.field), route.static.tables)
        return Route(static, route.otherwise, beside=beside)
    spec = template_spec(pipeline, columns, schemas)
    new = None if spec is None else NewTables(spec, refused or {}, rest)
    if route.field is not None:
        by = FieldRoute(_path(route.field.name), route.field.allow, route.field.deny, route.field.lower_case)
        return Route(by, route.otherwise, new, beside)
    topic = route.topic
    by_topic = TopicRoute({}) if topic is None else TopicRoute(topic.rename, topic.deny)
    return Route(by_topic, route.otherwise, new, beside)


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))
