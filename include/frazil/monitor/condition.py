"""The condition of a pipeline at an instant, as plain data, and its state with the reason: one rule for page,
terminal, metrics and alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, get_args

State = Literal["Paused", "Refused", "Failed", "Degraded", "Behind", "Running", "Idle"]
"""The word for a pipeline's condition. The most urgent one that holds, see `frazil.monitor.condition`."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How near Kafka's retention is to the position, in one partition with records to lose.

    Attributes:
        headroom: Offsets between the log start and the position; below zero, so many are lost.
        seconds_left: Until `retention.ms` may take what was not read yet, at least; 0 if it took some. None if the topic
            keeps records for ever, or if that is unknown.
        cut_to_seconds: The shortest `retention.ms` that still keeps what was not read yet; None if that is unknown.
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
        unfinished_since: When that was decided; None if all are finished, or if that is unknown.
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


# Rules are asked in the order of `RULES`, and the first that holds gives the word; `Idle` holds always. So every condition has
# exactly one word, the most urgent one.
#
# | word | it holds if |
# |---|---|
# | Paused | Airflow says that the schedule is paused. A person chose that, so it stands before all else, and what is wrong besides is said behind it |
# | Refused | a plan would refuse, or the last run by hand did: the next run fails until a person acts |
# | Failed | the last finished run failed |
# | Degraded | Kafka or the catalog can't be read; a decided batch is unfinished for 5 minutes; retention took unread records, or may take them when three quarters of it are over; more than a tenth of the window's records (of 1,000 and more) are dead letters; a table's health is below 50 |
# | Behind | records wait for longer than the freshness objective |
# | Running | a run is at work, or a batch is decided and not finished yet |
# | Idle | nothing of all that |

STATES: Final[tuple[State, ...]] = get_args(State)
"""All words, the most urgent first."""

UNFINISHED_SECONDS: Final = 300.0
"""How long a decided batch may be under way: it takes a second or two, a merge of an engine a minute or two."""

RETENTION_SHARE: Final = 0.25
"""Of a topic's retention: with less of it left, records may be lost before anybody looks."""

DEAD_SHARE: Final = 0.1
DEAD_OF: Final = 1_000
"""Records below which a share says little."""

HEALTH: Final = 50


_Rule = Callable[[Condition, float | None], str | None]
"""Why a word holds, or None."""


def state_of(condition: Condition, promise: float | None = None) -> tuple[State, str]:
    """The state for a condition, and the reason in one line. `promise`: seconds a record may wait; None: no objective."""
    for state, rule in RULES:
        if (why := rule(condition, promise)) is not None:
            return state, why
    return "Idle", _idle(condition)


def _paused(condition: Condition, promise: float | None) -> str | None:
    if not condition.runs.is_paused:
        return None
    problem = next((why for state, rule in RULES[1:5] if (why := rule(condition, promise)) is not None), None)
    return "its schedule is paused" + ("" if problem is None else f"; {problem}")


def _refused(condition: Condition, _: float | None) -> str | None:
    by_hand, committed = condition.runs, condition.last_commit
    is_past = by_hand.refused_at is not None and committed is not None and committed > by_hand.refused_at
    refusal = condition.refusal or (None if is_past else by_hand.refusal)
    return None if refusal is None else refusal.splitlines()[0]


def _failed(condition: Condition, _: float | None) -> str | None:
    if condition.runs.last_state != "failed":
        return None
    failures = condition.runs.failures or 1
    how = f"the last {failures} runs failed" if failures > 1 else "the last run failed"
    return how + (f": {condition.runs.last_run}" if condition.runs.last_run else "")


def _degraded(condition: Condition, _: float | None) -> str | None:
    checks = (_unreadable, _stuck, _threatened, _dying, _unhealthy)
    return next((why for check in checks if (why := check(condition)) is not None), None)


def _unreadable(condition: Condition) -> str | None:
    return None if condition.unreadable is None else f"can't be read now: {condition.unreadable.splitlines()[0]}"


def _stuck(condition: Condition) -> str | None:
    seconds = _unfinished_seconds(condition)
    if condition.unfinished is None or seconds is None or seconds < UNFINISHED_SECONDS:
        return None
    return f"batch {condition.unfinished} is decided and not finished for {spoken(seconds)}"


def _threatened(condition: Condition) -> str | None:
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


def _dying(condition: Condition) -> str | None:
    read = condition.rows + condition.dead + condition.filtered
    if read < DEAD_OF or condition.dead <= DEAD_SHARE * read:
        return None
    return f"{condition.dead:,} of {read:,} records are dead letters ({condition.dead / read:.0%}), in {spoken(condition.window_seconds)}"


def _unhealthy(condition: Condition) -> str | None:
    table = min(condition.health, key=lambda name: (condition.health[name], name), default=None)
    if table is None or condition.health[table] >= HEALTH:
        return None
    return f"table {table} has health {condition.health[table]}"


def _behind(condition: Condition, promise: float | None) -> str | None:
    waits = bool(condition.lag) or condition.unit == "rows"
    if promise is None or condition.n is None or not waits or condition.lag_seconds is None:
        return None
    if condition.lag_seconds <= promise:
        return None
    return f"{waiting(condition)}, the oldest for {spoken(condition.lag_seconds)}; the freshness objective is {spoken(promise)}"


def waiting(condition: Condition) -> str:
    """What waits: `1,234 records wait`. Rows of a database are not counted."""
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
"""The words in their order, each with its rule."""


def _unfinished_seconds(condition: Condition) -> float | None:
    return (
        None if condition.unfinished_since is None else (condition.read_at - condition.unfinished_since).total_seconds()
    )


_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def spoken(seconds: float) -> str:
    """A duration in its largest unit and the next: `2 h 5 min`, `48 s`."""
    remaining = round(max(0.0, seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, remaining = divmod(remaining, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])
