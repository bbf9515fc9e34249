"""Where the tables of a decided batch are: its manifest says so, whatever the pipeline file names by now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from frazil.batch.manifest import Manifest
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, CLOSING_KEY, DONE_KEY, MANIFEST_KEY, Held, RolledBack, lookup, mark_of
from frazil.iceberg.pipeline_lake import PipelineLake
from frazil.iceberg.table import Table, read_text
from frazil.pipeline.model import Pipeline


def lake_of_batch(lake: PipelineLake, manifest: Manifest) -> PipelineLake:
    """The lake, with the tables of a decided batch where it was decided that they are."""
    return lake.decided({part.table: (part.catalog, part.branch) for part in manifest.parts})


def lake_of_last(lake: PipelineLake, pipeline: Pipeline) -> PipelineLake | None:
    """The lake as the last decided batch has it.

    Returns:
        The lake; None if that batch is finished, or can't be read, or if the pipeline file has its tables where they were.

    Raises:
        Retryable: A catalog can't be reached.
    """
    try:
        manifest = _unfinished(lake, pipeline)
    except Terminal:  # its manifest, or its branch, is gone: who needs it says so
        return None
    if manifest is None:
        return None
    moved = any(
        (part.catalog, part.branch) != (lake.catalog_of(part.table).name, lake.branch_of(part.table))
        for part in manifest.parts
        if part.catalog is not None and part.table in pipeline.tables
    )
    return lake_of_batch(lake, manifest) if moved else None


def _unfinished(lake: PipelineLake, pipeline: Pipeline) -> Manifest | None:
    """The manifest of the last decided batch, if the ledger does not know it."""
    ledger = lake.find_table(pipeline.ledger_table)
    closing = None if ledger is None else ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name))
    if ledger is None or closing is None:
        return None
    table = lake.as_landed(closing)
    last = None if table is None else lookup(table.metadata, BATCH_KEY.format(pipeline.name), closing)
    done = lookup(ledger.metadata, DONE_KEY.format(pipeline.name), pipeline.ledger_table)
    return None if table is None or mark_of(last) == mark_of(done) else _manifest(table, last)


def last_batches(lake: PipelineLake, pipeline: Pipeline) -> Iterator[Manifest]:
    """The last decided batch, then the last finished one, as far as their manifests can be found.

    Raises:
        Retryable: A catalog can't be reached.
    """
    ledger = lake.find_table(pipeline.ledger_table)
    if ledger is None:
        return
    closing = ledger.metadata.properties.get(CLOSING_KEY.format(pipeline.name))
    with suppress(Terminal):  # a branch or a manifest that is gone: who needs it says so
        table = None if closing is None else lake.as_landed(closing)
        if table is not None and closing is not None:
            yield from _told_by(table, BATCH_KEY.format(pipeline.name), closing)
    with suppress(Terminal):
        yield from _told_by(ledger, DONE_KEY.format(pipeline.name), pipeline.ledger_table)


def _told_by(table: Table, key: str, name: str) -> Iterator[Manifest]:
    if (found := _manifest(table, lookup(table.metadata, key, name))) is not None:
        yield found


def _manifest(table: Table, last: Held | RolledBack | None) -> Manifest | None:
    """The manifest that what a table holds last names, if it is there and names one."""
    path = last.summary.get(MANIFEST_KEY) if isinstance(last, Held) else None
    return None if path is None else Manifest.from_json(read_text(table, path))
