"""Top-level fields that transforms read or write; all other fields pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from frazil.records.model.frame import BARE, Transform
from frazil.records.transforms.conditions import Filter, When, WithKey
from frazil.records.transforms.explode import Explode
from frazil.records.transforms.field_sets import (
    CopyValue,
    ExtractField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from frazil.records.transforms.fields import split_path
from frazil.records.transforms.flatten import Flatten
from frazil.records.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from frazil.records.transforms.json_text_fields import JsonToMap
from frazil.records.transforms.kafka_metadata import KafkaMetadata
from frazil.records.transforms.routers import RegexRouter, TimestampRouter
from frazil.records.transforms.sql.sql import Sql
from frazil.records.transforms.values.casting import Cast
from frazil.records.transforms.values.masking import MaskField
from frazil.records.transforms.values.timestamps import TimestampConverter

Names = Iterable[str | None] | None
"""Names of fields; None: the transform reads all fields, or its outcome depends on which fields there are."""


def named_fields(transforms: Sequence[Transform]) -> frozenset[str] | None:
    """Return the fields that transforms read or write, by their folded names; None if one of them looks at all fields.

    All other fields either pass through or are left out, each by itself. A transform that is not known here, such as an own
    one, looks at all fields.
    """
    folded_names: set[str] = set()
    for transform in transforms:
        names = _names(transform)
        if names is None:
            return None
        folded_names.update(name.casefold() for name in names if name)
    return frozenset(folded_names)


def _names(transform: Any) -> Names:
    if isinstance(transform, WithKey):
        return ()
    if isinstance(transform, When):
        # The decoder itself handles a Flatten of all records, but not one under a condition.
        return None if isinstance(transform.transform, Flatten) else _names(transform.transform)
    read_names = _NAME_READERS.get(type(transform))
    return None if read_names is None else read_names(transform)


def _inserted_fields(transform: InsertField) -> Names:
    named = (
        transform.topic_field,
        transform.partition_field,
        transform.offset_field,
        transform.timestamp_field,
        transform.static_field,
    )
    return [name and name.rstrip("!?") for name in named]


def _metadata_fields(transform: KafkaMetadata) -> Names:
    return [transform.field_name, *(f"{transform.field_name}_{name}" for name in transform.facts)]


def _no_fields(_transform: object) -> Names:
    return ()


_NAME_READERS: Final[Mapping[type, Callable[[Any], Names]]] = MappingProxyType(
    {
        InsertField: _inserted_fields,
        ReplaceField: lambda transform: [
            *transform.include,
            *transform.exclude,
            *transform.renames,
            *transform.renames.values(),
        ],
        MaskField: lambda transform: transform.fields,
        # Without a name it is for values whose only field is called `value`.
        Cast: lambda transform: None if isinstance(transform.spec, str) else transform.spec,
        TimestampConverter: lambda transform: [transform.field] if transform.field else None,
        JsonToMap: lambda transform: None if transform.field == BARE else [transform.field],
        Explode: lambda transform: None if transform.spread else [transform.field, transform.position_field],
        ExtractField: lambda transform: [transform.field, split_path(transform.field)[0]],
        ValueToKey: lambda transform: transform.fields,
        CopyValue: lambda transform: [transform.source_field, transform.target_field],
        HeaderFrom: lambda transform: transform.fields,
        KafkaMetadata: _metadata_fields,
        Sql: lambda transform: transform.referenced_names(),
        **dict.fromkeys(
            (Filter, Flatten, SetSchemaMetadata, InsertHeader, DropHeaders, RegexRouter, TimestampRouter), _no_fields
        ),
    }
)
