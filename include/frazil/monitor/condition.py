"""The condition of a pipeline, or a capture, at an instant, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

State = Literal["Paused", "Refused", "Failed", "Degraded", "Behind", "Running", "Idle"]
"""The word for a pipeline's condition. The most urgent one that holds, see `frazil.monitor.state`."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How near Kafka's retention is to the position, in one partition with records to lose.

    Attributes:
        headroom: Offsets between the log start and the position; below zero, so many are lost.
        seconds_left: Until `retention.ms` may take what was not read yet, at least; 0 if it took some. None if the topic
            keeps records for ever, or nobody can tell.
        cut_to_seconds: The shortest `retention.ms` that still keeps what was not read yet; None if nobody can tell.
        by_size: Whether `retention.bytes` may take records sooner: when, nobody can tell.
    """

    topic: str
    partition: int
    headroom: int
    seconds_left: float | None
    cut_to_seconds: float | None
    by_size: bool = False


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far a pipeline is behind in one topic.

    Attributes:
        lag: Records not read yet; None if unknown.
        lag_seconds: Age of the oldest of them; 0 if there are none, None if unknown.
    """

    topic: str
    lag: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Commit time less record time, in seconds, over the records of the batches of a window; None without any."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """Airflow's facts about a pipeline's DAG, and the last run by hand; all empty without either.

    Attributes:
        is_paused: Whether its schedule is paused; None if unknown.
        running_since: Begin of the run that is at work.
        last_state: State of the last finished run: `success` or `failed`.
        last_ended_at: When that was.
        failures: How many of the last runs failed one after the other; None if unknown.
        refusal: Why the last run by hand on this machine refused; None if it did not, or if a run of Airflow ended later.
        refused_at: When that was.
    """

    is_paused: bool | None = None
    running_since: datetime | None = None
    last_state: str | None = None
    last_ended_at: datetime | None = None
    last_run: str | None = None
    failures: int | None = None
    refusal: str | None = None
    refused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """The present condition of a pipeline: facts from its tables, its topics and its DAG; or of a capture.

    Attributes:
        pipeline: Its name; of a capture `capture.NAME`.
        owner: Owner, from its file.
        read_at: When this was read, UTC.
        n: Number of the last batch; None if it never ran.
        last_commit: When the position moved last, by a batch with records; None if never.
        complete_through: Everything that Kafka had accepted by this instant is in; an idle plan moves it too.
        unfinished: Number of a decided batch that is not finished; None if all are.
        unfinished_since: When that was decided; None if all are finished, or nobody can tell.
        refusal: Why a plan would refuse, with what to do; None if it would not.
        unreadable: Why Kafka or the catalog could not be read now; what it says is then missing.
        lag: Records not read yet, or files with lines that are not captured yet; None if unknown, as of rows.
        lag_seconds: Age of the oldest of them; 0 if there are none, None if unknown.
        lag_bytes: Bytes of these files that are not captured yet.
        unit: What `lag` counts. All but records are a capture's.
        topics: The same topic by topic, by name.
        held_back: Records behind open transactions; None if unknown.
        retention: Partitions with records to lose, the most urgent first.
        freshness: Of the window.
        rows, dead, filtered: Records of the window by outcome.
        dead_codes: Dead letters of the window by code.
        open_letters: Dead letters that no batch landed; None if it was not counted.
        window_seconds: Length of the window: what the last ones count.
        health: Table -> health score, 0 to 100, of tables that were looked at.
        auto_created: Tables that it made because records name them, which its file does not list.
        runs: What Airflow says.
    """

    pipeline: str
    owner: str
    read_at: datetime
    n: int | None = None
    last_commit: datetime | None = None
    complete_through: datetime | None = None
    unfinished: int | None = None
    unfinished_since: datetime | None = None
    refusal: str | None = None
    unreadable: str | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    topics: tuple[TopicLag, ...] = ()
    held_back: int | None = None
    retention: tuple[Retention, ...] = ()
    freshness: Freshness = Freshness()
    rows: int = 0
    dead: int = 0
    filtered: int = 0
    dead_codes: Mapping[str, int] = field(default_factory=dict)
    open_letters: int | None = None
    window_seconds: float = 86_400.0
    health: Mapping[str, int] = field(default_factory=dict)
    auto_created: tuple[str, ...] = ()
    runs: Runs = Runs()
    unit: Literal["records", "files", "rows"] = "records"
    lag_bytes: int | None = None

    @property
    def is_capture(self) -> bool:
        """Whether it is of a capture."""
        return self.unit != "records"

    @property
    def title(self) -> str:
        """The name for people: `orders`, or `capture access_log`."""
        return self.pipeline.replace(".", " ")

    def to_body(self) -> dict[str, Any]:
        """In JSON's terms, under the keys that `frazil status --json` has always had."""
        keys = {"read_at": "at", "auto_created": "made"}
        return {keys.get(name, name): value for name, value in asdict(self).items()}
