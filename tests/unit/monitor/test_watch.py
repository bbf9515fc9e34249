"""Conditions kept in the background: at once for whoever asks, whatever happens to a pipeline."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from frazil.errors import Terminal
from frazil.monitor import watch as watching
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.watch import Watch
from frazil.project import PIPELINES_VARIABLE, Project
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


def test_reader_waits_for_two_hundred_brokers(many: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While looks hang, all pipelines are there, without a condition; then all have theirs, with an age."""
    free = Event()

    def read(_: Project, pipeline: object, *, runs: Runs, ledgers: object) -> Condition:
        free.wait(30)
        return Condition(pipeline.name, "shop", BEGIN, runs=runs)  # type: ignore[attr-defined]

    reads(monkeypatch, read)
    with Watch(lambda: Project.load(many), refresh_seconds=60) as watch:
        while not watch.snapshot():
            assert not watch.wait(0.01)
        before = watch.snapshot()
        free.set()
        assert watch.wait(60)
        after = watch.seen()

    assert len(before) == 200
    assert None in before.values()
    assert list(after) == sorted(after)
    assert after["p100"] is not None
    assert after["p100"].condition.health == {"shop.orders": 40}
    assert all(seen is not None and seen.age < 60 for seen in after.values())
    assert len(watch.promises()) == 200


def test_fault_in_one_look_ends_the_others(
    many: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours is logged with its pipeline; the others are read, and so is the next round."""

    def read(_: Project, pipeline: object, **_given: object) -> Condition:
        if pipeline.name == "p007":  # type: ignore[attr-defined]
            raise LookupError("a fault")
        return Condition(pipeline.name, "shop", BEGIN)  # type: ignore[attr-defined]

    reads(monkeypatch, read)
    with Watch(lambda: Project.load(many), refresh_seconds=0.01) as watch:
        assert watch.wait(60)
        assert watch.wait(60)
        found = watch.snapshot()

    assert [name for name, of in found.items() if of is None] == ["p007"]
    assert "p007" in caplog.text


def test_broken_settings_end_the_watch(many: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody edits the settings, what is known stays; a pipeline that is removed then goes."""
    reads(monkeypatch, lambda _, pipeline, **__: Condition(pipeline.name, "shop", BEGIN))
    projects = [Project.load(many)]

    def load() -> Project:
        if not projects:
            raise Terminal("settings.yaml: not YAML")
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
