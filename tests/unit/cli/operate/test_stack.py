"""What `frazil up` says before it starts anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from frazil.errors import Terminal

Frazil = Callable[..., Any]


SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1"}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
"""


def test_unmanaged_server_is_reported_as_missing(place: Path, frazil: Frazil) -> None:
    """Asked for the server alone, without an engine that has one, it says what is missing instead of doing nothing."""
    (place / "settings.yaml").write_text(SETTINGS)

    ended = frazil("up", "--only", "spark")

    assert ended.code == Terminal.exit_code
    assert "no engine has a server that Frazil manages" in ended.err
    assert "managed: true" in ended.err


def test_stack_reads_its_settings_before_it_starts(place: Path, frazil: Frazil) -> None:
    """Broken settings end `up` at once: nothing was started, and nothing has to be stopped."""
    (place / "settings.yaml").write_text("engines: 7\n")

    ended = frazil("up")

    assert ended.code == Terminal.exit_code
    assert not (place / "home").exists()
