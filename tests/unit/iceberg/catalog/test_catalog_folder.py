"""A folder of small files, on disk and where objects lie: what is written is there, whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import _MockFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Folder


@pytest.fixture(params=["path", "uri", "objects"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """One that does not exist yet."""
    if request.param == "objects":
        store = _MockFileSystem()
        store.create_dir("bucket/reports")  # stores need no folders, Arrow's stand-in does
        monkeypatch.setattr(PyArrowFileIO, "_initialize_fs", lambda *_: store)
        return Folder("s3://bucket/reports/", {})
    return Folder(f"{'file://' if request.param == 'uri' else ''}{tmp_path}/a/b/", {})


def test_file_is_read_back_by_its_name(folder: Folder) -> None:
    """Written, replaced, listed, read and removed, by its name; twice removed is fine."""
    assert folder.names() == []
    folder.write("b.md", "old")
    folder.write("b.md", "größer")
    folder.write("a.md", "")

    assert folder.names() == ["a.md", "b.md"]
    assert (folder.read("a.md"), folder.read("b.md")) == ("", "größer")
    folder.delete("a.md")
    folder.delete("a.md")
    assert folder.names() == ["b.md"]
    with pytest.raises(Terminal, match=r"reading .*/a\.md"):
        folder.read("a.md")


def test_killed_write_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while it is written leaves the old text, and no file more in the list."""
    folder = Folder(str(tmp_path), {})
    folder.write("a.md", "old")

    def killed(files: Any, path: str, text: str) -> None:
        with files.open_output_stream(path) as stream:
            stream.write(text[:2].encode())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("frazil.iceberg.catalog.catalog._put", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write("a.md", "new")

    assert (folder.names(), folder.read("a.md")) == (["a.md"], "old")


def test_location_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A file in the way, or a kind of storage that there is not: the message says where."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Retryable, match=r"writing .*/file/below/a\.md"):
        Folder(f"{tmp_path}/file/below", {}).write("a.md", "x")
    with pytest.raises(Terminal, match=r"listing ftp://server/x"):
        Folder("ftp://server/x", {}).names()


def test_secret_of_the_storage_is_not_shown() -> None:
    """File-io properties hold keys; neither the folder nor its errors repeat them."""
    assert "hush" not in repr(Folder("s3://bucket/x", {"s3.secret-access-key": "hush"}))
