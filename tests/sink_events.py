"""What the Iceberg sink left in its control topic: kept from a run of Apache's sink 1.10.1 on Kafka Connect 3.9.1.

Connector `orders-sink`, control topic `control-iceberg`, table `shop.orders`. In `committed` everything is in the table:
files were announced at offset 2, the snapshot names `{"0":4}`, the coordinator's group was at 12. In `pending` two tasks
announced files at 2 and 4, their source offsets were committed, and no commit to the table succeeded.
"""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

_RECORDED: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

SUMMARY: dict[str, str] = _RECORDED["committed"]["summary"]
"""What the sink wrote into the summary of the snapshot with the files of `committed`."""

COORDINATOR: int = _RECORDED["committed"]["coordinator"]
"""Offset of the coordinator's group then."""


def sink_events(which: str) -> list[tuple[int, bytes]]:
    """Offsets and values of `committed` or `pending`, without the transaction markers between them."""
    return [(offset, b64decode(value)) for offset, value in _RECORDED[which]["events"]]
