"""Formats by the names that users write. Other packages add formats by the entry-point group `frazil.formats`.

An entry point has the name of the format in pipeline files, and leads to a class. Called without arguments, the class returns a
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
"""The group of entry points that lead to formats of other packages."""

_FIRST: Final = ("connect_json", "avro", "protobuf", "json_schema")
"""Packages whose formats are listed first; the others follow by name."""


def _specs() -> Iterator[type[FormatSpec]]:
    """Yield the definitions of formats: that of JSON, which has no package, then those in the packages beside this file."""
    yield FormatSpec
    packages = (package.name for package in iter_modules(formats.__path__) if package.ispkg)
    for name in sorted(packages, key=lambda package: [*_FIRST, package].index(package)):
        module = import_module(f"{formats.__name__}.{name}")
        classes = (part for part in vars(module).values() if isinstance(part, type))
        yield from (part for part in classes if issubclass(part, FormatSpec) and part.__module__ == module.__name__)


FORMATS: Final = MappingProxyType({name: spec for spec in _specs() for name in spec.names})
"""Formats that come with Frazil, by name."""


def open_format(spec: FormatSpec, *, blocks: bool = True) -> Format:
    """Open a format other than `JSON`. Its libraries are loaded only now.

    Args:
        spec: The format and its options.
        blocks: False parses each value alone: the outcome is the same, but takes longer.

    Raises:
        Terminal: no format has this name, it can't be loaded, or an option is missing or wrong.
    """
    return spec.open(blocks=blocks) if spec.name in FORMATS else _open_added(spec.name)


def _open_added(name: str) -> Format:
    added = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    if name not in added:
        known_names = [*FORMATS, *added]
        suggestions = get_close_matches(name, known_names, 1)
        hint = f", did you mean {suggestions[0]!r}?" if suggestions else ""
        raise BAD_TRANSFORM.terminal(
            f"no format is named {name!r}{hint}", next_step=f"name one of {', '.join(known_names)}"
        )
    try:
        added_format: Format = added[name].load()()
    except (ImportError, AttributeError, TypeError) as e:
        raise BAD_TRANSFORM.terminal(
            f"the format {name} can't be made from {added[name].value}: {e}",
            next_step="install what its entry point names, where the pipeline runs and where its executors run",
        ) from e
    return added_format
