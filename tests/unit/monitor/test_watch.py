"""Conditions kept in the background: at once for whoever asks, whatever happens to a pipeline."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Event, Semaphore

import pytest

from frazil.error_codes import INTERNAL
from frazil.monitor import watch as watching
from frazil.monitor.batches import Ledger
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.figures import Point
from frazil.monitor.watch import Watch
from frazil.project import PIPELINES_VARIABLE, Project
from tests.logs import hear
from tests.unit.monitor.conftest import BEGIN, FILE


@pytest.fixture
def many(tmp_path: Path) -> dict[str, str]:
    """A project of 200 pipelines."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for n in range(200):
        (folder / f"p{n:03}.yaml").write_text(FILE.format(name=f"p{n:03}"))
    return {"FRAZIL_HOME": str(tmp_path / "home"), PIPELINES_VARIABLE: str(folder)}


def reads(monkeypatch: pytest.MonkeyPatch, read: object) -> None:
    monkeypatch.setattr(watching, "read", read)
    monkeypatch.setattr(watching, "table_health", lambda *_: {"shop.orders": 40})


def test_reader_does_not_wait_for_two_hundred_brokers(many: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While looks hang, all pipelines are there, without a condition; then all have theirs, with an age."""
    free = Event()

    def read(_: Project, pipeline: object, *, ledgers: object) -> Condition:
        free.wait(30)
        return Condition(pipeline.name, "shop", BEGIN, n=1)  # type: ignore[attr-defined]

    reads(monkeypatch, read)
    with Watch(lambda: Project.load(many), runs_of=lambda names: {name: Runs(failures=2) for name in names}) as watch:
        while not watch.snapshot():
            assert not watch.wait(0.01)
        before = watch.snapshot()
        free.set()
        assert watch.wait(60)
        after = watch.readings()

    assert len(before) == 200
    assert None in before.values()
    assert list(after) == sorted(after)
    assert after["p100"] is not None
    assert after["p100"].condition.health == {"shop.orders": 40}
    assert after["p100"].condition.runs.failures == 2
    assert all(reading is not None for reading in after.values())
    assert len(watch.objectives()) == 200


def test_failed_check_leaves_the_others_working(
    many: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is logged with its pipeline; the others are read, and so is the next round."""

    def read(_: Project, pipeline: object, **_options: object) -> Condition:
        if pipeline.name == "p007":  # type: ignore[attr-defined]
            raise LookupError("a fault")
        return Condition(pipeline.name, "shop", BEGIN)  # type: ignore[attr-defined]

    reads(monkeypatch, read)
    hear("frazil.monitor.watch", monkeypatch, caplog)
    with Watch(lambda: Project.load(many), refresh_seconds=0.01) as watch:
        assert watch.wait(60)
        assert watch.wait(60)
        conditions = watch.snapshot()

    assert [name for name, condition in conditions.items() if condition is None] == ["p007"]
    assert "p007" in caplog.text


def test_broken_settings_leave_the_watch_working(many: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody edits the settings, what is known stays; a pipeline that is removed then goes."""
    reads(monkeypatch, lambda _, pipeline, **__: Condition(pipeline.name, "shop", BEGIN))
    projects = [Project.load(many)]

    def load() -> Project:
        if not projects:
            raise INTERNAL.terminal("settings.yaml: not YAML")
        return projects[0]

    with Watch(load, ["p001", "p002"], refresh_seconds=0.01) as watch:
        assert watch.wait(60)
        project = projects.pop()
        assert watch.wait(60)
        assert watch.wait(60)
        assert list(watch.snapshot()) == ["p001", "p002"]
        (Path(many[PIPELINES_VARIABLE]) / "p002.yaml").unlink()
        projects.append(Project.load(many))
        assert project is not projects[0]
        while list(watch.snapshot()) != ["p001"]:
            assert watch.wait(60)


def test_landed_batches_are_shown_while_kafka_is_unreachable(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What landed is in the ledger; if that is away, too, it is as seen last, and so are health and tables that records named.
    Health that can't be read is not asked for at once.
    """
    landed, requests, away = [Point(BEGIN, rows=7)], [], INTERNAL.retryable("it does not answer")

    def read(*_: object, **__: object) -> Condition:
        return Condition(
            "orders", "shop", BEGIN, n=1, unreadable=str(away), auto_created=("shop.eu",) if landed else ()
        )

    def health(*_: object) -> dict[str, int]:
        requests.append(1)
        if len(requests) > 1:
            raise away
        return {"shop.orders": 80}

    def series(_: object, since: datetime, *__: object) -> list[Point]:
        if not landed:
            raise away
        return [replace(point, begin=since) for point in landed]

    monkeypatch.setattr(watching, "read", read)
    monkeypatch.setattr(watching, "table_health", health)
    monkeypatch.setattr(watching, "HEALTH_SECONDS", 0.0)
    monkeypatch.setattr(Ledger, "series", series)
    with Watch(lambda: project, refresh_seconds=0.01) as watch:
        assert watch.wait(60)
        first = watch.reading("orders")
        landed.clear()
        for _ in range(4):  # the round that was under way, too
            assert watch.wait(60)
        last = watch.reading("orders")

    assert first is not None
    assert last is not None
    assert sum(first.series.rows) == 7
    assert (last.series, last.condition.health, last.condition.auto_created) == (
        first.series,
        {"shop.orders": 80},
        ("shop.eu",),
    )
    assert len(requests) == 2


def test_watch_of_an_unread_page_pauses(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nobody asks nothing is read; the next question begins it again."""
    looks = Semaphore(0)

    def read(*_: object, **__: object) -> Condition:
        looks.release()
        return Condition("orders", "shop", BEGIN)

    reads(monkeypatch, read)
    with Watch(lambda: project, refresh_seconds=0.001, idle_seconds=0.2) as watch:
        for _ in range(2):
            watch.reading("orders")
            assert looks.acquire(timeout=60)
            while looks.acquire(timeout=1):  # ends when no look comes for five times as long
                pass
        thread = watch._thread
        assert thread is not None
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()


def test_watch_closed_during_a_round_ends(many: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that did not begin are cancelled: nobody waits for them."""
    began, free = Event(), Event()

    def read(_: Project, pipeline: object, **_options: object) -> Condition:
        began.set()
        assert free.wait(60)
        return Condition(pipeline.name, "shop", BEGIN)  # type: ignore[attr-defined]

    reads(monkeypatch, read)
    with Watch(lambda: Project.load(many)) as watch:
        assert began.wait(60)
        thread = watch._thread
    free.set()

    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
