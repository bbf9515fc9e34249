"""Transforms and predicates by the names that users write. Own transforms join by the entry-point group `frazil.transforms`.

An entry point is named as the transform is in the pipeline file and leads to a class: called with the options as keyword
arguments it gives a `frazil.records.model.frame.Transform`. ::

    [project.entry-points."frazil.transforms"]
    "acme.Anonymise" = "acme.frazil:Anonymise"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records.model.frame import Transform
from frazil.records.transforms.cdc.debezium import DebeziumTransform
from frazil.records.transforms.cdc.dms import DmsTransform
from frazil.records.transforms.cdc.mongo import MongoDebezium
from frazil.records.transforms.conditions import (
    Filter,
    HasHeaderKey,
    Predicate,
    RecordIsTombstone,
    TopicNameMatches,
    When,
)
from frazil.records.transforms.explode import Explode
from frazil.records.transforms.field_sets import (
    CopyValue,
    ExtractField,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from frazil.records.transforms.flatten import Flatten
from frazil.records.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from frazil.records.transforms.json_text_fields import JsonToMap
from frazil.records.transforms.kafka_metadata import KafkaMetadata
from frazil.records.transforms.routers import RegexRouter, TimestampRouter
from frazil.records.transforms.sql.sql import Sql
from frazil.records.transforms.values.casting import Cast
from frazil.records.transforms.values.masking import MaskField
from frazil.records.transforms.values.timestamps import TimestampConverter

GROUP: Final = "frazil.transforms"
"""Entry points of own transforms."""

TRANSFORMS: Final[Mapping[str, type[Transform]]] = MappingProxyType(
    {
        transform_class.__name__: transform_class
        for transform_class in (
            *(InsertField, ReplaceField, MaskField, Cast, Flatten, Explode, ExtractField, HoistField, ValueToKey),
            *(TimestampConverter, RegexRouter, TimestampRouter, Filter, HeaderFrom, InsertHeader, DropHeaders),
            *(
                SetSchemaMetadata,
                CopyValue,
                KafkaMetadata,
                JsonToMap,
                DebeziumTransform,
                DmsTransform,
                MongoDebezium,
                Sql,
            ),
        )
    }
)
"""Transforms that come with Frazil, by name."""

PREDICATES: Final[Mapping[str, type[Predicate]]] = MappingProxyType(
    {
        predicate_class.__name__: predicate_class
        for predicate_class in (TopicNameMatches, HasHeaderKey, RecordIsTombstone)
    }
)
"""Predicates by name."""


def transform(
    name: str, options: Mapping[str, Any], *, when: Predicate | None = None, negate: bool = False
) -> Transform:
    """Make a transform.

    Args:
        name: Its name; `Cast$Key` is `Cast` with `target: key`, as Kafka Connect writes it.
        options: Its options, spelled as its attributes are.
        when: Records it is meant for; None means all.
        negate: Rather the other records.

    Raises:
        Terminal: no transform of this name, an own one that can't be loaded, or options that don't fit.
    """
    base_name, dollar, target = name.partition("$")
    arguments = {**options, "target": target.lower()} if dollar and base_name in TRANSFORMS else dict(options)
    instance: Transform = _instantiate(name, _load_class(base_name if base_name in TRANSFORMS else name), arguments)
    return instance if when is None else When(instance, when, negate)


def predicate(name: str, options: Mapping[str, Any]) -> Predicate:
    """Make a predicate.

    Raises:
        Terminal: no predicate of this name, or options that don't fit.
    """
    if name not in PREDICATES:
        raise _unknown_name("predicate", name, PREDICATES)
    instance: Predicate = _instantiate(name, PREDICATES[name], options)
    return instance


def _load_class(name: str) -> Callable[..., Any]:
    if name in TRANSFORMS:
        return TRANSFORMS[name]
    own = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    if name not in own:
        raise _unknown_name("transform", name, {**TRANSFORMS, **own})
    try:
        loaded: Callable[..., Any] = own[name].load()
    except (ImportError, AttributeError) as e:
        raise BAD_TRANSFORM.terminal(
            f"the transform {name} can't be loaded from {own[name].value}: {e}",
            next_step="install what its entry point names, where the pipeline runs and where its executors run",
        ) from e
    return loaded


def _instantiate(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        return factory(**options)
    except TypeError as e:
        raise BAD_TRANSFORM.terminal(
            f"{name}: the options don't fit: {e}", next_step="correct them in the pipeline file"
        ) from e


def _unknown_name(kind: str, name: str, known_names: Mapping[str, object]) -> Terminal:
    suggestions = get_close_matches(name, known_names, 1)
    hint = f", did you mean {suggestions[0]!r}?" if suggestions else ""
    return BAD_TRANSFORM.terminal(
        f"no {kind} is named {name!r}{hint}", next_step=f"known: {', '.join(sorted(known_names))}"
    )
