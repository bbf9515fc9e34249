"""Which values the block parser is spared: one that it stumbles over costs the block."""

from __future__ import annotations

import pyarrow as pa

from frazil.records.json.screen import Screen


def test_two_documents_in_many_values_fail_the_block() -> None:
    """They have as many brackets as a deeply nested value, and are told from it by what stands between them."""
    good, deep = '{"a":1,"s":{"b":2}}', '{"a":1,"x":[[[[1]]]],"s":{"b":2}}'
    screen = Screen([pa.field("a", pa.int64()), pa.field("s", pa.struct([("b", pa.int64())]))])

    assert screen.plain(pa.array([good, good + good, f"{good}\n{good}", deep])).to_pylist() == [
        True,
        False,
        False,
        True,
    ]
