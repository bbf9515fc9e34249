"""The base class of all models of files, types of names, and JSON of stored values, which may be damaged or of another version."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.functional_validators import AfterValidator, BeforeValidator, field_validator

LARGEST: Final = 2**63 - 1
"""Largest whole number in a file. Offsets are not larger, and a larger one in one DAG keeps Airflow from storing all of them."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")
_NAMESPACE = re.compile(r"[^.\s]+(\.[^.\s]+)*")
_BRANCH = re.compile(r"(?!frazil-)[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _matching(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return AfterValidator(check)


def readable(parse: Callable[[str], object]) -> AfterValidator:
    """Return the validator of a text that `parse` must accept. The field keeps the text."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def nearest(name: str, names: Collection[str]) -> str:
    """Return a hint at the valid names: the most similar one, or all of them if none is similar."""
    similar = get_close_matches(name, names, 1)
    return f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join(sorted(names))}"


class InvalidKey(ValueError):
    """A problem of a certain key, whose path begins at the model that raises it."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


PipelineName = Annotated[str, _matching(_NAME, "a pipeline name: lower-case letters, digits and '_', a letter first")]
TableName = Annotated[str, _matching(_TABLE, "a table name with its namespace, such as 'rpc.pizzas'")]
Namespace = Annotated[str, _matching(_NAMESPACE, "a namespace, such as 'rpc'")]
BranchName = Annotated[
    str, _matching(_BRANCH, "a branch name: letters, digits, '.', '_' and '-', and none of Frazil's own (frazil-…)")
]
TopicName = Annotated[str, _matching(_TOPIC, "a topic name: letters, digits, '.', '_' and '-'")]


class Model(BaseModel):
    """Base of every model: frozen, refuses unknown keys, and shows no values in tracebacks, because these may be secrets."""

    # Most models are only parts of another one, so their own validators are built only when they are needed.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    @field_validator("*")
    @classmethod
    def _numbers_fit(cls, value: object) -> object:
        if _largest(value) > LARGEST:
            raise ValueError(f"expected a whole number between -{LARGEST} and {LARGEST}")
        return value


def option_keys(kinds: Iterable[type], forms: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the options of definitions as fields for pydantic's `create_model`.

    Args:
        kinds: Dataclasses whose fields were declared with `frazil.records.option`.
        forms: Name of a form -> type of the options that are written in this form.
    """
    keys: dict[str, Any] = {}
    for kind in kinds:
        hints = get_type_hints(kind)
        for declared in (option for option in fields(kind) if option.metadata):
            form, check, bounds = (declared.metadata[part] for part in ("form", "check", "bounds"))
            hint = forms[form] if isinstance(form, str) else hints[declared.name]
            if isinstance(form, tuple):
                hint = Annotated[hint, BeforeValidator(form[0], json_schema_input_type=form[1])]
            if check is not None:
                hint = Annotated[hint, AfterValidator(check)]
            defaults = {name: getattr(declared, name) for name in ("default", "default_factory")}
            default = {name: default for name, default in defaults.items() if default is not MISSING}
            described = Field(
                alias=declared.metadata["key"], description=declared.metadata["meaning"], **default, **bounds
            )
            keys[declared.name] = (hint, described)
    return keys


def kinds_by_key(keys: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Invert a mapping: return key -> kinds that have it, for kind -> its keys."""
    every_key = dict.fromkeys(key for kind_keys in keys.values() for key in kind_keys)
    return {key: [kind for kind, kind_keys in keys.items() if key in kind_keys] for key in every_key}


def _largest(value: object) -> int:
    """The largest absolute value of the whole numbers in a value; 0 for a model, which checks its own."""
    if isinstance(value, int):
        return abs(value)
    return max(map(_largest, value.values()), default=0) if isinstance(value, dict) else 0


T = TypeVar("T")


def write_json(adapter: TypeAdapter[T], value: T) -> str:
    """Return a value as JSON, with times in ISO form."""
    return json.dumps(adapter.dump_python(value, by_alias=True), default=datetime.isoformat, sort_keys=True)


def read_json(adapter: TypeAdapter[T], text: str) -> T:
    """Read what `write_json` wrote.

    Raises:
        ValueError: The text is something else. The one-line message has the place and the expectation, but no content.
    """
    try:
        # Lone surrogates become question marks, because pydantic's JSON parser refuses them.
        encoded = json.dumps(json.loads(text), ensure_ascii=False).encode(errors="replace")
        return adapter.validate_json(encoded, strict=True)
    except ValidationError as error:
        first, *_ = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}") from None
