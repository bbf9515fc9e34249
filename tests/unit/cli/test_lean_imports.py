"""What a process of the command leaves unloaded."""

from __future__ import annotations

import os
import subprocess
import sys

from frazil.local.home import project_root

_PROGRAM = """
import sys
from frazil.cli.lean_imports import leave_out
leave_out("pandas")
import pyarrow.dataset as dataset
print("pandas" in sys.modules, dataset.field("a") == 1)
"""


def test_arrow_works_without_the_library_that_is_left_out() -> None:
    """PyArrow takes pandas for not installed; a version that insists on it would break every command, so it shows here."""
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}

    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "False (a == 1)\n"
