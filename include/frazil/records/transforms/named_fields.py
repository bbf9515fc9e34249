"""Which fields at the top of a value transforms look at: the others pass through, whatever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from frazil.records.formats.port import BARE
from frazil.records.frame import Transform
from frazil.records.transforms.casting import Cast
from frazil.records.transforms.conditions import Filter, When, WithKey
from frazil.records.transforms.copy_value import CopyValue
from frazil.records.transforms.explode import Explode
from frazil.records.transforms.field_sets import (
    ExtractField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from frazil.records.transforms.fields import steps
from frazil.records.transforms.flatten import Flatten
from frazil.records.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from frazil.records.transforms.json_text_fields import JsonToMap
from frazil.records.transforms.kafka_metadata import KafkaMetadata
from frazil.records.transforms.masking import MaskField
from frazil.records.transforms.routers import RegexRouter, TimestampRouter
from frazil.records.transforms.sql import Sql
from frazil.records.transforms.timestamps import TimestampConverter

Names = Iterable[str | None] | None
"""Names of fields; None: the transform looks at all of them, or what it does depends on which there are."""


def named_fields(transforms: Sequence[Transform]) -> frozenset[str] | None:
    """Return the fields that transforms read or write, by their folded names; None if one of them looks at all fields.

    All other fields either pass through or are left out, each by itself. A transform that is not known here, such as an own
    one, looks at all fields.
    """
    found: set[str] = set()
    for transform in transforms:
        names = _names(transform)
        if names is None:
            return None
        found.update(name.casefold() for name in names if name)
    return frozenset(found)


def _names(transform: Any) -> Names:
    if isinstance(transform, WithKey):
        return ()
    if isinstance(transform, When):
        # What is flattened is told of all records, or of none.
        return None if isinstance(transform.transform, Flatten) else _names(transform.transform)
    of = _OF.get(type(transform))
    return None if of is None else of(transform)


def _inserted(of: InsertField) -> Names:
    named = (of.topic_field, of.partition_field, of.offset_field, of.timestamp_field, of.static_field)
    return [name and name.rstrip("!?") for name in named]


def _metadata(of: KafkaMetadata) -> Names:
    return [of.field_name, *(f"{of.field_name}_{name}" for name in of.facts)]


def _nothing(_of: object) -> Names:
    return ()


_OF: Final[Mapping[type, Callable[[Any], Names]]] = MappingProxyType(
    {
        InsertField: _inserted,
        ReplaceField: lambda of: [*of.include, *of.exclude, *of.renames, *of.renames.values()],
        MaskField: lambda of: of.fields,
        # Without a name it is for values whose only field is called `value`.
        Cast: lambda of: None if isinstance(of.spec, str) else of.spec,
        TimestampConverter: lambda of: [of.field] if of.field else None,
        JsonToMap: lambda of: None if of.field == BARE else [of.field],
        Explode: lambda of: None if of.spread else [of.field, of.position_field],
        ExtractField: lambda of: [of.field, steps(of.field)[0]],
        ValueToKey: lambda of: of.fields,
        CopyValue: lambda of: [of.source_field, of.target_field],
        HeaderFrom: lambda of: of.fields,
        KafkaMetadata: _metadata,
        Sql: lambda of: of.named(),
        **dict.fromkeys(
            (Filter, Flatten, SetSchemaMetadata, InsertHeader, DropHeaders, RegexRouter, TimestampRouter), _nothing
        ),
    }
)
