"""Values as JSON documents."""

from __future__ import annotations

import pytest

from frazil.verify.values import json_document as documents
from frazil.verify.values.json_document import EACH_ONCE, LAST_COUNTS, Unfit, object_of


def test_value_is_parsed_once_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Route and row of every destination ask for the same value one after the other; it is parsed once per reading."""
    parsed: list[str] = []
    monkeypatch.setattr(documents, "_depth", lambda text: parsed.append(text) or 1)
    raw = b'{"deep": ' + b"[" * 501 + b"]" * 501 + b', "a": 1, "a": 2}'

    values = [object_of(raw, LAST_COUNTS)["a"] for _ in range(5)]

    assert (values, len(parsed)) == (["2"] * 5, 1)
    with pytest.raises(Unfit, match="named twice"):
        object_of(raw, EACH_ONCE)
