"""What the entries of `transforms:` share: their keys' two spellings, names of fields, and `when`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from frazil.pipeline.syntax.patterns import Expression
from frazil.pipeline.syntax.strict import Model


def split(names: object) -> object:
    """`a, b` as Kafka Connect writes lists, as the list `[a, b]`; anything else as it is."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if "" in names:
        raise ValueError("a name is empty")
    if repeated_name := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise ValueError(f"{repeated_name!r} is named twice")
    return names


Names = Annotated[
    tuple[str, ...], BeforeValidator(split, json_schema_input_type=tuple[str, ...] | str), AfterValidator(_distinct)
]
"""Different names, as a list or with commas between them."""

Half = Literal["value", "key"]


def pairs(written: object) -> object:
    """`a:b, c:d`, or a list of such pairs, as a mapping; anything else as it is.

    Raises:
        ValueError: A piece has no colon, or a name comes twice.
    """
    items = split(written)
    if not isinstance(items, list):
        return items
    mapping: dict[str, str] = {}
    for item in items:
        name, colon, meaning = str(item).rpartition(":")
        if not colon:
            raise ValueError(f"{item!r} is no pair; expected name:other")
        if name.strip() in mapping:
            raise ValueError(f"{name.strip()!r} is named twice")
        mapping[name.strip()] = meaning.strip()
    return mapping


class _Predicate(Model):
    negate: bool = Field(False, description="Rather the records for which it does not hold.")

    @property
    def options(self) -> dict[str, Any]:
        """What the predicate is made with."""
        return self.model_dump(exclude={"predicate", "negate"})


class TopicNameMatches(_Predicate):
    """Records whose topic, as routed so far, an expression matches from end to end."""

    predicate: Literal["TopicNameMatches"] = Field(description="Name of the predicate.")
    pattern: Expression = Field(description="Regular expression of RE2; named groups as Java spells them.")


class HasHeaderKey(_Predicate):
    """Records that have a header."""

    predicate: Literal["HasHeaderKey"] = Field(description="Name of the predicate.")
    name: str = Field(min_length=1, description="Name of the header.")


class RecordIsTombstone(_Predicate):
    """Records that came without value. None of them gets to transforms, so only its negation is allowed: all others."""

    predicate: Literal["RecordIsTombstone"] = Field(description="Name of the predicate.")

    @model_validator(mode="after")
    def _can_hold(self) -> RecordIsTombstone:
        if not self.negate:
            raise ValueError(
                "RecordIsTombstone would never hold: value.null_value decides about records without value before"
                " transforms; leave the transform out, or write negate: true"
            )
        return self


When = Annotated[TopicNameMatches | HasHeaderKey | RecordIsTombstone, Field(discriminator="predicate")]
"""For which records a transform is meant."""


class Step(Model):
    """One transform. Keys with a dot may be written with an underscore instead: `topic.field` or `topic_field`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    when: When | None = Field(
        None,
        description="For which records; all without. The others go on as they are; fields that only one kind has are null"
        " for the other one.",
    )

    @model_validator(mode="before")
    @classmethod
    def _spelling(cls, entry: Any) -> Any:
        """Take `Cast$Key` as `Cast` with `target: key`, and no option in two spellings."""
        if not isinstance(entry, dict):
            return entry
        for name, field in cls.model_fields.items():
            if field.alias and field.alias != name and {name, field.alias} <= entry.keys():
                raise ValueError(f"{field.alias} and {name} are one option, written twice")
        name, dollar, half = str(entry.get("type")).partition("$")
        if not dollar:
            return entry
        if "target" not in cls.model_fields or half not in ("Key", "Value") or "target" in entry:
            raise ValueError(f"{name} has no form ${half}" + (" beside a target" if "target" in entry else ""))
        return {**entry, "type": name, "target": half.lower()}

    @property
    def name(self) -> str:
        """The transform's name in the catalogue."""
        return str(getattr(self, "type"))  # noqa: B009 - each kind of step declares it as its own literal

    @property
    def options(self) -> dict[str, Any]:
        """What the transform is made with, by the names of its attributes."""
        return self.model_dump(exclude={"type", "when"})

    def key_of(self, option: str) -> str:
        """The key under which a file has an option; `topic.field` rather than `topic_field`."""
        return type(self).model_fields[option].alias or option
