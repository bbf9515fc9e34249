"""Tables that two pipelines share: fine as long as neither could take the other's rows for its own."""

from __future__ import annotations

import json

from frazil.batch.position import Position
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, POSITION_KEY, TOPICS_KEY, mirrored
from frazil.iceberg.table import TableMetadata
from frazil.pipeline.model import Pipeline
from frazil.run.tables import Tables


def refuse_shared(pipeline: Pipeline, tables: Tables) -> None:
    """Refuse a table in which another pipeline's rows could be taken for this one's.

    Rows say topic, partition and offset, not the cluster or the pipeline: two pipelines may write one destination as
    long as no topic name is in both. A dead-letter table belongs to one pipeline.

    Raises:
        Terminal: A topic of this pipeline landed in the destination by another one, or the letters are another's.
    """
    letters = pipeline.dead_letters_table
    others = mirrored(tables.dead_letters.metadata, BATCH_KEY, letters).keys() - {pipeline.name}
    if others:
        raise Terminal(
            f"pipeline {pipeline.name}: dead-letter table {letters} has letters of pipeline {min(others)}: a replay or reset"
            " of one would take out the other's",
            next_step=f"give pipeline {pipeline.name} a dead-letter table of its own (dead_letters.table; without the key"
            " it gets one)",
        )
    for name, table in tables.destinations.items():
        refuse_same_topics(pipeline, name, table.metadata)


def refuse_same_topics(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a destination in which another pipeline landed a topic of the same name.

    Args:
        pipeline: The pipeline.
        table: Name of the destination.
        metadata: What it is now.

    Raises:
        Terminal: It did.
    """
    read = _topics_read(metadata, table)
    own = read.get(pipeline.name, frozenset())
    for other, topics in sorted(read.items()):
        shared = sorted(topic for topic in topics if topic in own or pipeline.source.reads(topic))
        if other != pipeline.name and shared:
            raise Terminal(
                f"pipeline {other} landed topic {', '.join(shared)} in table {table} already: with pipeline"
                f" {pipeline.name} every record would be there twice, and neither could tell its rows from the other's",
                next_step=f"was it renamed? Call it {other} again; otherwise give it a table of its own",
            )


def _topics_read(metadata: TableMetadata, table: str) -> dict[str, frozenset[str]]:
    """The topics that each pipeline reads into a table, whose closing table it is or which follows."""
    following = {name: frozenset(json.loads(text)) for name, text in mirrored(metadata, TOPICS_KEY, table).items()}
    closing = mirrored(metadata, POSITION_KEY, table)
    return following | {name: frozenset(Position.from_json(text).topics) for name, text in closing.items()}
