"""Sessions and engines in a pipeline file: what fits together, and what is refused in which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.pipeline.models.pipeline_file import AutoEngine, Pipeline
from frazil.pipeline.settings.settings import Settings, unknown_names
from frazil.pipeline.syntax.interval import Interval
from frazil.run.state.context import chosen_engine, keeps_engine

FILE: dict[str, Any] = {
    "name": "orders",
    "source": {"topics": ["orders"]},
    "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
}
MERGED = {
    "destinations": [
        {
            "table": "shop.orders",
            "columns": {"id": {"type": "long", "required": True}},
            "write": "upsert",
            "identifier": ["id"],
        }
    ]
}
SETTINGS = {
    "clusters": {"local": {"bootstrap_servers": "b:1"}},
    "catalogs": {"lake": {"type": "rest", "uri": "http://c"}},
}


def pipeline(**keys: Any) -> Pipeline:
    return Pipeline.model_validate(FILE | keys)


def plan(records: int, *, waits: bool = False) -> RunPlan:
    return RunPlan(
        "orders", "r", "t", "c", {"orders": PlannedTopic(None, (0,), (records,))}, complete=True, waits=waits
    )


def test_session_is_scheduled_by_its_own_interval() -> None:
    """Airflow starts a run when the one before it is over; without a session at every interval."""
    session_pipeline = pipeline(interval="10s", session_for="10m")

    assert session_pipeline.every == Interval(every=timedelta(seconds=10))
    assert session_pipeline.schedule == Interval(every=timedelta(minutes=10))
    assert pipeline(interval="2m").schedule == Interval(every=timedelta(minutes=2))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"interval": "10s"}, "shorter than a minute.*session_for"),
        ({"interval": "0s", "session_for": "10m"}, "shorter than a second"),
        ({"interval": "*/5 * * * *", "session_for": "10m"}, "needs an interval that is a duration"),
        ({"interval": "10m", "session_for": "10m"}, "not longer than the interval"),
        ({"interval": "10s", "session_for": "2d"}, "longer than a day"),
        ({"interval": "1s", "session_for": "59s"}, "shorter than a minute, the shortest session"),
        ({"interval": "10s", "session_for": "soon"}, "no duration"),
        ({"interval": "10s", "session_for": "10m", "catch_up": 5}, "lands waiting records at every tick"),
        (
            {"interval": "10s", "session_for": "10m", "trigger": {"records": 5}},
            "checks for waiting records at every tick",
        ),
    ],
)
def test_invalid_session_is_refused(keys: dict[str, Any], message: str) -> None:
    """What does not go together is refused before anything runs."""
    with pytest.raises(ValidationError, match=message):
        pipeline(**keys)


@pytest.mark.parametrize(
    ("keys", "records", "waits", "chosen", "why"),
    [
        ({"engine": "auto"}, 99, False, "inline", "99 offsets, fewer than 100"),
        ({"engine": "auto"}, 100, False, "spark", "not fewer than 100"),
        ({"engine": "auto"}, 5, True, "spark", "Spark writes"),
        ({"engine": "auto"} | MERGED, 5, False, "spark", "Spark writes"),
        ({"engine": "inline"}, 10**9, False, "inline", ""),
        ({"engine": "spark"}, 5, False, "spark", ""),
    ],
)
def test_auto_chooses_the_engine_by_records_and_tables(
    keys: dict[str, Any], records: int, waits: bool, chosen: str, why: str
) -> None:
    """`auto` takes this process for few records, unless Spark writes the tables; other engines are what the file says."""
    engine = chosen_engine(pipeline(**keys), AutoEngine(inline_below=100), plan(records, waits=waits))

    assert engine.name == chosen
    assert why in engine.description


def test_session_keeps_only_an_engine_that_it_needs() -> None:
    """Chosen run by run, Spark goes after a backlog; where it writes the tables it stays."""
    assert not keeps_engine(pipeline(engine="auto"))
    assert keeps_engine(pipeline(engine="auto", **MERGED))
    assert keeps_engine(pipeline(engine="spark"))


def test_engine_behind_auto_must_exist() -> None:
    """The settings' own name is checked as soon as a pipeline means it."""
    wrong = Settings.model_validate(SETTINGS | {"auto": {"engine": "sparc"}})

    assert list(unknown_names(pipeline(), wrong)) == []
    (problem,) = unknown_names(pipeline(engine="auto"), wrong)
    assert "did you mean 'spark'?" in problem
