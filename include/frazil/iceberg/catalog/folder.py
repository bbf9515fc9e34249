"""A folder of small files, on disk or in an object store, opened the way a catalog opens its tables' files."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType

from frazil.iceberg.errors import translated
from frazil.iceberg.patches.storage import StorageFileIO

_LOCAL = "local"
_UNFINISHED = "."
"""Begins the name of a file that is being written."""


class Folder:
    """Files of one folder, without those below it.

    Every method raises:
        Retryable: The storage is not available now.
        Terminal: A file is gone, permission is denied, or there is no such kind of storage.

    Its properties are those of a file-io, such as ``s3.endpoint``; they may hold secrets.
    """

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        self.properties = dict(properties)

    def __repr__(self) -> str:
        return f"Folder({self.location!r})"

    def names(self) -> list[str]:
        """Names of the files, sorted; none where there is no folder."""
        with translated(f"listing {self.location}"):
            files, path = self._opened()
            entries = files.get_file_info(FileSelector(path, allow_not_found=True))
        names = (entry.base_name for entry in entries if entry.type == FileType.File)
        return sorted(name for name in names if not name.startswith(_UNFINISHED))

    def read(self, name: str) -> str:
        """The text of a file."""
        with translated(f"reading {self.location}/{name}"):
            files, path = self._opened()
            with files.open_input_stream(f"{path}/{name}") as stream:
                return bytes(stream.read()).decode()

    def write(self, name: str, text: str) -> None:
        """Replace a file atomically: readers see the old text or the new one."""
        with translated(f"writing {self.location}/{name}"):
            files, path = self._opened()
            if files.type_name != _LOCAL:  # an object appears when it is complete
                _put(files, f"{path}/{name}", text)
                return
            files.create_dir(path)
            _put(files, f"{path}/{_UNFINISHED}{name}", text)
            files.move(f"{path}/{_UNFINISHED}{name}", f"{path}/{name}")

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is fine."""
        with translated(f"deleting {self.location}/{name}"):
            files, path = self._opened()
            if files.get_file_info(f"{path}/{name}").type == FileType.File:
                files.delete_file(f"{path}/{name}")

    def check_writable(self) -> None:
        """Write a small file, read it back, and remove it."""
        name = f"frazil-doctor-{uuid4()}"
        self.write(name, "written by frazil doctor")
        try:
            self.read(name)
        finally:
            self.delete(name)

    def _opened(self) -> tuple[FileSystem, str]:
        io = StorageFileIO(self.properties)
        scheme, netloc, path = io.parse_location(self.location, self.properties)
        return io.fs_by_scheme(scheme, netloc), path


def _put(files: FileSystem, path: str, text: str) -> None:
    with files.open_output_stream(path) as stream:
        stream.write(text.encode())
