"""What a pipeline file says of its dead letters, as a batch's audit and its report take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from frazil.batch.audit import Tolerance
from frazil.batch.facts import Staged
from frazil.pipeline.model import Pipeline


def tolerance_of(pipeline: Pipeline) -> Tolerance:
    """How many dead letters a batch may have, and whether one with more is refused."""
    limits, on_exceed = pipeline.dead_letters.limits, pipeline.dead_letters.on_exceed
    return Tolerance(limits.max_rate, limits.min_records, limits.max_count, fails=on_exceed == "fail")


MANY_FILES: Final = 1_000
"""Files of one table in one batch from which on a run says that its partitions make them."""


def scattered(staged: Staged) -> Iterator[str]:
    """A line for each table that a batch has many small files of: each partition value takes milliseconds and a file."""
    for table, files in staged.files.items():
        if len(files) > MANY_FILES:
            yield (
                f"{len(files):,} files of table {table} for {staged.rows(table):,} rows: partition by values that repeat, such as"
                " day(column) or bucket(16, column)"
            )


def named_letters(staged: Staged) -> Iterator[str]:
    """A line for each dead letter that staging names, then one for all others. Nothing of a record is in them.

    These are letters: a record that does not fit two tables has two. A tolerance counts records.
    """
    for of in staged.named:
        table = "" if of.destination is None else f" of table {of.destination}"
        yield f"dead letter {of.code}{table}: topic {of.topic}, partition {of.partition}, offset {of.offset}"
    more = staged.letters - len(staged.named)
    if staged.named and more > 0:
        yield f"and {more:,} more dead letters"
