"""Which Frazil this is: by its code, not by its version, which a checkout does not change with every edit."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import frazil


@cache
def digest() -> str:
    """A digest of the package's code as this process found it when it first asked."""
    root = Path(frazil.__file__).parent
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(f"{file.relative_to(root)}\n".encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:16]
