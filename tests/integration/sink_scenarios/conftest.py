"""A place for each scenario, in each catalog; and kills between any two publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import pytest
from confluent_kafka import Producer
from pyiceberg.table.snapshots import ancestors_of

from frazil import failpoints
from frazil.failpoints import Failpoint
from frazil.kafka.admin.topics import create_topic
from frazil.project import SETTINGS_VARIABLE, Project
from tests.integration.conftest import environment
from tests.integration.sink_scenarios.scenario import Scenario, SinkRecord
from tests.operations import Killed, lake

Catalog = Literal["sqlite", "rest"]

HEAD = "name: orders\nsource: {{topics: [{topics}]}}\nengine: inline\ndead_letters: {{tolerance: all}}\n"

_MOST = 10
"""Runs of one batch: more than any scenario has tables. A table that gets its part again and again would take more."""

_PUBLISHING = (Failpoint.FOLLOW_COMMITTING, Failpoint.RECORD_COMMITTING)
"""Where a commit behind the deciding one begins."""


@dataclass(frozen=True)
class Place:
    """The pipeline of a scenario, over topics of its own."""

    shop: Any
    scenario: Scenario

    def send(self, records: Iterable[SinkRecord]) -> None:
        """Send records, in their order within each partition."""
        producer = Producer(dict(self.shop.cluster.properties))
        for record in records:
            producer.produce(self.shop.topic + record.topic, record.bytes, partition=record.partition)
        assert producer.flush(10) == 0

    def run(self) -> Any:
        """One run."""
        return self.shop.run()

    @property
    def publishes(self) -> int:
        """Snapshots that any of its tables ever showed: an engine may leave others, which no reader sees."""
        return len(self._shown())

    @property
    def parts(self) -> int:
        """Those that are a batch's part of a table: the claim of a new topic is none."""
        return sum("frazil.kind" in snapshot.summary.additional_properties for snapshot in self._shown())

    def _shown(self) -> list[Any]:
        tables = [lake(self.shop).load_table(name) for name in lake(self.shop).tables()]
        heads = [(table.current_snapshot(), table.metadata) for table in tables]
        return [snapshot for head, metadata in heads if head is not None for snapshot in ancestors_of(head, metadata)]


MakePlace = Callable[[Scenario], Place]


@pytest.fixture(params=["sqlite", pytest.param("rest", marks=pytest.mark.full)])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    """Where the tables are."""
    kind: Catalog = request.param
    return kind


@pytest.fixture
def place(shop: Callable[..., Any], catalog: Catalog, request: pytest.FixtureRequest) -> MakePlace:
    """Make the place of a scenario."""

    def make(scenario: Scenario) -> Place:
        new_shop = shop(partitions=scenario.partitions)
        for suffix in filter(None, scenario.topics):
            create_topic(new_shop.cluster, new_shop.topic + suffix, scenario.partitions)
        if catalog == "rest":
            settings: Path = request.getfixturevalue("rest_settings")()
            new_shop = replace(
                new_shop, project=Project.load(environment(new_shop.project) | {SETTINGS_VARIABLE: str(settings)})
            )
        topics = ", ".join(new_shop.topic + suffix for suffix in scenario.topics)
        return Place(new_shop.with_pipeline(HEAD.format(topics=topics) + scenario.file), scenario)

    return make


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let somebody else do something when the next run gets to these points, so many times."""

    def arrange(deed: Callable[[], object], *points: Failpoint, times: int = 1) -> None:
        remaining = [times]

        def reached(point: Failpoint) -> None:
            if point in points and remaining[0]:
                remaining[0] -= 1
                deed()

        monkeypatch.setattr(failpoints, "hit", reached)

    return arrange


def killed_between_publishes(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Land all records, the last ones by runs that are killed, each behind one more publish than the one before.

    Returns:
        How many publishes of the last batch had happened behind its decision, run by run; the last run finished it.
    """
    *earlier, last = place.scenario.rounds
    if not earlier:
        place.run()  # the pipeline begins
    for records in earlier:
        place.send(records)
        place.run()
    place.send(last)
    decided = place.parts + 1
    states = []
    _kill_behind(0, monkeypatch)
    while _is_killed(place):
        states.append(place.parts - decided)
        assert len(states) < _MOST, f"a batch that never ends: {states}"
        _kill_behind(1, monkeypatch)
    return [*states, place.parts - decided]


def _kill_behind(publishes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next run be killed behind so many publishes: each thread that wants another one ends, and so does the run."""
    remaining, lock = [publishes], Lock()

    def reached(point: Failpoint) -> None:
        if point in _PUBLISHING:
            with lock:
                if not remaining[0]:
                    raise Killed
                remaining[0] -= 1

    monkeypatch.setattr(failpoints, "hit", reached)


def _is_killed(place: Place) -> bool:
    try:
        place.run()
    except Killed:
        return True
    return False
