"""Tells Kafka Connect of a connector, or of its changed configuration: `register.py URL FILE.json`."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.request import Request, urlopen

PATIENCE_SECONDS = 30


def main(url: str, file: str) -> None:
    """PUT the file, whose name is the connector's."""
    body = Path(file)
    headers = {"Content-Type": "application/json"}
    address = f"{url}/connectors/{body.stem}/config"
    request = Request(address, body.read_bytes(), headers, method="PUT")  # noqa: S310 - the stack's own
    with urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
        print(f"connector {body.stem}: {answer.status} {answer.reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
