"""Values that surely fit a JSON schema, found without the validator, which takes ten times as long.

A check answers True only where the validator would say that a value is valid, and False wherever it does not know. So it
never refuses a value: the validator decides what it leaves, and says what is wrong. A schema with a keyword that has no
check here has none at all; keywords that the validator of the draft does not know are ignored by it, and here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from jsonschema.protocols import Validator
from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    validator_for,
)
from referencing.exceptions import Unresolvable

from frazil.records.formats.json_schema_words import (
    SIMPLE,
    Check,
    UncheckedError,
    all_of,
    always,
    any_of,
    items,
    members,
    never,
    type_names,
)

_DRAFTS: Final = (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
_IGNORES_BESIDE_REF: Final = (Draft4Validator, Draft6Validator, Draft7Validator)
_OF_DRAFT_4: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
_OWN_SCOPE: Final = ("$id", "id", "$schema")
"""Keywords that give a schema inside of another one its own address or draft."""

_NO_CHECK: Final = (
    UncheckedError,
    Unresolvable,
    re.error,
    RecursionError,
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
)
"""What making a check raises. Only the schema is held against its metaschema, not what it refers to."""


def quick_check(schema: Any, resolver: Any, draft: type[Validator]) -> Check | None:
    """Return what tells values that are surely valid, or None if that can't be told.

    Args:
        schema: A schema that its draft's metaschema allows, numbers with a point as `Decimal`.
        resolver: Knows what it refers to (a resolver of `referencing`).
        draft: The validator that decides.
    """
    if draft not in _DRAFTS:
        return None
    try:
        return _Checks(draft).of(schema, resolver)
    except _NO_CHECK:
        return None


class _Checks:
    """Makes checks of the schemas of one draft."""

    def __init__(self, draft: type[Validator]) -> None:
        self._draft: Final = draft
        self._known: Final[Mapping[str, Any]] = draft.VALIDATORS
        self._open: Final[list[Any]] = []
        self._made: Final[list[tuple[Any, Check]]] = []

    def of(self, schema: Any, resolver: Any) -> Check:
        """Return the check of one schema.

        Raises:
            UncheckedError: there is none.
        """
        if schema is True:
            return always
        if schema is False:
            return never
        if not isinstance(schema, dict):
            raise UncheckedError
        if "$ref" in schema and self._draft in _IGNORES_BESIDE_REF:
            return self._reference(schema["$ref"], resolver)
        if _OF_DRAFT_4 & schema.keys() - self._known.keys():  # they change the meaning of others
            raise UncheckedError
        found = list(self._keywords(schema, resolver))
        if len(found) == 1:
            return found[0]
        return partial(all_of, tuple(found)) if found else always

    def _keywords(self, schema: dict[str, Any], resolver: Any) -> Iterator[Check]:
        for keyword, said in schema.items():
            if keyword not in self._known or keyword in _NOTHING:
                continue
            if keyword == "$ref":
                yield self._reference(said, resolver)
            elif (simple := SIMPLE.get(keyword)) is not None:
                yield simple(said)
            elif keyword in {"items", "allOf", "anyOf", "oneOf"}:
                yield self._combined(keyword, said, resolver)
            elif keyword not in _OF_OBJECTS:
                raise UncheckedError
        if schema.keys() & _OF_OBJECTS:
            yield self._object(schema, resolver)

    def _inside(self, schema: Any, resolver: Any) -> Check:
        """Return the check of a schema that stands inside of another one."""
        if isinstance(schema, dict) and any(name in schema for name in _OWN_SCOPE):
            raise UncheckedError
        return self.of(schema, resolver)

    def _reference(self, name: Any, resolver: Any) -> Check:
        resolved = resolver.lookup(name)
        schema = resolved.contents
        if (known := next((check for of, check in self._made if of is schema), None)) is not None:
            return known
        holds_itself = any(each is schema for each in self._open)
        if holds_itself or (isinstance(schema, dict) and validator_for(schema, default=self._draft) is not self._draft):
            raise UncheckedError
        self._open.append(schema)
        check = self.of(schema, resolved.resolver)
        self._open.pop()
        self._made.append((schema, check))
        return check

    def _combined(self, keyword: str, said: Any, resolver: Any) -> Check:
        if keyword == "items":
            if isinstance(said, list):  # a schema for each place
                raise UncheckedError
            return partial(items, self._inside(said, resolver))
        checks = tuple(self._inside(each, resolver) for each in said)
        if keyword == "oneOf" and not _apart(said):
            raise UncheckedError
        return partial(all_of if keyword == "allOf" else any_of, checks)

    def _object(self, schema: dict[str, Any], resolver: Any) -> Check:
        fields = {name: self._inside(of, resolver) for name, of in schema.get("properties", {}).items()}
        others = self._inside(schema.get("additionalProperties", True), resolver)
        return partial(members, fields, tuple(schema.get("required", ())), None if others is always else others)


def _apart(schemas: list[Any]) -> bool:
    """Return whether no value can be valid by two of these schemas, because their types differ."""
    seen: set[str] = set()
    for schema in schemas:
        if not isinstance(schema, dict) or "$ref" in schema or "type" not in schema:
            return False
        types = {"number" if name == "integer" else name for name in type_names(schema["type"])}
        if seen & types:
            return False
        seen |= types
    return True


_NOTHING: Final = frozenset({"format"})
"""Known to the validator, and without meaning, since it is given no checker of formats."""

_OF_OBJECTS: Final = frozenset({"properties", "required", "additionalProperties"})
