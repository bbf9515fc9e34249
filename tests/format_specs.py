"""Formats by name, as a pipeline file has them."""

from __future__ import annotations

from typing import Any

from frazil.records.formats.catalogue import FORMATS
from frazil.records.model.format import FormatSpec, SchemaSource


def format_spec(name: str, source: SchemaSource | None = None, **options: Any) -> FormatSpec:
    """The format of this name with its options."""
    return FORMATS[name](name, source, **options)
