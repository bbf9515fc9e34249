"""The pipeline file's `transforms:` as models, one per definition of a transform and one for transforms of other packages; `type`
selects the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from importlib.metadata import entry_points
from inspect import cleandoc
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    create_model,
    field_validator,
    model_validator,
)

from frazil.pipeline.syntax.patterns import Expression
from frazil.pipeline.syntax.strict import Model, nearest, option_keys
from frazil.pipeline.syntax.types import parse_type
from frazil.records.transforms.catalogue import GROUP, PREDICATES, TRANSFORMS
from frazil.records.transforms.definition import Definition, Predicate, TransformDefinition, options_of, pairs, split

# The models get options, descriptions and checks from the definitions in `frazil.records.transforms.kinds`.


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if "" in names:
        raise ValueError("a name is empty")
    if repeated_name := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise ValueError(f"{repeated_name!r} is named twice")
    return names


def _struct(value: str) -> str:
    text = str(parse_type(value))
    if not text.startswith("struct<"):
        raise ValueError(f"{text!r} is no struct")
    return text


_FORMS: Final[Mapping[str, Any]] = {
    "names": Annotated[
        tuple[str, ...], BeforeValidator(split, json_schema_input_type=tuple[str, ...] | str), AfterValidator(_distinct)
    ],
    "pairs": Annotated[
        dict[str, str], BeforeValidator(pairs, json_schema_input_type=dict[str, str] | tuple[str, ...] | str)
    ],
    "expression": Expression,
    "struct": Annotated[str, AfterValidator(_struct)] | None,
}
"""Name of a form of options -> the type of such an option in a file."""


class _Defined(Model):
    """Base of the models that are made from definitions."""

    definition: ClassVar[type[Definition]] = Definition

    @property
    def options(self) -> dict[str, Any]:
        """The options of the transform or predicate, by the names of its attributes."""
        return self._option_values()

    @property
    def expressions(self) -> dict[str, str]:
        """The options that are regular expressions."""
        declared = options_of(self.definition)
        return {name: text for name, text in self._option_values().items() if declared[name]["form"] == "expression"}

    def _option_values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in options_of(self.definition)}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.definition(**self._option_values())  # its constructor checks them
        return self


class PredicateModel(_Defined):
    """One predicate."""

    definition: ClassVar[type[Predicate]] = Predicate

    negate: bool = Field(False, description="Whether the predicate selects the records for which it does not hold.")
    predicate: str = Field(description="Name of the predicate.")

    @model_validator(mode="after")
    def _is_negated_if_needed(self) -> Self:
        if self.definition.needs_negation and not self.negate:
            raise ValueError(self.definition.needs_negation)
        return self


Defined = TypeVar("Defined", bound=_Defined)


def _model(base: type[Defined], kind_key: str, definition: type[Definition]) -> type[Defined]:
    """Make the model of a definition, with its options as keys and the first paragraph of its docstring."""
    name, paragraph = definition.__name__, cleandoc(definition.__doc__ or "").partition("\n\n")[0]
    kind: Any = (Literal[name], Field(description=base.model_fields[kind_key].description))
    keys = {kind_key: kind, **option_keys([definition], _FORMS)}
    model = create_model(name, __base__=base, __module__=__name__, __doc__=paragraph, **keys)
    model.definition = definition
    return model


PREDICATE_KINDS: Final = {name: _model(PredicateModel, "predicate", kind) for name, kind in PREDICATES.items()}
"""Models of the predicates, by name."""

if TYPE_CHECKING:
    When = PredicateModel
else:
    When = Annotated[reduce(or_, PREDICATE_KINDS.values()), Field(discriminator="predicate")]
    """The condition of a transform: which records it applies to."""

_TransformClass = type[TransformDefinition]
"""Defined outside of the models, where `type` is the name of a field."""


class Step(_Defined):
    """One transform. A key with a dot may be written with an underscore instead: `topic.field` or `topic_field`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    definition: ClassVar[_TransformClass] = TransformDefinition

    when: When | None = Field(
        None,
        description="Condition for the records that the transform applies to. Other records stay as they are; a field that"
        " only one of the two kinds has is null for the other one. Default: all records.",
    )
    type: str = Field(description="Name of the transform.")

    @model_validator(mode="before")
    @classmethod
    def _spelling(cls, entry: Any) -> Any:
        """Turn `Cast$Key` into `Cast` with `target: key`, and refuse an option in two spellings."""
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

    @model_validator(mode="after")
    def _has_condition(self) -> Self:
        if self.definition.needs_condition and self.when is None:
            raise ValueError(self.definition.needs_condition)
        return self

    @property
    def name(self) -> str:
        """The transform's name in the catalogue."""
        return self.type

    def key_of(self, option: str) -> str:
        """The key of an option in files: `topic.field` rather than `topic_field`."""
        return type(self).model_fields[option].alias or option


class OwnTransform(Step):
    """A transform of another package, with an entry point of the group `frazil.transforms`."""

    type: str = Field(description="Name of the entry point.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, alias="options", description="Arguments of the transform, by name. It checks them itself."
    )

    @field_validator("type")
    @classmethod
    def _known(cls, name: str) -> str:
        installed_names = entry_points(group=GROUP).names
        if name not in installed_names:
            raise ValueError(f"{name!r} is no transform, {nearest(name, [*KINDS, *installed_names])}")
        return name

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the transform, by name."""
        return dict(self.arguments)

    def key_of(self, option: str) -> str:
        """The key of an argument in files."""
        return f"options.{option}"


KINDS: Final = {name: _model(Step, "type", kind) for name, kind in TRANSFORMS.items()}
"""Models of the transforms that come with Frazil, by name."""


def _kind(entry: Any) -> str | None:
    """Name of the model for an entry, None if the entry has no type. `Cast$Key` is a `Cast`."""
    name = entry.get("type") if isinstance(entry, dict) else getattr(entry, "type", None)
    if name is None:
        return None
    plain = str(name).partition("$")[0]
    return plain if plain in KINDS else OwnTransform.__name__


if TYPE_CHECKING:
    TransformStep = Step
else:
    TransformStep = Annotated[
        reduce(
            or_, (Annotated[step_model, Tag(step_model.__name__)] for step_model in (*KINDS.values(), OwnTransform))
        ),
        Discriminator(
            _kind,
            custom_error_type="transform_without_type",
            custom_error_message="expected a mapping with the key `type`, which names the transform",
        ),
    ]
    """One entry of `transforms:`."""


def refuse_work_on_keys(steps: Iterable[TransformStep]) -> None:
    """Refuse transforms of keys in a pipeline that does not decode keys, unless ValueToKey comes first and makes a key.

    Raises:
        ValueError: One of them transforms the key.
    """
    for number, step in enumerate(steps, 1):
        if step.name == "ValueToKey":
            break
        if getattr(step, "target", "value") == "key":
            raise ValueError(
                f"number {number}, {step.name}: keys are not decoded, so there is nothing to work on; declare how"
                " under key, put ValueToKey before it, or write target: value"
            )
