"""Findings about the keys of a connector: every given key is in exactly one class."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from frazil.connect.names import CANONICAL, current, is_known, suggestions

Outcome = Literal["carried", "changed", "not_supported", "unknown", "refused"]
"""Carried over; changed in meaning; not supported (to be done by hand); unknown; refused (nothing is written)."""

OUTCOMES: tuple[Outcome, ...] = ("refused", "not_supported", "unknown", "changed", "carried")
"""The graver one first: what is said of one key twice counts as the graver."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding about one key.

    Attributes:
        key: The key as it was written, or one that should have been.
        outcome: Its class.
        message: The key's new place, or why it has none. Never a value that may be secret.
        by_hand: What to do, if there is something.
    """

    key: str
    outcome: Outcome
    message: str
    by_hand: str | None = None


class ConnectorKeys:
    """The keys of one connector, and the findings about each.

    Legacy names count as the present ones. A key whose value is empty counts as not given, as an empty option of Kafka
    Connect has no effect.
    """

    def __init__(self, config: Mapping[str, str], origin: str = "") -> None:
        self.origin = origin
        self._written: dict[str, list[str]] = {}
        self._values: dict[str, str] = {}
        self._findings: dict[str, Finding] = {}
        self.notes: list[str] = []
        for key, value in config.items():
            self._take(key, value.strip())

    def _take(self, key: str, value: str) -> None:
        name = current(key)
        self._written.setdefault(name, []).append(key)
        if name in self._values and self._values[name] != value:
            spellings = " and ".join(self._written[name])
            self.say(name, "refused", f"{spellings} are one option with two values", "keep the one that is meant")
        if value or name not in self._values:
            self._values[name] = value
        if not value:
            self.say(name, "changed", "empty, so it counts as not given")

    def __contains__(self, name: str) -> bool:
        return bool(self._values.get(name))

    def get(self, name: str) -> str | None:
        """The value of a key by its present name; None if it is missing or empty."""
        return self._values.get(name) or None

    @property
    def old_names(self) -> list[str]:
        """Keys that were written by an old name."""
        return sorted(key for name, written in self._written.items() for key in written if key != name)

    def is_true(self, name: str) -> bool:
        """Whether a switch is on. Kafka Connect takes nothing but true and false, and refuses the connector otherwise."""
        value = (self.get(name) or "").lower()
        if value not in ("", "true", "false"):
            self.say(name, "refused", "neither true nor false: Kafka Connect refuses it", "write true or false")
        return value == "true"

    def below(self, prefix: str) -> dict[str, str]:
        """The keys with a prefix, without it; empty values left out."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix) and value}

    def say(self, name: str, outcome: Outcome, message: str, by_hand: str | None = None) -> None:
        """Classify a key. If it is classified twice, the graver class counts; of equal ones, the first."""
        missing = [name] if outcome == "refused" else []
        for written in self._written.get(name, missing):
            finding = Finding(self.origin + written, outcome, message + _old_name(written, name), by_hand)
            earlier = self._findings.get(written)
            if earlier is None or OUTCOMES.index(outcome) < OUTCOMES.index(earlier.outcome):
                self._findings[written] = finding

    def note(self, text: str) -> None:
        """Add a remark that concerns no single key."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def is_refused(self) -> bool:
        """Whether a finding prevents the import of the connector."""
        return any(finding.outcome == "refused" for finding in self._findings.values())

    def unsaid(self) -> Iterator[str]:
        """Present keys that are not classified yet."""
        for name, written in self._written.items():
            if any(key not in self._findings for key in written):
                yield name

    def close(self, tables: Collection[str] = ()) -> tuple[Finding, ...]:
        """Classify the remaining keys as unknown, each with the nearest known name, and return all findings."""
        for name in list(self.unsaid()):
            if is_known(name):
                self.say(name, "changed", "has no effect in this configuration, there as here")
                continue
            similar = get_close_matches(name, [*suggestions(tables), *CANONICAL], 1, 0.75)
            hint = f"did you mean {similar[0]}?" if similar else None
            self.say(name, "unknown", "not a key of the sink or of Kafka Connect, so nothing reads it", hint)
        return tuple(
            sorted(self._findings.values(), key=lambda finding: (OUTCOMES.index(finding.outcome), finding.key))
        )


def _old_name(written: str, name: str) -> str:
    return "" if written == name else f" (old name of {name})"
