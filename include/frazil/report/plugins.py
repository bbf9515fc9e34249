"""Lists the formats, transforms, token providers and alert channels that files may name: the package and version that each
comes from, and whether it can be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Final, Literal

from frazil import __version__, kafka_properties
from frazil.extras import installed_version
from frazil.pipeline.channels import CHANNELS
from frazil.records.formats import catalogue as formats
from frazil.records.transforms import catalogue as transforms

Kind = Literal["format", "transform", "channel", "token provider"]

FRAZIL: Final = "frazil"

GROUPS: Final[Mapping[str, Kind]] = MappingProxyType(
    {formats.GROUP: "format", transforms.GROUP: "transform", kafka_properties.GROUP: "token provider"}
)
"""Group of entry points -> kind of plugin that packages of users provide by it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A format, transform, token provider or channel.

    Attributes:
        name: Name in files.
        package: The package that it comes from.
        version: Version of the package; None if it is not installed.
        place: Module and class of a plugin of a user's package; None for Frazil's own.
        problem: Why it can't be used; None if it can.
    """

    kind: Kind
    name: str
    package: str
    version: str | None
    place: str | None = None
    problem: str | None = None


def plugins() -> list[Plugin]:
    """List all plugins, Frazil's own first. Those of users' packages are loaded, to see whether they can be used."""
    entries = [entry for group in GROUPS for entry in entry_points(group=group)]
    return [*_builtin(), *_loaded(entries)]


def _builtin() -> Iterator[Plugin]:
    for name in formats.FORMATS:
        yield Plugin("format", name, FRAZIL, __version__)
    for name in transforms.TRANSFORMS:
        yield Plugin("transform", name, FRAZIL, __version__)
    for name in kafka_properties.PROVIDERS:
        yield Plugin("token provider", name, FRAZIL, __version__)
    for name, channel in CHANNELS.items():
        installed = installed_version(channel.package)
        problem = None if installed else f"not installed where this command runs: pip install {channel.package}"
        yield Plugin("channel", name, channel.package, installed, problem=problem)


def _loaded(entries: Iterable[EntryPoint]) -> Iterator[Plugin]:
    names = {(plugin.kind, plugin.name) for plugin in _builtin()}
    for entry in sorted(entries, key=lambda point: (point.group, point.name, point.value)):
        kind = GROUPS[entry.group]
        problem = "another plugin has this name" if (kind, entry.name) in names else _loading_problem(entry)
        names.add((kind, entry.name))
        package = entry.dist.name if entry.dist else "unknown"
        yield Plugin(kind, entry.name, package, entry.dist.version if entry.dist else None, entry.value, problem)


def _loading_problem(entry: EntryPoint) -> str | None:
    try:
        entry.load()
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None
