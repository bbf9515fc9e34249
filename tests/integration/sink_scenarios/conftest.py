"""A place for each scenario, in each catalog; and kills between any two publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import pytest
from confluent_kafka import Producer

from frazil import crash_points
from frazil.crash_points import CrashPoint
from frazil.kafka.topics import create_topic
from frazil.project import SETTINGS_VARIABLE, Project
from tests.integration.conftest import environment
from tests.integration.sink_scenarios.scenario import Scenario, Sent
from tests.operations import Killed, lake

Catalog = Literal["sqlite", "rest"]

_HEAD = "name: orders\nsource: {{topics: [{topics}]}}\nengine: inline\ndead_letters: {{tolerance: all}}\n"

_PUBLISHING = (CrashPoint.FOLLOW_COMMITTING, CrashPoint.RECORD_COMMITTING)
"""Where a commit behind the deciding one begins."""


@dataclass(frozen=True)
class Place:
    """The pipeline of a scenario, over topics of its own."""

    shop: Any
    scenario: Scenario

    def send(self, records: Iterable[Sent]) -> None:
        """Send records, in their order within each partition."""
        producer = Producer(dict(self.shop.cluster.properties))
        for of in records:
            producer.produce(self.shop.topic + of.topic, of.bytes, partition=of.partition)
        assert producer.flush(10) == 0

    def run(self) -> Any:
        """One run."""
        return self.shop.run()

    @property
    def publishes(self) -> int:
        """Commits that any of its tables ever got."""
        return sum(len(lake(self.shop).load_table(name).metadata.snapshots) for name in lake(self.shop).tables())


MakePlace = Callable[[Scenario], Place]


@pytest.fixture(params=["sqlite", "rest"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    """Where the tables are."""
    kind: Catalog = request.param
    return kind


@pytest.fixture
def place(shop: Callable[..., Any], catalog: Catalog, request: pytest.FixtureRequest) -> MakePlace:
    """Make the place of a scenario."""

    def make(scenario: Scenario) -> Place:
        made = shop(partitions=scenario.partitions)
        for suffix in filter(None, scenario.topics):
            create_topic(made.cluster, made.topic + suffix, scenario.partitions)
        if catalog == "rest":
            settings: Path = request.getfixturevalue("rest_settings")()
            made = replace(made, project=Project.load(environment(made.project) | {SETTINGS_VARIABLE: str(settings)}))
        topics = ", ".join(made.topic + suffix for suffix in scenario.topics)
        return Place(made.with_pipeline(_HEAD.format(topics=topics) + scenario.file), scenario)

    return make


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let somebody else do something when the next run gets to these points, so many times."""

    def arrange(deed: Callable[[], object], *points: CrashPoint, times: int = 1) -> None:
        left = [times]

        def reached(point: CrashPoint) -> None:
            if point in points and left[0]:
                left[0] -= 1
                deed()

        monkeypatch.setattr(crash_points, "reached", reached)

    return arrange


@pytest.fixture
def killed_behind(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let the next run be killed behind so many publishes: each thread that wants another one ends, and so does the run."""

    def arrange(publishes: int) -> None:
        left, lock = [publishes], Lock()

        def reached(point: CrashPoint) -> None:
            if point in _PUBLISHING:
                with lock:
                    if not left[0]:
                        raise Killed
                    left[0] -= 1

        monkeypatch.setattr(crash_points, "reached", reached)

    return arrange
