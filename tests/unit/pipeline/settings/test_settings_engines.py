"""Engines in the settings file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.settings.settings import EngineSettings, Settings

VALID = {
    "clusters": {"local": {"bootstrap_servers": "a:1"}},
    "catalogs": {"lake": {"uri": "sqlite:///u", "warehouse": "w"}},
}


def test_engine_starts_spark_by_default() -> None:
    """Settings files that were written before keep their meaning."""
    assert EngineSettings.model_validate({"master": "yarn"}).type == "submit"


@pytest.mark.parametrize(
    "options",
    [
        {"type": "connect", "url": "sc://spark:15002", "token": "t", "conf": {"spark.sql.shuffle.partitions": "8"}},
        {"type": "connect", "url": "sc://spark:15002/;use_ssl=true"},
        {"type": "connect", "managed": True, "master": "local[4]", "driver_memory": "2g"},
        {"ui": True, "event_log": "/var/log/spark-events"},
        {"type": "connect", "managed": True, "ui": True, "event_log": "s3a://logs/spark"},
    ],
)
def test_valid_server_is_accepted(options: dict[str, Any]) -> None:
    """What the documentation shows is taken as it is."""
    assert EngineSettings.model_validate(options).model_dump(exclude_unset=True) == options


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "sc://a:1"}, "url: type submit has no such key"),
        ({"managed": True, "token": "hunter2"}, "managed, token: type submit has no such key"),
        ({"type": "connect"}, "needs url"),
        ({"type": "connect", "url": "http://a:1"}, "sc://host:port"),
        ({"type": "connect", "url": "sc://a"}, "sc://host:port"),
        ({"type": "connect", "url": "sc://a:1/;token=hunter2"}, "use the engine.s key"),
        ({"type": "connect", "url": "sc://a:1/;x-key=aHVudGVyMg=="}, "percent-encoded"),
        ({"type": "connect", "url": "sc://a:1/;x-key=a/b"}, "percent-encoded"),
        ({"type": "connect", "url": "sc://a:1", "master": "yarn"}, "master: type connect has no such key"),
        ({"type": "connect", "url": "sc://a:1", "ui": True}, "ui: type connect has no such key"),
        ({"event_log": "spark-events"}, "event_log"),
        ({"type": "connect", "url": "sc://a:1", "managed": True}, "url: a managed server has no such key"),
        ({"type": "connect", "managed": True, "connection": "c"}, "connection: a managed server has no such key"),
    ],
)
def test_key_of_another_engine_type_is_refused(options: dict[str, Any], expected: str) -> None:
    """What an engine can't use is refused by name."""
    with pytest.raises(ValidationError, match=expected):
        EngineSettings.model_validate(options)


def test_second_managed_server_is_refused() -> None:
    """There is one; the message names both."""
    managed = {"type": "connect", "managed": True}
    with pytest.raises(ValidationError, match=r"a, b are managed"):
        Settings.model_validate(VALID | {"engines": {"a": managed, "b": managed}})


def test_token_is_not_shown() -> None:
    """Settings are logged where something fails; parameters of the address are headers, which may be tokens of a proxy."""
    url = "sc://a:1/;x-key=hunter2"
    assert "hunter2" not in repr(EngineSettings(type="connect", url=url, token="hunter2"))
