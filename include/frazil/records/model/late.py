"""Arrow, loaded when it is first used: definitions of transforms are read wherever DAGs are parsed, and no record is there.

A module that says `from frazil.records.model.late import pa, pc` uses them as ever, but not while it is imported itself:
no constant of such a module may hold a type or an array. `tests/unit/pipeline/test_transforms.py` finds one that does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:

    class _Late:
        """Stands for a module, and keeps what was asked of it."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(import_module(self._name), attribute)
            setattr(self, attribute, value)
            return value

    np, pa, pc = _Late("numpy"), _Late("pyarrow"), _Late("pyarrow.compute")

__all__ = ["np", "pa", "pc"]
