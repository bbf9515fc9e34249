"""Formats by the names that users write. Own formats join by the entry-point group `frazil.formats`.

An entry point is named as the format is in the pipeline file and leads to a class; called without arguments it gives a
`frazil.records.model.format.Format`. ::

    [project.entry-points."frazil.formats"]
    "acme.Tlv" = "acme.frazil:TlvFormat"
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from frazil.error_codes import BAD_TRANSFORM
from frazil.records import formats
from frazil.records.model.format import Format, FormatSpec

GROUP: Final = "frazil.formats"
"""Entry points of own formats."""

_FIRST: Final = ("connect_json", "avro", "protobuf", "json_schema")
"""Packages whose formats are listed first; others follow by name."""


def _specs() -> Iterator[type[FormatSpec]]:
    """Yield the definitions in the packages of formats; JSON needs no package."""
    yield FormatSpec
    packages = (package.name for package in iter_modules(formats.__path__) if package.ispkg)
    for name in sorted(packages, key=lambda package: [*_FIRST, package].index(package)):
        module = import_module(f"{formats.__name__}.{name}")
        classes = (part for part in vars(module).values() if isinstance(part, type))
        yield from (part for part in classes if issubclass(part, FormatSpec) and part.__module__ == module.__name__)


FORMATS: Final = MappingProxyType({name: spec for spec in _specs() for name in spec.names})
"""Formats that come with Frazil, by name."""


def open_format(spec: FormatSpec, *, blocks: bool = True) -> Format:
    """Make a format other than `JSON`. Its libraries are loaded only now.

    Args:
        spec: The format and its options.
        blocks: Whether values may be parsed as blocks where that is exact. Without, the outcome is the same, later.

    Raises:
        Terminal: no format of this name, one that can't be loaded, or what it needs to be told is missing or wrong.
    """
    return spec.open(blocks=blocks) if spec.name in FORMATS else _open_own(spec.name)


def _open_own(name: str) -> Format:
    own = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    if name not in own:
        known_names = [*FORMATS, *own]
        suggestions = get_close_matches(name, known_names, 1)
        hint = f", did you mean {suggestions[0]!r}?" if suggestions else ""
        raise BAD_TRANSFORM.terminal(f"no format is named {name!r}{hint}", next_step=f"known: {', '.join(known_names)}")
    try:
        own_format: Format = own[name].load()()
    except (ImportError, AttributeError, TypeError) as e:
        raise BAD_TRANSFORM.terminal(
            f"the format {name} can't be made from {own[name].value}: {e}",
            next_step="install what its entry point names, where the pipeline runs and where its executors run",
        ) from e
    return own_format
