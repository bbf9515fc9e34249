"""The dead-letter topic: which letters of a batch are in it already, as a note says that was committed with them.

The note is the metadata of a consumer group's offset. It is written by the very transaction that sends letters, so it
says what is in the topic, and nobody else's producer of that name can commit between reading it and sending.

Written form: ``{"v":1,"topic":"<topic id>","n":7,"batch":"<batch id>","letters":12000}``
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

from frazil.batch.position import BatchMark
from frazil.errors import Terminal

VERSION: Final = 1
"""Version of the written form."""


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """The topic that gets the letters of a batch, besides the dead-letter table.

    Attributes:
        name: Its name.
        id: Its topic id before the batch was decided; None where the broker gives none.
        producer: Name of the producer and of the group that holds the note. One per pipeline and closing table: batch
            numbers never go back under it.
    """

    name: str
    id: str | None
    producer: str


@dataclass(frozen=True, slots=True)
class SentNote:
    """What a topic got last.

    Attributes:
        topic: Its topic id; None where the broker gives none.
        n: Number of the batch; -1 before the first one.
        batch: Id of the batch.
        letters: How many of its letters are in the topic, the first ones in the order of its manifest.
    """

    topic: str | None
    n: int = -1
    batch: str = ""
    letters: int = 0

    def to_json(self) -> str:
        """The written form."""
        return json.dumps({"v": VERSION} | dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SentNote:
        """Read the written form.

        Raises:
            Terminal: It is none, or of another version.
        """
        try:
            body = json.loads(text)
            if body.pop("v") == VERSION:
                return cls(**body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Terminal(f"this is no note of a dead-letter topic: {text[:200]!r}") from error
        raise Terminal(f"a note of a dead-letter topic of another version was found: {text[:200]!r}")


def producer_name(pipeline: str, closing_uuid: str) -> str:
    """Name of the producer of a pipeline's letters.

    Two projects may run a pipeline of the same name against one cluster: their tables differ.
    """
    return f"frazil-{pipeline}-dead-letters-{closing_uuid[:8]}"


def letters_sent(
    note: SentNote | None, mark: BatchMark, total: int, planned: str | None, found: str | None
) -> int | None:
    """How many letters of a decided batch are in the topic already.

    Args:
        note: What the group says; None if it says nothing.
        mark: The batch.
        total: How many letters it has.
        planned: Topic id before the batch was decided.
        found: Topic id now.

    Returns:
        The number, or None if nobody can tell: the note is gone, and the topic is the same.
    """
    is_known = note is not None and is_note_of(note, found)
    if not is_known and not _differ(planned, found):
        return None
    if note is None or not is_known:
        return 0  # the topic was made anew since: none of the batch's letters can be in it
    if note.n > mark.n:
        return total  # a later batch is only decided when this one is finished
    return note.letters if (note.n, note.batch) == (mark.n, mark.batch) else 0


def is_note_of(note: SentNote, topic: str | None) -> bool:
    """Whether a note tells of this incarnation of the topic; one that was deleted may leave its note for a while."""
    return not _differ(note.topic, topic)


def _differ(one: str | None, other: str | None) -> bool:
    """Whether two topic ids are of different incarnations; brokers without ids can't tell."""
    return None not in (one, other) and one != other
