"""Small drawings as coordinates: a sparkline, and the phases of a batch one behind the other. Templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PHASES = ("plan", "stage", "audit", "decide", "forward")
"""In the order in which a batch goes through them; those that a later Frazil names come behind."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a batch: its number for the colour, name, seconds, and its place in a drawing 100 wide."""

    number: int
    name: str
    seconds: float
    x: float
    width: float


def bars(values: Sequence[float], width: float = 96, height: float = 20, gap: float = 0.8) -> str:
    """A bar per value as the path of an SVG, the highest as high as the drawing. A value above zero is never invisible."""
    most = max(values, default=0)
    step = width / max(1, len(values))
    found = []
    for number, value in enumerate(values):
        if value > 0:
            high = max(1.5, height * value / most)
            found.append(f"M{number * step:.1f} {height}v-{high:.1f}h{step - gap:.1f}v{high:.1f}z")
    return "".join(found)


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
