"""The folder of pipeline files."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.pipeline.load import load_pipelines
from frazil.pipeline.references import References


def test_mistyped_folder_looks_like_a_project_without_pipelines(tmp_path: Path) -> None:
    """A folder that is not there is refused: else a typo or a failed mount would quietly stop all ingestion."""
    with pytest.raises(Terminal, match=r"is not there: .*nowhere"):
        load_pipelines(tmp_path / "nowhere", References({}, {}))
