"""Captures that are killed, paused and run side by side: readers of committed records see each line once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.capture.position import CaptureOrder, CapturePosition, Row
from frazil.capture.run import (
    CaptureResult,
    RowsTask,
    capture_context,
    capture_files,
    initial_state_maker,
    is_done,
    open_capture,
    utc_now,
)
from frazil.error_codes import INTERNAL
from frazil.errors import Retryable, Terminal
from frazil.failpoints import Failpoint
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.settings.capture import FileCapture, JdbcCapture
from frazil.project import Project
from tests.chaos.processes import Nursery, kill_at, stop_at
from tests.servers import delete_topic
from tests.topic_reader import committed

P = Failpoint


def capture_once(project: Project, report: Callable[[str], None]) -> None:
    """What a child does: one run."""
    (name,) = project.captures.usable
    capture = project.capture(name)
    assert isinstance(capture, FileCapture)
    report(capture_files(project, capture, CaptureOrder(str(uuid4())), report).summary)


@dataclass
class Site:
    """A capture of one log, and its topic."""

    project: Project
    cluster: Cluster
    children: Nursery
    log: Path

    @property
    def capture(self) -> FileCapture:
        """The capture as its file says."""
        (capture,) = self.project.captures.usable.values()
        assert isinstance(capture, FileCapture)
        return capture

    @property
    def env(self) -> dict[str, str]:
        """What makes a child see this project."""
        return self.project.environment() | {"FRAZIL_KAFKA_PORT": self.cluster.bootstrap_servers.rpartition(":")[2]}

    def write(self, *lines: str) -> None:
        """Append lines to the log."""
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def run(self, target: Any = None, **changes: Any) -> CaptureResult:
        """One run in this process."""
        capture = self.capture.model_copy(update=changes)
        order = CaptureOrder(str(uuid4()), "tests", target, "a test" if target else "")
        return capture_files(self.project, capture, order, lambda _: None)

    def lines(self) -> list[str]:
        """What readers of committed records see."""
        return [(record.value() or b"").decode() for record in committed(self.cluster, self.capture.topic)]

    def position(self) -> CapturePosition:
        """The last committed position."""
        position = capture_context(self.project, self.capture).position()
        assert position is not None
        return position


@pytest.fixture
def site(tmp_path: Path, cluster: Cluster, children: Nursery) -> Site:
    """Four lines at most in a transaction; the topics are of this test alone."""
    name = f"c{uuid4().hex[:8]}"
    log = tmp_path / "logs" / "app.log"
    for folder in ("pipelines", "captures", "logs"):
        (tmp_path / folder).mkdir()
    capture = {"capture": "file", "name": name, "topic": name, "partitions": 1, "paths": [f"{log}*"], "max_records": 4}
    (tmp_path / "captures" / f"{name}.yaml").write_text(json.dumps(capture))
    settings = {
        "clusters": {"local": {"bootstrap_servers": cluster.bootstrap_servers}},
        "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
        "captures": {"positions": f"positions-{name}", "folders": [str(tmp_path / "logs")]},
    }
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    places = {"HOME": tmp_path / "home", "PIPELINES": tmp_path / "pipelines", "SETTINGS": tmp_path / "settings.yaml"}
    env = os.environ | {f"FRAZIL_{key}": str(path) for key, path in places.items()}
    return Site(Project.load(env), cluster, children, log)


def numbered(first: int, behind: int) -> list[str]:
    return [f"line {number}" for number in range(first, behind)]


FIRST = ((P.CAPTURE_COMMITTING, 1), (P.CAPTURE_COMMITTED, 1))
"""Around the commit of the first position."""

LATER = (
    (P.PLANNED, 1),
    (P.CAPTURE_SENDING, 2),
    (P.CAPTURE_SENDING, 5),
    *((point, time) for point in (P.CAPTURE_COMMITTING, P.CAPTURE_COMMITTED) for time in (1, 3)),
)


@pytest.mark.parametrize(
    "points",
    [(FIRST[0], LATER[1], LATER[3]), pytest.param((*FIRST, *LATER), marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_capture_killed_anywhere_resumes_with_each_line_once(
    site: Site, points: tuple[tuple[Failpoint, int], ...]
) -> None:
    """At each point, before the first position and later, with rotations in between: the next run goes on, each line once."""
    written = 0
    for number, (point, time) in enumerate(points):
        site.write(*numbered(written, written + 11))
        written += 11
        site.children.start(capture_once, site.env, kill_at(point, time)).die()
        if number % 3 == 1:
            site.log.rename(f"{site.log}.{number}")

    assert site.run().transactions > 0
    assert site.lines() == numbered(0, written)
    assert site.run().transactions == 0


def test_zombie_capture_is_fenced_by_its_successor(site: Site) -> None:
    """A run that stood still is fenced by the next one, and what it had sent is not there."""
    site.run()
    site.write(*numbered(0, 6))
    zombie = site.children.start(capture_once, site.env, stop_at(P.CAPTURE_COMMITTING, 1))
    zombie.pause()

    assert site.run().records == 6
    zombie.resume()
    ended = zombie.wait()

    assert (ended.code, "another producer took over" in ended.output) == (Retryable.exit_code, True), ended.output
    assert site.lines() == numbered(0, 6)


def test_copied_environment_leaves_captures_of_original_alone(site: Site) -> None:
    """Same Kafka, same name, same topic of positions: the copy's settings name it, and each goes on by itself."""
    site.run()
    site.write(*numbered(0, 6))
    paused = site.children.start(capture_once, site.env, stop_at(P.CAPTURE_COMMITTED, 1))
    paused.pause()
    named = site.project.settings.model_copy(update={"environment": "staging"})
    copy = replace(site, project=replace(site.project, settings=named))

    assert copy.run(topic=f"copy-{site.capture.topic}").records == 6
    paused.resume()
    ended = paused.wait()

    assert ended.code == 0, ended.output
    assert site.lines() == numbered(0, 6)
    assert (site.position().topic, copy.position().topic) == (site.capture.topic, f"copy-{site.capture.topic}")


def test_position_behind_open_transaction_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a crashed run of another capture holds readers of positions back, an older position is not taken for the last."""
    log = site.log.with_name("other.log")
    second_capture = {"name": "other", "topic": f"other-{site.capture.topic}", "paths": (str(log),)}
    site.write("one")
    log.write_text("1\n")
    site.run(**second_capture)
    crashed = site.children.start(capture_once, site.env, kill_at(P.CAPTURE_COMMITTING, 1))
    crashed.die()
    with monkeypatch.context() as patched:
        patched.setattr("frazil.kafka.write.captures.REQUEST_SECONDS", 0.2)
        with pytest.raises(Retryable, match="a transaction of another capture stays open"):
            site.run(**second_capture)

    site.run()
    assert (site.run(**second_capture).records, site.lines()) == (0, ["one"])


def test_lost_position_is_refused_until_person_decides(site: Site) -> None:
    """Without a position a used topic is refused; a person's order goes on, and is on record. So is one of another topic."""
    site.write("one")
    site.run()
    delete_topic(site.cluster, site.project.settings.captures.positions)
    with pytest.raises(Terminal, match="has no position") as refused:
        site.run()
    assert "--from beginning|end" in str(refused.value)
    site.write("two")
    assert site.run(target="end").records == 0
    site.write("three")
    site.run()
    assert site.lines() == ["one", "three"]
    position = site.position()
    assert position.reset is not None
    assert (position.epoch, position.reset.target, position.reset.reason, position.reset.requested_by) == (
        1,
        "end",
        "a test",
        "tests",
    )

    delete_topic(site.cluster, site.capture.topic)
    with pytest.raises(Terminal, match="and the topic is"):
        site.run()
    site.write("four")
    site.run(target="position")
    site.run(target="beginning")
    assert site.lines() == ["four", "one", "two", "three", "four"]


def test_truncated_file_is_refused_unless_file_says_skip(site: Site) -> None:
    """It is refused, and nothing captured, until the file says skip; that is said."""
    site.write("one", "two")
    site.run()
    site.log.write_text("three\n")
    with pytest.raises(Terminal, match="was truncated or rewritten"):
        site.run()

    result = site.run(on_data_loss="skip")
    assert ("truncated" in result.messages[0], site.lines()) == (True, ["one", "two", "three"])


def test_line_too_large_for_topic_is_refused_with_its_place(site: Site) -> None:
    """It is refused by file and byte, all before it in its transaction too; lines that fit go whatever they are together."""
    create_topic(site.cluster, site.capture.topic, 1, {"max.message.bytes": "2000"})
    site.write(*(f"{number}{os.urandom(300).hex()}" for number in range(4)), "five", os.urandom(2_000).hex(), "seven")
    with pytest.raises(Terminal, match=rf"app.log: the line at byte {4 * 602 + 5:,} has 4,\d+ bytes") as refused:
        site.run()

    assert "max.message.bytes" in str(refused.value)
    assert [line[:1] for line in site.lines()] == list("0123")


def test_positions_topic_without_compaction_is_refused(site: Site) -> None:
    """A topic of positions that is not compacted is refused, before anything is captured."""
    create_topic(site.cluster, site.project.settings.captures.positions, 1)
    site.write("one")
    with pytest.raises(Terminal, match=r"expected cleanup.policy compact, found delete"):
        site.run()


def rows(first: int, behind: int, *, are_ordered: bool) -> Iterator[Row]:
    places = ((number,) if are_ordered else () for number in range(first, behind))
    return (Row(None, f"row {number}".encode(), place) for number, place in enumerate(places, first))


@dataclass
class Table:
    """Rows that are sent as a task of Spark sends them, without Spark."""

    site: Site
    mode: str

    def run(self, rows_held: int, run: str, fails_at: int | None = None) -> int:
        """Send the rows that are new of so many; how many were sent."""
        of_mode = {"incrementing_column": "id"} if self.mode == "incrementing" else {}
        capture = JdbcCapture(
            capture="jdbc", name=f"j{self.site.capture.name}", topic=f"j{self.site.capture.name}", partitions=1,
            database="shop", table="orders", mode=self.mode, max_records=3, **of_mode,
        )  # fmt: skip
        ground = replace(capture_context(self.site.project, self.site.capture), capture=capture)
        with open_capture(
            ground, CaptureOrder(run), initial_state_maker(capture, utc_now(), lambda: rows_held), utc_now()
        ) as (
            _,
            position,
        ):
            last = position.state["last"]
        if is_done(capture, position, run):
            return 0
        new_rows = rows(last[0] + 1 if last else 0, rows_held, are_ordered=self.mode != "bulk")
        return RowsTask(ground, capture, run, position).send(
            new_rows if fails_at is None else failing(new_rows, fails_at)
        )[0]

    def lines(self) -> list[str]:
        """What readers of committed records see."""
        return [
            (record.value() or b"").decode() for record in committed(self.site.cluster, f"j{self.site.capture.name}")
        ]


def failing(rows: Iterator[Row], index: int) -> Iterator[Row]:
    for number, row in enumerate(rows):
        if number == index:
            raise INTERNAL.retryable("the database went away")
        yield row


def test_only_rows_behind_last_committed_transaction_are_read_again(site: Site) -> None:
    """Rows behind the last committed transaction are asked for again, and no others."""
    table = Table(site, "incrementing")
    with pytest.raises(Retryable, match="went away"):
        table.run(8, "a", fails_at=5)
    assert table.lines() == ["row 0", "row 1", "row 2"]
    assert [table.run(8, "a"), table.run(8, "b")] == [5, 0]
    assert table.lines() == [f"row {number}" for number in range(8)]


def test_bulk_is_captured_in_one_transaction(site: Site) -> None:
    """All rows of a bulk are one transaction, and another try of its run sends them no second time; the next run does."""
    table = Table(site, "bulk")
    with pytest.raises(Retryable, match="went away"):
        table.run(8, "a", fails_at=7)
    assert table.lines() == []
    assert [table.run(8, "a"), table.run(8, "a"), table.run(2, "b")] == [8, 0, 2]
    assert table.lines() == [f"row {number}" for number in (*range(8), *range(2))]
