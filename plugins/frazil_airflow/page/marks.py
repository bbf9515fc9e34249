"""Small drawings as coordinates: a sparkline, and the phases of a batch one behind the other. Templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PHASES = ("plan", "stage", "audit", "decide", "forward")
"""In the order in which a batch goes through them; those that a later Frazil names come behind."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: where it begins, how wide and how high it is, in units of the drawing."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a batch: its number for the colour, name, seconds, and its place in a drawing 100 wide."""

    number: int
    name: str
    seconds: float
    x: float
    width: float


def bars(values: Sequence[float], width: float = 96, height: float = 20, gap: float = 1) -> tuple[Bar, ...]:
    """A bar per value, the highest as high as the drawing. A value above zero is never invisible."""
    most = max(values, default=0)
    if most <= 0:
        return ()
    step = width / len(values)
    found = []
    for number, value in enumerate(values):
        if value > 0:
            high = max(1.5, height * value / most)
            found.append(Bar(round(number * step, 2), round(height - high, 2), round(step - gap, 2), round(high, 2)))
    return tuple(found)


def phases(seconds: Mapping[str, float]) -> tuple[Phase, ...]:
    """The phases of a batch in their order, each as wide as its share of the whole."""
    known = [name for name in PHASES if name in seconds]
    names = [*known, *sorted(set(seconds) - set(known))]
    whole = sum(max(0.0, seconds[name]) for name in names)
    found: list[Phase] = []
    x = 0.0
    for number, name in enumerate(names):
        width = 100 * max(0.0, seconds[name]) / whole if whole else 0.0
        found.append(Phase(number, name, seconds[name], round(x, 2), round(width, 2)))
        x += width
    return tuple(found)
