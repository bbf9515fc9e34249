"""What pydantic has to complain about a file, in words: the key path, what is wrong, and the name that was meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_LITERAL = "literal["
"""How pydantic names the branch of a union that takes certain words."""


def problems(model: type[BaseModel], error: ValidationError) -> list[str]:
    """One line per complaint of pydantic, without its echoes.

    A tuple that lost its broken items is also called too short, and the other branch of a union complains as well.
    """
    found = error.errors()
    outer = {details["loc"][:depth] for details in found for depth in range(len(details["loc"]))}
    return [
        _problem(model, details)
        for details in found
        if not (details["type"] == "too_short" and details["loc"] in outer) and not _is_other_branch(details)
    ]


def _is_other_branch(details: Any) -> bool:
    """Whether a complaint is of the branch of a union that was not meant: words for text, a mapping for the rest."""
    if details["type"] == "model_type":
        return isinstance(details["input"], str)
    is_branch = any(str(part).startswith(_LITERAL) for part in details["loc"][-1:])
    return details["type"] == "literal_error" and is_branch and not isinstance(details["input"], str)


def _problem(model: type[BaseModel], details: Any) -> str:
    if details["type"] == "extra_forbidden":
        *above, key = details["loc"]
        place = _Place.at(model, above)
        near = get_close_matches(str(key), place.keys, 1)
        known = f", did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(place.keys)}"
        return f"{'.'.join((*place.path, str(key)))}: unknown key{known}"
    place = _Place.at(model, details["loc"])
    below = getattr(details.get("ctx", {}).get("error"), "key", None)
    where = ".".join([*place.path, *([below] if isinstance(below, str) else [])]) or "file"
    message = details["msg"].removeprefix("Value error, ")
    if details["type"] == "missing":
        return f"{where}: is required and missing"
    hidden = place.secret or details["type"] == "value_error" or isinstance(details["input"], dict | list)
    return f"{where}: {message}" + ("" if hidden else f", found {details['input']!r}")


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of a file, seen through the model: key path, keys known there, and whether it may hold secrets."""

    path: tuple[str, ...]
    keys: tuple[str, ...]
    secret: bool

    @classmethod
    def at(cls, model: type[BaseModel], loc: Sequence[str | int]) -> _Place:
        here: list[Any] = [model]
        path: list[str] = []
        secret = False
        for part in loc:
            if part in {of.__name__ for of in here if _is_model(of)} or str(part).startswith(_LITERAL):
                continue  # pydantic names the branch of a union, which is no key of the file
            path.append(str(part))
            secret |= any(not of.model_fields[part].repr for of in here if _is_model(of) and part in of.model_fields)
            here = [inner for of in here for inner in _inside(of, part)]
        keys = tuple(key for of in here if _is_model(of) for key in _keys(of))
        return cls(tuple(path), keys, secret)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a model as they are written in the file."""
    yield from (field.alias or name for name, field in model.model_fields.items())


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """The annotations that hold for one key, or one item, of an annotation."""
    if _is_model(annotation):
        field = annotation.model_fields.get(part)
        yield from _branches(field.annotation) if field else ()
    elif get_origin(annotation) in (dict, tuple):
        yield from _branches(get_args(annotation)[get_origin(annotation) is dict])


def _branches(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for branch in get_args(annotation) for inner in _branches(branch))
    return (annotation,)
