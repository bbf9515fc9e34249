"""Reads capture files, which lie in a folder beside that of the pipeline files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from frazil.error_codes import CAPTURE_FILE_INVALID
from frazil.pipeline.files.folder import find_by_name, load_folder
from frazil.pipeline.files.load import ConfigError, load_model, read_yaml, refuses_by_name
from frazil.pipeline.files.references import References
from frazil.pipeline.settings.capture import KINDS, Capture

CAPTURES: Final = "captures"
"""Folder of capture files, beside the folder of pipeline files."""


@dataclass(frozen=True, slots=True)
class Captures:
    """All capture files of a folder: those that can be used, and the complaints about the others."""

    usable: Mapping[str, Capture]
    broken: tuple[ConfigError, ...] = ()

    def get(self, name: str) -> Capture:
        """The capture of that name.

        Raises:
            ConfigError: Its own file is broken.
            Terminal: There is none of that name.
        """
        return find_by_name("capture", name, self.usable, self.broken, "none; docs/capture.md says how to make one")


@partial(refuses_by_name, code=CAPTURE_FILE_INVALID)
def load_capture(path: Path, references: References) -> Capture:
    """Read one capture file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model of its kind.
    """
    kind = read_yaml(path, path.parent).get("capture")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(path, [f"capture: expected {' or '.join(KINDS)}, found {kind!r}"])
    return load_model(path, KINDS[kind], references)


def load_captures(folder: Path, references: References) -> Captures:
    """Read every ``*.yaml`` and ``*.yml`` of a folder, none where there is no folder; one broken file does not hide the others."""
    return Captures(*load_folder(folder, lambda path: load_capture(path, references), CAPTURE_FILE_INVALID))
