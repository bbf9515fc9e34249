"""Transforms and predicates by the names that users write. Own transforms join by the entry-point group `frazil.transforms`.

The name of an entry point is the transform's `type` in pipeline files. It leads to a class that takes the options as keyword
arguments; its instances are a `frazil.records.model.format.Transform`. ::

    [project.entry-points."frazil.transforms"]
    "acme.Anonymise" = "acme.frazil:Anonymise"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final, TypeVar

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records.model.format import Transform
from frazil.records.transforms import kinds
from frazil.records.transforms.definition import Definition, Predicate, TransformDefinition
from frazil.records.transforms.kinds.conditions import When

GROUP: Final = "frazil.transforms"
"""Group of the entry points of own transforms."""

Kind = TypeVar("Kind", bound=Definition)


def _definitions(base: type[Kind]) -> Mapping[str, type[Kind]]:
    """Return the definitions in the modules of `kinds`, by name."""
    modules = [import_module(f"{kinds.__name__}.{module.name}") for module in iter_modules(kinds.__path__)]
    classes = [member for module in modules for member in vars(module).values() if isinstance(member, type)]
    return MappingProxyType(
        {
            definition.__name__: definition
            for definition in classes
            if issubclass(definition, base) and definition.__module__.startswith(kinds.__name__)
        }
    )


TRANSFORMS: Final = MappingProxyType(dict(sorted(_definitions(TransformDefinition).items())))
"""Frazil's own transforms by name."""

PREDICATES: Final = _definitions(Predicate)
"""Predicates by name."""


def transform(
    name: str, options: Mapping[str, Any], *, when: Predicate | None = None, negate: bool = False
) -> Transform:
    """Return a transform, applied only to the rows that `when` selects.

    `Cast$Key`, a name in Kafka Connect's style, is `Cast` with `target: key`. Options have the names of attributes.

    Raises:
        Terminal: No transform has this name, an own one can't be loaded, or the options don't fit.
    """
    base_name, dollar, target = name.partition("$")
    arguments = {**options, "target": target.lower()} if dollar and base_name in TRANSFORMS else dict(options)
    instance: Transform = _instantiate(name, _load_class(base_name if base_name in TRANSFORMS else name), arguments)
    return instance if when is None else When(instance, when, negate)


def predicate(name: str, options: Mapping[str, Any]) -> Predicate:
    """Return a predicate.

    Raises:
        Terminal: No predicate has this name, or the options don't fit.
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
        instance = factory(**options)
    except TypeError as e:
        raise BAD_TRANSFORM.terminal(
            f"{name}: the options don't fit: {e}", next_step="correct them in the pipeline file"
        ) from e
    if isinstance(instance, Definition):
        instance.prepare()
    return instance


def _unknown_name(kind: str, name: str, known_names: Mapping[str, object]) -> Terminal:
    suggestions = get_close_matches(name, known_names, 1)
    hint = f", did you mean {suggestions[0]!r}?" if suggestions else ""
    return BAD_TRANSFORM.terminal(
        f"no {kind} is named {name!r}{hint}", next_step=f"known: {', '.join(sorted(known_names))}"
    )
