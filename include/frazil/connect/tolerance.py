"""Errors: which records may fail, and where they go."""

from __future__ import annotations

from typing import Any

from frazil.connect.findings import Keys
from frazil.connect.source import TOPIC

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
        made |= _topic(keys, made["tolerance"])
    return made


def _topic(keys: Keys, tolerance: str) -> dict[str, Any]:
    """The queue as the topic beside the dead-letter table."""
    topic = keys.get(_TOPIC) or ""
    if tolerance == "none":
        keys.say(_TOPIC, "changed", "without errors.tolerance: all nothing gets there, in Kafka Connect neither")
        return {}
    read = [name.strip() for name in (keys.get("topics") or "").split(",")]
    if topic in read or not TOPIC.fullmatch(topic):
        keys.say(_TOPIC, "not_supported", "no topic, or one that is read", "name another under dead_letters.topic")
        return {}
    keys.say(_TOPIC, "carried", "dead_letters.topic, beside the dead-letter table")
    return {"topic": topic}


_WITHOUT = {
    "errors.log.enable": "off, as here",
    "errors.log.include.messages": "a log names coordinates, never what is in a record",
    "errors.retry.timeout": "what is passing (broker, registry, catalog) ends the run, and Airflow's retries try again",
    "errors.retry.delay.max.ms": "Airflow's retries have their own delay",
    "errors.deadletterqueue.topic.replication.factor": "a topic that is made is replicated as the brokers are configured",
    "errors.deadletterqueue.context.headers.enable": "the headers are always there",
}


def _tolerance(keys: Keys, tolerance: str) -> None:
    if tolerance == "none":
        keys.say("errors.tolerance", "carried", "dead_letters.tolerance: none")
        return
    why = "dead_letters.tolerance: all, for conversion to columns and routing too, where the sink's task fails; none is lost"
    keys.say("errors.tolerance", "changed", why)
