"""The condition of a pipeline or capture at an instant, as plain data, and the state that follows from it, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

State = Literal["Paused", "Refused", "Failed", "Degraded", "Behind", "Running", "Idle"]
"""State of a pipeline or capture: the first one, in this order, whose rule in `RULES` holds; else `Idle`."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How near Kafka's retention is to the position, in one partition with unread records.

    Attributes:
        headroom: Offsets from the log start to the position. If it is negative, so many were deleted unread.
        seconds_left: Seconds until `retention.ms` may delete unread records, at least; 0 if it deleted some. None if the topic
            keeps records for ever, or if it is unknown.
        cut_to_seconds: The shortest `retention.ms` that still keeps all unread records; None if unknown.
        by_size: Whether `retention.bytes` may delete records sooner, at an unknown time.
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
        lag: Unread records; None if unknown.
        lag_seconds: Age of the oldest unread record; 0 without any, None if unknown.
    """

    topic: str
    lag: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Percentiles of commit time less record time, in seconds, over the records of a window; None without records."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a flow's DAG, as Airflow knows them, and the last run by hand; all None if nothing is known.

    Attributes:
        is_paused: Whether the DAG is paused; None if unknown.
        running_since: Begin of the current run.
        last_state: State of the last finished run: `success` or `failed`.
        last_ended_at: End of the last finished run.
        last_run: Id of the last finished run.
        failures: Number of runs that failed since the last success; None if unknown.
        refusal: Why the last run by hand on this machine was refused; None if it was not, or if a run of Airflow ended later.
        refused_at: When the run by hand was refused.
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
    """The condition of a pipeline, read from its tables, its topics and its DAG; or of a capture.

    Attributes:
        pipeline: Unique name: the pipeline's, or `capture.NAME`.
        owner: Owner, from the file.
        read_at: When the condition was read, UTC.
        n: Number of the last batch, or of the capture's last transaction; None if it never ran.
        last_commit: When a batch with records last moved the position; None if none did.
        complete_through: All records that Kafka had accepted by this instant landed. A plan without new records moves it, too.
        unfinished: Number of a decided batch that is not finished; None if there is none.
        unfinished_since: When the unfinished batch was decided; None without one, or if unknown.
        refusal: Why the next run would be refused, with the next step; None if it would not.
        unreadable: Why Kafka or the catalog could not be read; figures from there are then missing.
        lag: Unread records, or files with lines that are not captured yet; None if unknown, as always for rows.
        lag_seconds: Age of the oldest unread record or line; 0 without any, None if unknown.
        lag_bytes: Bytes of these files that are not captured yet.
        unit: Unit of `lag`; `files` and `rows` are of captures.
        topics: Lag by topic, sorted by name.
        held_back: Records that open transactions hold back; None if unknown.
        retention: Partitions with unread records, the most urgent first.
        freshness: Percentiles over the window.
        rows, dead, filtered: Records of the window by outcome.
        dead_codes: Dead letters of the window by code.
        open_letters: Dead letters that no batch landed; None if not counted.
        window_seconds: Length of the window that ends at `read_at`.
        health: Table -> health score, 0 to 100; without tables that were not inspected.
        auto_created: Tables that the pipeline created because records name them.
        runs: Its runs in Airflow.
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
        """Whether this is the condition of a capture."""
        return self.unit != "records"

    @property
    def title(self) -> str:
        """Name for people: `orders`, or `capture access_log`."""
        return self.pipeline.replace(".", " ")

    def to_body(self) -> dict[str, Any]:
        """The values under the keys of `frazil status --json`."""
        keys = {"read_at": "at", "auto_created": "made"}
        return {keys.get(name, name): value for name, value in asdict(self).items()}


# The first rule of `RULES` that holds gives the state, so every condition has exactly one state, the most urgent one.
#
# | state | it holds if |
# |---|---|
# | Paused | Airflow says that the schedule is paused. A person chose that, so it comes first; its reason also names the problem of the next states, if there is one |
# | Refused | the next run would be refused, or the last run by hand was: runs fail until a person acts |
# | Failed | the last finished run failed |
# | Degraded | Kafka or the catalog can't be read; a decided batch is unfinished for 5 minutes; retention deleted unread records, or a quarter of it is left until it may; more than a tenth of the window's records (of 1,000 and more) are dead letters; a table's health is below 50 |
# | Behind | records wait for longer than the freshness objective |
# | Running | a run is at work, or a batch is decided and not finished yet |
# | Idle | none of these holds |

STATES: Final[tuple[State, ...]] = get_args(State)
"""All states, the most urgent first."""

UNFINISHED_SECONDS: Final = 300.0
"""Seconds after which a decided batch must be finished. It takes a second or two, or a minute or two if an engine merges."""

RETENTION_SHARE: Final = 0.25
"""Share of a topic's retention. With less of it left, records may be deleted before a person acts."""

DEAD_SHARE: Final = 0.1
"""Share of dead letters above which a pipeline is degraded."""

DEAD_OF: Final = 1_000
"""Records of the window from which on the share of dead letters counts."""

HEALTH: Final = 50
"""Health score below which a table is too bad."""

_Rule = Callable[[Condition, float | None], str | None]
"""Why a state holds; None if it does not."""


def state_of(condition: Condition, objective: float | None = None) -> tuple[State, str]:
    """The state of a condition, and the reason in one line. `objective`: seconds that a record may wait; None: any time."""
    for state, rule in RULES:
        if (why := rule(condition, objective)) is not None:
            return state, why
    return "Idle", _idle(condition)


def _paused(condition: Condition, objective: float | None) -> str | None:
    if not condition.runs.is_paused:
        return None
    problem = next((why for state, rule in RULES[1:5] if (why := rule(condition, objective)) is not None), None)
    return "its schedule is paused" + ("" if problem is None else f"; {problem}")


def _refused(condition: Condition, _: float | None) -> str | None:
    runs, committed = condition.runs, condition.last_commit
    is_past = runs.refused_at is not None and committed is not None and committed > runs.refused_at
    refusal = condition.refusal or (None if is_past else runs.refusal)
    return None if refusal is None else refusal.splitlines()[0]


def _failed(condition: Condition, _: float | None) -> str | None:
    if condition.runs.last_state != "failed":
        return None
    failures = condition.runs.failures or 1
    how = f"the last {failures} runs failed" if failures > 1 else "the last run failed"
    return how + (f": {condition.runs.last_run}" if condition.runs.last_run else "")


def _degraded(condition: Condition, _: float | None) -> str | None:
    checks = (_unreadable, _unfinished, _retention, _dead_letters, _unhealthy)
    return next((why for check in checks if (why := check(condition)) is not None), None)


def _unreadable(condition: Condition) -> str | None:
    return None if condition.unreadable is None else f"can't be read now: {condition.unreadable.splitlines()[0]}"


def _unfinished(condition: Condition) -> str | None:
    if condition.unfinished is None or condition.unfinished_since is None:
        return None
    seconds = (condition.read_at - condition.unfinished_since).total_seconds()
    if seconds < UNFINISHED_SECONDS:
        return None
    return f"batch {condition.unfinished} is decided and not finished for {spoken(seconds)}"


def _retention(condition: Condition) -> str | None:
    for partition in condition.retention:
        where = f"topic {partition.topic}, partition {partition.partition}"
        if partition.headroom < 0:
            return f"{where}: retention took {-partition.headroom:,} records before they were read"
        if partition.seconds_left is not None and _is_near(partition, partition.seconds_left):
            return f"{where}: retention may take unread records in {spoken(partition.seconds_left)}"
    return None


def _is_near(partition: Retention, seconds_left: float) -> bool:
    age = partition.cut_to_seconds
    return age is not None and seconds_left < RETENTION_SHARE * (seconds_left + age)


def _dead_letters(condition: Condition) -> str | None:
    read = condition.rows + condition.dead + condition.filtered
    if read < DEAD_OF or condition.dead <= DEAD_SHARE * read:
        return None
    return f"{condition.dead:,} of {read:,} records are dead letters ({condition.dead / read:.0%}), in {spoken(condition.window_seconds)}"


def _unhealthy(condition: Condition) -> str | None:
    table = min(condition.health, key=lambda name: (condition.health[name], name), default=None)
    if table is None or condition.health[table] >= HEALTH:
        return None
    return f"table {table} has health {condition.health[table]}"


def _behind(condition: Condition, objective: float | None) -> str | None:
    waits = bool(condition.lag) or condition.unit == "rows"
    if objective is None or condition.n is None or not waits or condition.lag_seconds is None:
        return None
    if condition.lag_seconds <= objective:
        return None
    return f"{waiting(condition)}, the oldest for {spoken(condition.lag_seconds)}; the freshness objective is {spoken(objective)}"


def waiting(condition: Condition) -> str:
    """What waits, as text: `1,234 records wait`. Rows of a database are not counted."""
    if condition.lag is None:
        return "rows may wait"
    size = f" with {condition.lag_bytes:,} bytes" if condition.lag_bytes is not None else ""
    unit = condition.unit.removesuffix("s") if condition.is_capture and condition.lag == 1 else condition.unit
    return f"{condition.lag:,} {unit}{size} wait{'s' if unit != condition.unit else ''}"


def _running(condition: Condition, _: float | None) -> str | None:
    if condition.runs.running_since is not None:
        return f"at work for {spoken(max(0.0, (condition.read_at - condition.runs.running_since).total_seconds()))}"
    return (
        None if condition.unfinished is None else f"batch {condition.unfinished} is decided, and about to be finished"
    )


def _idle(condition: Condition) -> str:
    if condition.n is None:
        return "it never ran"
    if condition.lag is None and condition.is_capture:
        return "its files are not on this machine" if condition.unit == "files" else "its last run took what was there"
    if condition.lag is None:
        return "nothing is known of its topics"
    if condition.lag == 0:
        return (
            "everything is in"
            if not condition.held_back
            else f"{condition.held_back:,} records are held back by open transactions"
        )
    return f"{waiting(condition)} for the next run"


RULES: Final[tuple[tuple[State, _Rule], ...]] = (
    ("Paused", _paused),
    ("Refused", _refused),
    ("Failed", _failed),
    ("Degraded", _degraded),
    ("Behind", _behind),
    ("Running", _running),
)
"""The states but `Idle` in their order, each with its rule."""


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def spoken(seconds: float) -> str:
    """A duration in its two largest units: `2 h 5 min`, `48 s`."""
    remaining = round(max(0.0, seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, remaining = divmod(remaining, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])
