"""The lock file of the jars: what each artifact set holds, with checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from frazil.errors import Terminal

LOCK_FILE = "jars.lock.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One pinned jar or archive.

    Attributes:
        coordinates: `organisation:module:revision`, `:classifier` if it has one, `@extension` if it is no jar.
        file: Name in the set's folder.
        size: Bytes.
        sha256: Checksum as 64 hex digits.
    """

    coordinates: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Lock:
    """The pinned artifact sets by name."""

    sets: Mapping[str, tuple[Artifact, ...]]

    def artifacts(self, name: str) -> tuple[Artifact, ...]:
        """Return the artifacts of a set.

        Raises:
            Terminal: There is no such set.
        """
        if name not in self.sets:
            raise Terminal(f"no artifact set {name!r} in {LOCK_FILE}; it has {', '.join(sorted(self.sets))}")
        return self.sets[name]

    def digest(self, name: str) -> str:
        """Return the SHA-256 of one set's entries; other sets may change without it."""
        return hashlib.sha256(_dump([asdict(artifact) for artifact in self.artifacts(name)]).encode()).hexdigest()


def read_lock() -> Lock:
    """Read the lock file that ships with this package."""
    return parse_lock(files(__package__).joinpath(LOCK_FILE).read_text(encoding="utf-8"))


def parse_lock(text: str) -> Lock:
    """Read a lock from its JSON text.

    Raises:
        Terminal: The text is not a lock of a known format.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise Terminal(f"{LOCK_FILE}: expected format {FORMAT}, found {content['format']!r}")
        sets = {name: tuple(Artifact(**entry) for entry in entries) for name, entries in content["sets"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Terminal(f"{LOCK_FILE} can't be read: {e!r}", next_step="restore it from version control") from e
    return Lock(sets)


def render_lock(lock: Lock) -> str:
    """Return the lock's JSON text: sorted, one value per line, for small diffs."""
    sets = {name: [asdict(a) for a in sorted(artifacts)] for name, artifacts in sorted(lock.sets.items())}
    return _dump({"format": FORMAT, "sets": sets}) + "\n"


def first_mismatch(folder: Path, artifacts: Iterable[Artifact]) -> str | None:
    """Return what is wrong with the first file that is not as locked; None when all fit."""
    for artifact in artifacts:
        path = folder / artifact.file
        found = sha256(path) if path.is_file() else "no such file"
        if found != artifact.sha256:
            return f"{path} ({artifact.coordinates}): expected sha256 {artifact.sha256}, found {found}"
    return None


def has_sizes(folder: Path, artifacts: Iterable[Artifact]) -> bool:
    """Return whether every file is there with its locked size; a few milliseconds for a set."""
    paths = ((folder / artifact.file, artifact.size) for artifact in artifacts)
    return all(path.is_file() and path.stat().st_size == size for path, size in paths)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dump(content: Any) -> str:  # JSON values
    return json.dumps(content, indent=2)
