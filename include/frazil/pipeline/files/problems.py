"""Turns pydantic's errors about a file into sentences: the key path, what is wrong, and the nearest valid name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from frazil.pipeline.files.references import REFERENCE, hide

_LITERAL = "literal["
"""How pydantic names the branch of a union that takes certain words."""

_CHECKED = "function-after["
"""How pydantic names the branch of a union whose model is checked as a whole."""


_LONGEST = 200
"""Characters that are quoted of what a file has."""


def problems(
    model: type[BaseModel], error: ValidationError, raw: Mapping[Any, Any], values: Mapping[str, str]
) -> list[str]:
    """One line per error of pydantic, without consequential errors and without resolved references.

    A tuple that lost its broken items is also called too short, and the other branch of a union complains as well.
    """
    complaints = error.errors()
    outer = {details["loc"][:depth] for details in complaints for depth in range(len(details["loc"]))}
    return [
        _problem(model, details, raw, values)
        for details in complaints
        if not (details["type"] == "too_short" and details["loc"] in outer) and not _is_other_branch(details)
    ]


def _is_other_branch(details: Any) -> bool:
    """Whether an error belongs to the branch of a union that the author did not use: text or mapping."""
    if details["type"] == "model_type":
        return isinstance(details["input"], str)
    is_branch = any(str(part).startswith(_LITERAL) for part in details["loc"][-1:])
    return details["type"] == "literal_error" and is_branch and not isinstance(details["input"], str)


def _problem(model: type[BaseModel], details: Any, raw: Mapping[Any, Any], values: Mapping[str, str]) -> str:
    if details["type"] == "extra_forbidden":
        *above, key = details["loc"]
        place = _Place.locate(model, above)
        similar = get_close_matches(str(key), place.keys, 1)
        hint = f", did you mean {similar[0]!r}?" if similar else f"; known keys: {', '.join(place.keys)}"
        return f"{'.'.join((*place.path, str(key)))}: unknown key{hint}"
    place = _Place.locate(model, details["loc"])
    below = getattr(details.get("ctx", {}).get("error"), "key", None)
    where = ".".join([*place.path, *([below] if isinstance(below, str) else [])]) or "file"
    if details["type"] == "missing":
        return f"{where}: is required and missing"
    if isinstance(text := _written(raw, place.path), str) and REFERENCE.search(text):
        # Even the complaint may quote a part of the value.
        expected = f"; expected: {place.description}" if place.description else ""
        return f"{where}: what {text!r} stands for does not fit{expected}"
    message = hide(details["msg"].removeprefix("Value error, "), values)
    hidden = place.secret or details["type"] == "value_error" or isinstance(details["input"], dict | list)
    return f"{where}: {message}" + ("" if hidden else f", found {_quoted(details['input'])}")


def _written(raw: object, path: Sequence[str]) -> object:
    """What a file has at a key path, or above it where the model takes a text apart."""
    node = raw
    for part in path:
        if isinstance(node, dict):
            node = next((value for key, value in node.items() if str(key) == part), None)
        elif isinstance(node, list):
            node = node[int(part)] if part.isdecimal() and int(part) < len(node) else None
        else:
            break
    return node


def _quoted(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number that is too long to be shown"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a file by its model: key path, valid keys, whether it may hold secrets, and its description."""

    path: tuple[str, ...]
    keys: tuple[str, ...]
    secret: bool
    description: str | None

    @classmethod
    def locate(cls, model: type[BaseModel], loc: Sequence[str | int]) -> _Place:
        types: list[Any] = [model]
        path: list[str] = []
        secret, description = False, None
        for part in loc:
            # pydantic names the branch of a union, which is no key of the file
            if branch := [one for one in types if _is_model(one) and one.__name__ == part]:
                types = branch
                continue
            if str(part).startswith((_LITERAL, _CHECKED)):
                continue
            path.append(str(part))
            fields = [field for model in types if _is_model(model) and (field := _field(model, part))]
            secret |= any(not field.repr for field in fields)
            description = next((field.description for field in fields), description)
            types = [inner for outer in types for inner in _inside(outer, part)]
        keys = tuple(key for model_type in types if _is_model(model_type) for key in _keys(model_type))
        return cls(tuple(path), keys, secret, description)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a model as they are written in the file."""
    yield from (field.alias or name for name, field in model.model_fields.items())


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    """The field that a file's key fills, also where the attribute has another name."""
    return next((field for name, field in model.model_fields.items() if key in (field.alias, name)), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """The annotations that hold for one key, or one item, of an annotation."""
    if _is_model(annotation):
        field = _field(annotation, part)
        yield from _branches(field.annotation) if field else ()
    elif get_origin(annotation) in (dict, tuple):
        yield from _branches(get_args(annotation)[get_origin(annotation) is dict])


def _branches(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for branch in get_args(annotation) for inner in _branches(branch))
    return (annotation,)
