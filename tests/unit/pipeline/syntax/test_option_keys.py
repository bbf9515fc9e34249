"""Options of definitions as keys of one model: what an option declares holds of the key."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import ValidationError, create_model

from frazil.pipeline.syntax.strict import Model, option_keys
from frazil.records import option


def _refuse_x(text: str) -> str:
    if text == "x":
        raise ValueError("no x")
    return text


@dataclass(frozen=True)
class _Checked:
    width: int = option("Columns of a line.", 3, ge=1)
    mark: str = option("What ends it.", ";", check=_refuse_x)


@pytest.mark.parametrize("keys", [{"width": 0}, {"mark": "x"}])
def test_bounds_and_checks_of_options_hold_of_keys(keys: dict[str, object]):
    """A bound that is declared and not kept would let a file through that no format can read by."""
    model = create_model("Checked", __base__=Model, **option_keys([_Checked]))

    assert model.model_validate({"width": 1, "mark": "y"}).model_dump() == {"width": 1, "mark": "y"}
    with pytest.raises(ValidationError):
        model.model_validate(keys)
