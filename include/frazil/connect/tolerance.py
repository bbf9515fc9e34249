"""Errors: which records may fail, and where they go."""

from __future__ import annotations

from typing import Any

from frazil.connect.findings import Keys

_TOPIC = "errors.deadletterqueue.topic.name"


def dead_letters(keys: Keys) -> dict[str, Any]:
    """The key `dead_letters` of the pipeline file."""
    made: dict[str, Any] = {"tolerance": "all" if (keys.get("errors.tolerance") or "").lower() == "all" else "none"}
    if "errors.tolerance" in keys:
        _tolerance(keys, made["tolerance"])
    if made["tolerance"] == "none":
        keys.note(
            "dead_letters.tolerance: none keeps what the sink does: the first record that can't land stops everything. Without"
            " that line up to 10 % of a batch may go to the dead-letter table, and the rest lands."
        )
    if (keys.get("errors.log.enable") or "").lower() == "true":
        made["log"] = True
        keys.say("errors.log.enable", "carried", "dead_letters.log")
    for name, why in _WITHOUT.items():
        if name in keys:
            keys.say(name, "changed", why)
    if _TOPIC in keys:
        by_hand = "read the dead-letter table: frazil dead-letters list"
        keys.say(_TOPIC, "changed", "dead letters go to a table, whole and with their reason", by_hand)
    return made


_WITHOUT = {
    "errors.log.enable": "off, as here",
    "errors.log.include.messages": "a log names coordinates, never what is in a record",
    "errors.retry.timeout": "what is passing (broker, registry, catalog) ends the run, and Airflow's retries try again",
    "errors.retry.delay.max.ms": "Airflow's retries have their own delay",
    "errors.deadletterqueue.topic.replication.factor": "dead letters go to a table",
    "errors.deadletterqueue.context.headers.enable": "the reason stands in columns: code, stage, message, path",
}


def _tolerance(keys: Keys, tolerance: str) -> None:
    if tolerance == "none":
        keys.say("errors.tolerance", "carried", "dead_letters.tolerance: none")
        return
    why = "dead_letters.tolerance: all, for conversion to columns and routing too, where the sink's task fails; none is lost"
    keys.say("errors.tolerance", "changed", why)
