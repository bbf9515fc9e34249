"""The owner of an invalid pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.pipeline.files.files import stated_owner


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("name: a\nowner: kitchen\ncolour: red\n", "kitchen"),
        ("owner:   'the \"depot\"'   # not mine\nsource: [not closed\n", 'the "depot"'),
        ("owner: kitchen\n\tnot YAML\n", "kitchen"),
        ("name: a\n", None),
        ("source: {\n  owner: somebody}\n", None),
        ("owner: kitchen\nowner: depot\n", None),
        ("owner: ${env:TEAM}\n", None),
        ("owner: [kitchen\n", None),
        ("owner: 2024-13-45\n", None),
        ("owner:\n", None),
        ("owner: 7\n", None),
    ],
)
def test_owner_of_a_broken_file_is_still_read(tmp_path: Path, text: str, owner: str | None) -> None:
    """The text after `owner:` is the owner, even if the rest is not YAML; an uncertain owner is None."""
    file = tmp_path / "orders.yaml"
    file.write_text(text)

    assert stated_owner(file) == owner


def test_missing_file_has_no_owner(tmp_path: Path) -> None:
    """A file that vanished, or is no text, has no owner, and the alert is sent nevertheless."""
    (tmp_path / "binary.yaml").write_bytes(b"owner: \xff\n")

    assert stated_owner(tmp_path / "gone.yaml") is None
    assert stated_owner(tmp_path / "binary.yaml") is None
