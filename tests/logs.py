"""Log lines of one module, whatever a test before made of logging in this process."""

from __future__ import annotations

import logging

import pytest


def hear(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Let `caplog` have each warning of a logger once, for the rest of the test.

    Airflow disables loggers that are there before it configures logging, and Frazil's plugin keeps its lines from the root.
    """
    logger = logging.getLogger(name)
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    caplog.set_level(logging.WARNING, logger=name)
