"""Which Frazil this is."""

from __future__ import annotations

from pathlib import Path

import pytest

import frazil
from frazil.spark.submit.configuration import digest


def test_upgraded_code_is_noticed_by_a_waiting_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade while a session waits for records is seen: the server is asked for with the code that is there now."""
    code = tmp_path / "__init__.py"
    code.write_text("before = 1\n")
    monkeypatch.setattr(frazil, "__file__", str(code))
    before = digest()

    code.write_text("after = 1\n")

    assert digest() != before
