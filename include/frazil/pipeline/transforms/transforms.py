"""The pipeline file's `transforms:`: one model per transform, told apart by `type`, and own transforms."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import reduce
from importlib.metadata import entry_points
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, JsonValue, Tag, field_validator

from frazil.pipeline.transforms import connect as transforms_connect
from frazil.pipeline.transforms import data as transforms_data
from frazil.pipeline.transforms.transform_step import Step

_GROUP = "frazil.transforms"
"""Entry points of own transforms."""


class OwnTransform(Step):
    """A transform that another package brings, by an entry point of the group `frazil.transforms`."""

    type: str = Field(description="Name of the entry point.")
    arguments: dict[str, JsonValue] = Field(
        default_factory=dict, alias="options", description="What it is made with, by name; only it knows what fits."
    )

    @field_validator("type")
    @classmethod
    def _known(cls, name: str) -> str:
        installed_names = entry_points(group=_GROUP).names
        if name in installed_names:
            return name
        similar = get_close_matches(name, [*KINDS, *installed_names], 1)
        hint = (
            f", did you mean {similar[0]!r}?"
            if similar
            else f"; known: {', '.join(sorted([*KINDS, *installed_names]))}"
        )
        raise ValueError(f"{name!r} is no transform{hint}")

    @property
    def options(self) -> dict[str, Any]:
        """What the transform is made with, by the names of its arguments."""
        return dict(self.arguments)

    def key_of(self, option: str) -> str:
        """The key under which a file has an option."""
        return f"options.{option}"


KINDS: dict[str, type[Step]] = {
    step_model.__name__: step_model
    for room in (transforms_connect, transforms_data)
    for step_model in vars(room).values()
    if isinstance(step_model, type) and issubclass(step_model, Step) and step_model is not Step
}
"""Models of the transforms that come with Frazil, by name."""


def _kind(entry: Any) -> str | None:
    """Name of the model for an entry, None if it says none: `Cast$Key` is a `Cast`."""
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
    """Refuse transforms of keys where keys are not decoded: before ValueToKey there is none.

    Raises:
        ValueError: One works on the key.
    """
    for number, step in enumerate(steps, 1):
        if step.name == "ValueToKey":
            break
        if getattr(step, "target", "value") == "key":
            raise ValueError(
                f"number {number}, {step.name}: keys are not decoded, so there is nothing to work on; declare how"
                " under key, put ValueToKey before it, or write target: value"
            )
