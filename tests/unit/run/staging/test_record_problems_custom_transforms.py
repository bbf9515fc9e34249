"""Transforms of one's own say which fields they lack, or nothing is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from frazil.pipeline import transforms
from frazil.records.model.format import Frame, MissingField, Transformed
from frazil.records.transforms import catalogue
from frazil.records.transforms.fields import lacking
from tests.unit.run.staging.transform_problems import SUGGESTION, problems


@dataclass(frozen=True)
class Silent:
    """An own transform of one method."""

    field: str = ""

    def apply(self, frame: Frame) -> Transformed:
        """Change nothing."""
        return Transformed(frame)


@dataclass(frozen=True)
class Telling(Silent):
    """An own transform that says what it needs."""

    def lacks(self, frame: Frame) -> list[MissingField]:
        """Say that the field is not there."""
        return list(lacking(frame.value, "field", [self.field]))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    """Installs a transform as `acme.Own`."""

    def install(transform_class: type) -> None:
        entry = EntryPoint("acme.Own", f"{__name__}:{transform_class.__name__}", catalogue.GROUP)
        monkeypatch.setattr(EntryPoint, "load", lambda _: transform_class)
        for room in (catalogue, transforms):
            monkeypatch.setattr(room, "entry_points", lambda group: EntryPoints([entry]))  # noqa: ARG005

    return install


def test_custom_transform_without_declared_fields_is_accepted(own: Callable[[type], None]) -> None:
    """One that has no `lacks` may leave any fields; of steps behind it nothing is told."""
    own(Silent)

    assert problems({"type": "acme.Own"}, {"type": "MaskField", "fields": "custmer"}) == ()


def test_custom_transform_may_declare_its_fields(own: Callable[[type], None]) -> None:
    """One that has `lacks` is held against the fields like any other, and so are the steps behind it."""
    own(Telling)
    step = {"type": "acme.Own", "options": {"field": "custmer"}}

    assert problems(step) == (f"transforms.0.options.field: acme.Own: {SUGGESTION}",)
    right = step | {"options": {"field": "customer"}}
    assert problems(right, {"type": "MaskField", "fields": "custmer"}) == (
        f"transforms.1.fields: MaskField: {SUGGESTION}",
    )
