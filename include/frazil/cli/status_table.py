"""Conditions of pipelines as lines of a terminal, whatever its size, and as JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from frazil.local import stack
from frazil.local.home import Home
from frazil.monitor.condition import Condition
from frazil.monitor.state import NOTHING, STATES, Promise, spoken, state_of

STYLES = {
    "Paused": "dim",
    "Refused": "bold red",
    "Failed": "bold red",
    "Degraded": "yellow",
    "Behind": "yellow",
    "Running": "cyan",
    "Idle": "green",
}
"""How the words look."""

_READING = "reading"

_WIDE = 120
"""Columns from which freshness and counts find room beside the reason."""

_AROUND = 4
"""Lines of a screen that are no pipelines: the head, what does not fit, the sum, and the cursor's."""

Conditions = Mapping[str, Condition | None]
Promises = Mapping[str, Promise]


def lines(conditions: Conditions, promises: Promises, width: int, height: int | None = None) -> Group:
    """The pipelines, the most urgent first, and the sum by word.

    Args:
        conditions: By name; None of one that was not read yet.
        promises: What is promised of each.
        width: Columns of the terminal.
        height: Its lines; what does not fit is counted. None: all.
    """
    judged = {name: _judged(of, promises.get(name, NOTHING)) for name, of in conditions.items()}
    names = sorted(judged, key=lambda name: (_urgency(judged[name][0]), name))
    shown = names if height is None else names[: max(1, height - _AROUND)]
    table = _table(width, has_why=_has_why(width, height))
    for name in shown:
        state, why = judged[name]
        cells = _cells(name, conditions[name], state, width)
        table.add_row(*cells, *([why] if len(table.columns) > len(cells) else []))
    reasons = (
        [] if _has_why(width, height) else [_reason(name, *judged[name]) for name in shown if _matters(judged[name][0])]
    )
    below = [*reasons, _sum(Counter(word for word, _ in judged.values()))]
    if len(shown) < len(names):
        hidden = Counter(judged[name][0] for name in names[len(shown) :])
        below.insert(0, Text(f"… and {len(names) - len(shown)} more: {_counted(hidden)}", "dim"))
    return Group(table, *below)


def facts(conditions: Conditions, promises: Promises, home: Home) -> dict[str, Any]:
    """The embedded stack and the pipelines in JSON's terms."""
    pipelines = {}
    for name, of in conditions.items():
        state, why = _judged(of, promises.get(name, NOTHING))
        pipelines[name] = {"state": state, "why": why} | ({} if of is None else asdict(of))
    return {**stack.status(home).to_json(), "pipelines": pipelines}


def _judged(condition: Condition | None, promise: Promise) -> tuple[str, str]:
    return (_READING, "") if condition is None else state_of(condition, promise)


def _urgency(word: str) -> int:
    """Paused is what somebody wanted: it stands below what somebody must look at, and above what is well."""
    order = ("Refused", "Failed", "Degraded", "Behind", _READING, "Paused", "Running", "Idle")
    return order.index(word)


def _has_why(width: int, height: int | None) -> bool:
    """A screen has one line for each pipeline; else the reasons stand below where there is little room, and are not cut."""
    return height is not None or width >= _WIDE


def _matters(word: str) -> bool:
    return word not in ("Idle", "Running", _READING)


def _reason(name: str, word: str, why: str) -> Text:
    return Text.assemble((f"{name}: ", "bold"), (word, STYLES.get(word, "")), f", {why}")


def _table(width: int, *, has_why: bool) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), expand=has_why)
    table.add_column("pipeline", no_wrap=True, overflow="ellipsis", max_width=max(12, width // 4))
    table.add_column("state", no_wrap=True)
    for name in ("lag", "waits", *(("fresh", "rows", "dead") if width >= _WIDE else ()), "commit"):
        table.add_column(name, justify="right", no_wrap=True)
    if has_why:
        table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _cells(name: str, of: Condition | None, word: str, width: int) -> list[str | Text]:
    state = Text(word, STYLES.get(word, "dim"))
    if of is None:
        return [name, state, *[""] * (6 if width >= _WIDE else 3)]
    fresh = "-" if of.freshness.p95 is None else _short(of.freshness.p95)
    wide: list[str | Text] = [fresh, f"{of.rows:,}", Text(f"{of.dead:,}", "yellow" if of.dead else "")]
    lag = "-" if of.lag is None else f"{of.lag:,}"
    waits = "-" if of.lag_seconds is None else _short(of.lag_seconds) if of.lag else ""
    return [name, state, lag, waits, *(wide if width >= _WIDE else ()), _ago(of.last_commit, of.at)]


def _short(seconds: float) -> str:
    """A duration in its largest unit: `2 h`, `48 s`."""
    return " ".join(spoken(seconds).split()[:2])


def _ago(then: datetime | None, now: datetime) -> str:
    return "never" if then is None else f"{_short((now - then).total_seconds())} ago"


def _sum(counted: Counter[str]) -> Text:
    total = sum(counted.values())
    return Text(f"{total} pipelines: {_counted(counted)}" if total else "there are no pipelines", "bold")


def _counted(counted: Counter[str]) -> str:
    return ", ".join(f"{counted[word]} {word}" for word in (*STATES, _READING) if counted[word])
