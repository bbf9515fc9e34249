"""Formats, transforms, token providers and alert channels as they can be named here: where each comes from, in which version, whether it can be used."""

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

OWN_PARTS: Final[Mapping[str, Kind]] = MappingProxyType(
    {formats.GROUP: "format", transforms.GROUP: "transform", kafka_properties.GROUP: "token provider"}
)
"""Entry points by which other packages bring formats, transforms and providers of tokens."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Something that a pipeline or settings file may name.

    Attributes:
        name: As files write it.
        package: The installed package that it comes from.
        version: Of the package; None where it is not installed.
        place: Module and class of an own part; None for those that come with Frazil.
        problem: Why it can't be used; None where it can.
    """

    kind: Kind
    name: str
    package: str
    version: str | None
    place: str | None = None
    problem: str | None = None


def plugins(own_entries: Iterable[EntryPoint] | None = None) -> list[Plugin]:
    """Return all of them, those that come with Frazil first. Own parts are loaded, to know whether they can be."""
    entries = (
        [entry for group in OWN_PARTS for entry in entry_points(group=group)] if own_entries is None else own_entries
    )
    return [*_delivered(), *_own(entries)]


def _delivered() -> Iterator[Plugin]:
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


def _own(entries: Iterable[EntryPoint]) -> Iterator[Plugin]:
    names = {(plugin.kind, plugin.name) for plugin in _delivered()}
    for entry in sorted(entries, key=lambda point: (point.group, point.name, point.value)):
        kind = OWN_PARTS[entry.group]
        problem = "another part has this name" if (kind, entry.name) in names else _loading_problem(entry)
        names.add((kind, entry.name))
        package = entry.dist.name if entry.dist else "unknown"
        yield Plugin(kind, entry.name, package, entry.dist.version if entry.dist else None, entry.value, problem)


def _loading_problem(entry: EntryPoint) -> str | None:
    try:
        entry.load()
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None
