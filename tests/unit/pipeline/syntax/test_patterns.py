"""Regular expressions of pipeline files on texts that producers choose."""

from __future__ import annotations

import tracemalloc

from frazil.pipeline.syntax.patterns import expanded_name, matches

MEBIBYTE = 2**20


def test_long_texts_of_a_producer_are_not_remembered() -> None:
    """A routing field may have a value of megabytes in each of ten thousand records."""
    assert matches("a+", "a")  # imports Arrow
    tracemalloc.start()
    for number in range(20):
        assert not matches("a+", f"{number}{'a' * MEBIBYTE}")
        assert expanded_name("a+", f"{number}{'a' * MEBIBYTE}", "shop.b") is None
    remembered, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert remembered < MEBIBYTE
