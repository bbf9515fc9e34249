"""Nested structs as plain columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from frazil.error_codes import BAD_TRANSFORM, FIELDS_UNFIT
from frazil.errors import Terminal
from frazil.records.model.changes import Column
from frazil.records.model.frame import Frame, Transformed
from frazil.records.transforms.fields import Target, batch_of, columns_of, fields_of, with_fields
from frazil.records.transforms.values.arrow_json import json_texts


@dataclass(frozen=True, slots=True)
class Flatten:
    """Turns struct fields into fields of their own, named by their path: `address.city`.

    What a null struct holds is null. Maps, and structs without fields, stay as they are; so do structs within lists (explode
    the list first, or have it as JSON).

    Attributes:
        delimiter: Between the names of a path.
        depth: So many levels of structs are opened; None means all.
        lists: Whether lists are kept or become JSON text.
        target: Values or keys.

    Raises:
        Terminal: a depth below 1. On `apply`: two fields would get one name.
    """

    delimiter: str = "."
    depth: int | None = None
    lists: Literal["keep", "json"] = "keep"
    target: Target = "value"

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise BAD_TRANSFORM.terminal(
                f"Flatten: expected a depth of 1 or more, found {self.depth}", next_step="leave depth out"
            )

    def apply(self, frame: Frame) -> Transformed:
        """Flatten."""
        fields = fields_of(frame, self.target)
        paths: dict[str, tuple[str, ...]] = {}
        columns: list[Column] = []
        for path, (declared, values) in self._flatten(columns_of(fields), ()):
            name = self.delimiter.join(path)
            if name in paths:
                raise _collision(name, paths[name], path)
            paths[name] = path
            columns.append((declared.with_name(name), values))
        return Transformed(with_fields(frame, self.target, batch_of(columns, len(frame), like=fields)))

    def _flatten(self, columns: list[Column], outer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Column]]:
        for declared, values in columns:
            path = (*outer, declared.name)
            if self._is_flattened(declared.type, len(path)):
                yield from self._flatten(children(declared, values), path)
            elif self.lists == "json" and _is_list(declared.type):
                yield path, (declared.with_type(pa.string()), json_texts(values))
            else:
                yield path, (declared, values)

    def _is_flattened(self, kind: pa.DataType, level: int) -> bool:
        return pa.types.is_struct(kind) and kind.num_fields > 0 and (self.depth is None or level <= self.depth)


def children(declared: pa.Field, values: pa.StructArray) -> list[Column]:
    """Return the fields of a struct column, null where it is null, and optional if it is."""
    fields = [field.with_nullable(field.nullable or declared.nullable) for field in declared.type]
    return list(zip(fields, values.flatten(), strict=True))


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _collision(name: str, first: tuple[str, ...], second: tuple[str, ...]) -> Terminal:
    first_path, second_path = (" > ".join(path) for path in (first, second))
    return FIELDS_UNFIT.terminal(
        f"Flatten: {first_path} and {second_path} both become {name}",
        next_step="choose another delimiter, or rename one of them with ReplaceField first",
    )
