"""Changes of pipeline files by programs: one at a time, and never over another change."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from frazil.pipeline.files import change
from frazil.pipeline.files.change import ChangeRefused, Commit, change_file, checked_pipeline, read_content
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import file_of


def test_of_many_changes_of_one_file_exactly_one_lands(tmp_path: Path):
    """All changes are based on the same file: the first one lands, nothing is mixed, and no other file is left."""
    file = tmp_path / "orders.yaml"
    file.write_bytes(b"before")
    texts = [f"change {number}".encode() * 10_000 for number in range(8)]

    def lands(text: bytes) -> bool:
        try:
            change_file(file, b"before", text, None)
        except ChangeRefused:
            return False
        return True

    with ThreadPoolExecutor(len(texts)) as pool:
        landed = [text for text, done in zip(texts, pool.map(lands, texts), strict=True) if done]

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
    """Pipeline files must be in their folder."""
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
    """The file name does not matter; a file that states another name belongs to another pipeline."""
    (tmp_path / "shop.yaml").write_text("name: orders")
    (tmp_path / "orders.yaml").write_text("name: payments")
    (tmp_path / "torn.yml").write_text("name: [")

    assert file_of(tmp_path, "orders").name == "shop.yaml"
    assert file_of(tmp_path, "payments").name == "orders.yaml"
    assert file_of(tmp_path, "shop").name == "shop.connector.yaml"
    assert file_of(tmp_path, "torn").name == "torn.yml"
    assert file_of(tmp_path, "fresh").name == "fresh.yaml"
    (tmp_path / "shop.connector.yaml").write_text("name: third")
    assert file_of(tmp_path, "shop").name == "shop.connector1.yaml"


VALUE = "{format: avro, schema_file: o.avsc}"


@pytest.fixture
def repository(tmp_path: Path) -> Callable[..., str]:
    """A Git working tree, with a function that runs Git in it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "begin")
    return git


@pytest.mark.parametrize(("hook", "is_committed"), [("pre-commit", False), ("post-commit", True)])
def test_hook_without_end_leaves_no_lock_and_no_half_change(
    tmp_path: Path, repository: Callable[..., str], monkeypatch: pytest.MonkeyPatch, hook: str, is_committed: bool
):
    """A hook before the commit leaves everything unchanged; after the commit, such as one that pushes, the change stays."""
    monkeypatch.setattr(change, "GIT_SECONDS", 2)
    file, script = tmp_path / "orders.yaml", tmp_path / ".git" / "hooks" / hook
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(0o755)

    with nullcontext() if is_committed else pytest.raises(ChangeRefused, match="no answer within 2 s"):
        change_file(file, None, b"one", Commit("ana", "created"))
    assert file.exists() == is_committed
    assert ("created" in repository("log", "--format=%s")) == is_committed
    assert repository("status", "--porcelain") == ""
    assert list((tmp_path / ".git").glob("*.lock")) == []

    script.unlink()
    change_file(file, read_content(file), b"two", Commit("ana", "changed"))
    assert repository("status", "--porcelain") == ""


def test_file_that_git_ignores_is_not_written(tmp_path: Path, repository: Callable[..., str]):
    """Git would make no commit of it."""
    (tmp_path / ".gitignore").write_text("*.yaml")
    with pytest.raises(ChangeRefused, match="ignored"):
        change_file(tmp_path / "orders.yaml", None, b"one", Commit("ana", "created"))
    assert not (tmp_path / "orders.yaml").exists()


def test_long_message_is_committed(tmp_path: Path, repository: Callable[..., str]):
    """A pipeline of thousands of columns has thousands of effects, more than fit into the arguments of a process."""
    change_file(tmp_path / "orders.yaml", None, b"one", Commit("ana", "created\n\n" + "an effect\n" * 30_000))
    assert repository("log", "-1", "--format=%s|%b").startswith("created|an effect")


def test_schema_is_looked_for_where_the_file_will_find_it(tmp_path: Path):
    """It is beside the folder's own name, even if that is a link."""
    (tmp_path / "real" / "files").mkdir(parents=True)
    (tmp_path / "project" / "schemas").mkdir(parents=True)
    schema = {"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "project" / "schemas" / "o.avsc").write_text(json.dumps(schema))
    folder = tmp_path / "project" / "pipelines"
    folder.symlink_to(tmp_path / "real" / "files")
    text = (
        f"name: orders\nsource: {{topics: [a]}}\ndestinations: [{{table: a.b, columns: {{id: long}}}}]\nvalue: {VALUE}"
    )
    assert checked_pipeline(text, folder, References({}, {})).name == "orders"


def test_change_waits_for_another_one_for_a_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A hanging change delays others only as long as Git's timeout; after it they land."""
    monkeypatch.setattr(change, "GIT_SECONDS", 0.3)
    file, handle = tmp_path / "orders.yaml", os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)

    with pytest.raises(ChangeRefused, match="takes longer than"):
        change_file(file, None, b"one", None)
    assert not file.exists()

    os.close(handle)
    change_file(file, None, b"one", None)
    assert file.read_bytes() == b"one"
