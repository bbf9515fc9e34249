"""Prints `.env` for Compose: `.env.example`, with a random value for each secret that it leaves open."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

FERNET = "AIRFLOW_FERNET_KEY"
BYTES = 32


def filled(example: str) -> str:
    """The example with its open values filled in."""
    return "".join(_filled(line) for line in example.splitlines(keepends=True))


def _filled(line: str) -> str:
    name, equals, value = line.rstrip("\n").partition("=")
    if not equals or value or not name.isidentifier():
        return line
    # Hexadecimal: a password in an address needs no escapes then.
    key = base64.urlsafe_b64encode(secrets.token_bytes(BYTES)).decode() if name == FERNET else secrets.token_hex(BYTES)
    return f"{name}={key}\n"


if __name__ == "__main__":
    print(filled(Path(__file__).with_name(".env.example").read_text(encoding="utf-8")), end="")
