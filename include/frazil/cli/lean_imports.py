"""Keeps a library out of this process that others would load only because it is installed."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Absent(MetaPathFinder):
    """Answers for one library as if it were not installed."""

    def __init__(self, library: str) -> None:
        self.library = library

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the import system's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == self.library:
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
        return None


def leave_out(library: str) -> None:
    """Let every later import of a library fail in this process. Child processes are not concerned."""
    sys.meta_path.insert(0, _Absent(library))
