"""Tables that two pipelines share: fine as long as neither could take the other's rows for its own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from frazil.batch.position import Position
from frazil.errors import Terminal
from frazil.iceberg.holdings import BATCH_KEY, LETTERS_KEY, POSITION_KEY, TOPICS_KEY, mirrored
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
    metadata = tables.dead_letters.metadata
    owner = {metadata.properties[LETTERS_KEY]} if LETTERS_KEY in metadata.properties else set[str]()
    others = (mirrored(metadata, BATCH_KEY, letters).keys() | owner) - {pipeline.name}
    if others:
        raise Terminal(
            f"pipeline {pipeline.name}: dead-letter table {letters} is for letters of pipeline {min(others)}: a replay or reset"
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
    read = topics_landed(metadata, table)
    own, all_read = read.get(pipeline.name), frozenset[str]().union(*read.values())
    topics = frozenset(topic for topic in all_read if topic in (own or ()) or pipeline.source.reads(topic))
    rival = landed_by_another(pipeline.name, topics, metadata, table)
    if rival is not None:
        raise Terminal(
            f"{rival.said} already: with pipeline {pipeline.name} every record would be there twice, and neither could tell its"
            " rows from the other's",
            next_step=f"was it renamed? Call it {rival.pipeline} again; otherwise give it a table of its own"
            if own is None
            else rival.left_out(pipeline.name),
        )


@dataclass(frozen=True, slots=True)
class Rival:
    """Another pipeline that landed topics in a table."""

    pipeline: str
    topics: tuple[str, ...]
    table: str

    @property
    def said(self) -> str:
        """What it did."""
        return f"pipeline {self.pipeline} landed topic {', '.join(self.topics)} in table {self.table}"

    def left_out(self, pipeline: str) -> str:
        """What ends it for a pipeline that has rows of other topics there."""
        return (
            f"leave {', '.join(self.topics)} out of the source of pipeline {pipeline}: list its other topics under source.topics, in"
            " place of a pattern that matches it"
        )


def landed_by_another(pipeline: str, topics: frozenset[str], metadata: TableMetadata, table: str) -> Rival | None:
    """The first other pipeline that landed one of these topics in a table."""
    for other, read in sorted(topics_landed(metadata, table).items()):
        if other != pipeline and topics & read:
            return Rival(other, tuple(sorted(topics & read)), table)
    return None


def topics_landed(metadata: TableMetadata, table: str) -> dict[str, frozenset[str]]:
    """The topics that each pipeline lands in a table, whose closing table it is or which follows."""
    following = {name: frozenset(json.loads(text)) for name, text in mirrored(metadata, TOPICS_KEY, table).items()}
    closing = mirrored(metadata, POSITION_KEY, table)
    return following | {name: frozenset(Position.from_json(text).topics) for name, text in closing.items()}
