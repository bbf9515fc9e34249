"""What a pipeline file says of runs that start before their interval is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from frazil.pipeline.interval import parse_duration
from frazil.pipeline.strict import Model

SHORTEST_LOOK = timedelta(seconds=1)


def _is_look(text: str) -> str:
    if parse_duration(text) < SHORTEST_LOOK:
        raise ValueError(f"{text!r} is shorter than a second, the shortest time between two looks")
    return text


class Trigger(Model):
    """When a run starts early, because enough waits in Kafka. Airflow's triggerer looks."""

    records: int | None = Field(None, gt=0, description="Records (offsets) that wait at which a run starts.")
    bytes: int | None = Field(
        None,
        gt=0,
        description="Bytes of keys and values that wait at which a run starts, as estimated from what the last batch measured.",
    )
    every: Annotated[str, AfterValidator(_is_look)] = Field(
        "10s", description="Time between two looks: a duration of a second or more."
    )

    @model_validator(mode="after")
    def _says_how_much(self) -> Trigger:
        if self.records is None and self.bytes is None:
            raise ValueError("says neither records nor bytes: how much must wait?")
        return self

    @property
    def pause(self) -> timedelta:
        """`every` as plain data."""
        return parse_duration(self.every)
