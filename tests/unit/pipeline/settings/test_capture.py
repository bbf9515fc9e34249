"""Capture files: what is accepted, and what the complaints say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import load_capture, load_captures
from frazil.pipeline.files.load import ConfigError
from frazil.pipeline.settings.capture import FileCapture, JdbcCapture, unknown_in_capture
from frazil.pipeline.settings.settings import Settings

ROOT = Path(__file__).resolve().parents[4]
NOTHING = References({}, {})
LOGS = {"capture": "file", "name": "logs", "topic": "logs", "paths": ["/var/log/app.log"]}
ROWS = {"capture": "jdbc", "name": "rows", "topic": "rows", "database": "shop", "table": "orders", "mode": "bulk"}
BY_TIME = {**ROWS, "mode": "timestamp", "timestamp_column": "changed_at"}


def problems(tmp_path: Path, options: dict[str, Any]) -> str:
    path = tmp_path / "one.yaml"
    path.write_text(json.dumps(options))
    with pytest.raises(ConfigError) as caught:
        load_capture(path, NOTHING)
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**LOGS, "capture": "files"}, "capture: expected file or jdbc, found 'files'"),
        ({**LOGS, "capture": ["file"]}, "capture: expected file or jdbc"),
        ({**LOGS, "paths": []}, "paths: "),
        ({**LOGS, "paths": ["logs/app.log"]}, "paths: 'logs/app.log' is not absolute"),
        ({**LOGS, "key_pattern": "("}, "key_pattern: '(' is not a regular expression"),
        ({**LOGS, "key_pattern": "a"}, "key_pattern: has no group"),
        ({**LOGS, "key": "file", "key_pattern": "(a)"}, "key_pattern: excludes key"),
        ({**LOGS, "interval": "10s"}, "interval: '10s' is shorter than a minute"),
        ({**LOGS, "table": "orders"}, "table: unknown key"),
        ({**ROWS, "query": "SELECT 1"}, "table: expected either table or query"),
        ({**ROWS, "table": "(SELECT 1) x"}, "table: '(SELECT 1) x' is not the name of a table or view"),
        ({**ROWS, "table": "a; DROP TABLE b"}, "table: 'a; DROP TABLE b' is not the name of a table or view"),
        ({**ROWS, "table": "a WHERE 1=1 --"}, "table: 'a WHERE 1=1 --' is not the name of a table or view"),
        ({**ROWS, "mode": "incrementing"}, "incrementing_column: is required by mode incrementing"),
        ({**ROWS, "timestamp_column": "at"}, "timestamp_column: is not used by mode bulk"),
        ({**BY_TIME, "timestamp_column": "a; DROP TABLE b"}, "timestamp_column: 'a; DROP TABLE b' is no plain name"),
        ({**BY_TIME, "delay": "soon"}, "delay: 'soon' is no duration"),
    ],
)
def test_capture_that_cannot_run_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Every complaint begins with its key."""
    assert message in problems(tmp_path, options)


def test_shipped_examples_are_valid_and_inactive() -> None:
    """They can be used as they are, and are not in force."""
    captures = [load_capture(path, NOTHING) for path in sorted((ROOT / "include" / "captures").glob("*.example"))]
    assert [type(capture) for capture in captures] == [FileCapture, JdbcCapture]
    assert load_captures(ROOT / "include" / "captures", NOTHING).usable == {}


def test_duplicate_capture_names_are_refused(tmp_path: Path) -> None:
    """Files of one name: none of them runs. Without a folder there are none."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(LOGS))
    captures = load_captures(tmp_path, NOTHING)
    assert (captures.usable, len(captures.broken)) == ({}, 2)
    assert load_captures(tmp_path / "none", NOTHING).usable == {}


def test_password_of_a_database_is_not_shown() -> None:
    """Neither in the representation of settings nor in a complaint; options of the source can't be set twice."""
    database = {"url": "jdbc:x://h/d?password=hush", "password": "hush", "driver": "x", "properties": {"k": "hush"}}
    settings = Settings.model_validate(
        {
            "clusters": {"local": {"bootstrap_servers": "h:1"}},
            "catalogs": {"lake": {"uri": "sqlite:////w/catalog.db", "warehouse": "file:///w"}},
            "engines": {"warm": {"type": "connect", "managed": True}, "server": {"type": "connect", "url": "sc://h:1"}},
            "databases": {"shop": database},
        }
    )
    assert "hush" not in repr(settings)
    assert settings.databases["shop"].options["password"] == "hush"
    with pytest.raises(ValueError, match="Password: has a key of its own"):
        Settings.model_validate(
            settings.model_dump() | {"databases": {"a": {**database, "properties": {"Password": "x"}}}}
        )
    capture = JdbcCapture(**{**ROWS, "engine": "server"})
    assert "type submit" in "".join(unknown_in_capture(capture, settings))
    assert not list(unknown_in_capture(capture.model_copy(update={"engine": "warm"}), settings))
    assert "read by Spark" in "".join(unknown_in_capture(capture.model_copy(update={"engine": "inline"}), settings))
