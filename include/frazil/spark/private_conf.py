"""What an engine's `conf` says may be secret: it goes to Spark by a file that only its owner reads, never by arguments of a process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from frazil.pipeline import java_properties

_SECRET_KEYS: Final = (
    "(?i)secret|passw|passphrase|token|credential|jaas|user[._-]?info|(access|account|api|private)[._-]?key"  # noqa: S105 - names
)

REDACTION: Final[Mapping[str, str]] = {
    # Spark's own default knows secret, password, token and access.key.
    "spark.redaction.regex": _SECRET_KEYS,
    "spark.sql.redaction.options.regex": f"{_SECRET_KEYS}|url",
}
"""Names of settings whose values Spark shows nowhere: not in its pages, its event log or its plans."""

_DEFAULTS: Final = "spark-defaults.conf"


def properties_text(conf: Mapping[str, str]) -> str:
    """The text of a file for `--properties-file`. It takes the place of Spark's file of defaults, so it begins with that one's."""
    return _defaults() + java_properties.write(conf)


def _defaults() -> str:
    """The text of the file that spark-submit reads if it is given none; as there, what is no UTF-8 becomes U+FFFD."""
    folder = os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf"
    try:
        return (Path(folder) / _DEFAULTS).read_text(encoding="utf-8", errors="replace") + "\n"
    except OSError:
        return ""


def _spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else Path()
