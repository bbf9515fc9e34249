"""Pipeline files that a program changes: one change at a time, and never over another one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from frazil.pipeline.files.change import ChangeRefused, change_file, read_content
from frazil.pipeline.files.folder import file_of


def test_of_many_changes_of_one_file_exactly_one_lands(tmp_path: Path):
    """All of them were made of the same file: the first one in wins, nothing is mixed, no other file stays."""
    file = tmp_path / "orders.yaml"
    file.write_bytes(b"before")
    texts = [f"change {number}".encode() * 10_000 for number in range(8)]

    def change(text: bytes) -> bool:
        try:
            change_file(file, b"before", text, None)
        except ChangeRefused:
            return False
        return True

    with ThreadPoolExecutor(len(texts)) as pool:
        landed = [text for text, done in zip(texts, pool.map(change, texts), strict=True) if done]

    assert landed == [read_content(file)]
    assert list(tmp_path.iterdir()) == [file]


def test_changed_file_keeps_its_permissions_and_a_removed_one_is_gone(tmp_path: Path):
    """Airflow's parser may be another user, of the same group."""
    file = tmp_path / "orders.yaml"
    change_file(file, None, b"one", None)
    file.chmod(0o640)

    change_file(file, b"one", b"two", None)

    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"two", 0o640)
    change_file(file, b"two", None, None)
    assert read_content(file) is None
    with pytest.raises(ChangeRefused, match="changed by somebody else"):
        change_file(file, b"two", b"three", None)


def test_link_out_of_the_folder_is_neither_read_nor_replaced(tmp_path: Path):
    """Files of pipelines lie in their folder."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (tmp_path / "outside").write_text("name: orders")
    (folder / "orders.yaml").symlink_to(tmp_path / "outside")

    with pytest.raises(ChangeRefused, match="outside of"):
        read_content(folder / "orders.yaml")
    with pytest.raises(ChangeRefused, match="link"):
        change_file(folder / "orders.yaml", b"name: orders", b"name: other", None)
    assert (tmp_path / "outside").read_text() == "name: orders"


def test_file_of_a_pipeline_is_the_one_that_states_its_name(tmp_path: Path):
    """Whatever it is called. A file that states another name is not taken for it."""
    (tmp_path / "shop.yaml").write_text("name: orders")
    (tmp_path / "orders.yaml").write_text("name: payments")
    (tmp_path / "torn.yml").write_text("name: [")

    assert file_of(tmp_path, "orders").name == "shop.yaml"
    assert file_of(tmp_path, "payments").name == "orders.yaml"
    assert file_of(tmp_path, "shop").name == "shop.connector.yaml"
    assert file_of(tmp_path, "torn").name == "torn.yml"
    assert file_of(tmp_path, "fresh").name == "fresh.yaml"
