"""Names and texts as Spark's SQL has them."""

from __future__ import annotations


def quoted(*names: str) -> str:
    """A name of one or several parts."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def text(value: str) -> str:
    """A literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
