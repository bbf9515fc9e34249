"""What the monitor and callbacks keep, in memory: there is no Airflow to keep it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.receivers import Posts


@dataclass
class VariableStore:
    """A store that remembers, and how much had been sent when it was written to."""

    hook: Posts | None = None
    texts: dict[str, str] = field(default_factory=dict)
    sent_before: list[int] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """As Airflow's."""
        return self.texts.get(name)

    def names(self, prefix: str) -> list[str]:
        """As Airflow's."""
        return [name for name in self.texts if name.startswith(prefix)]

    def set(self, name: str, text: str, _description: str) -> None:
        """As Airflow's."""
        self.texts[name] = text
        self.sent_before.append(len(self.hook.got) if self.hook else 0)

    def delete(self, name: str) -> None:
        """As Airflow's."""
        del self.texts[name]
