"""What a note of a dead-letter topic says of a batch: a letter counted wrongly is sent twice, or never."""

from __future__ import annotations

import pytest

from frazil.batch.letter_topic import SentNote, letters_sent, producer_name
from frazil.batch.position import BatchMark
from frazil.errors import Terminal

MARK = BatchMark(7, "this", 0)
TOTAL = 10


@pytest.mark.parametrize(
    ("note", "planned", "found", "sent"),
    [
        pytest.param(SentNote("t"), "t", "t", 0, id="none sent so far"),
        pytest.param(SentNote("t", 6, "earlier", 4), "t", "t", 0, id="an earlier batch"),
        pytest.param(SentNote("t", 7, "this", 4), "t", "t", 4, id="some"),
        pytest.param(SentNote("t", 7, "this", 10), "t", "t", 10, id="all"),
        pytest.param(SentNote("t", 8, "later", 1), "t", "t", 10, id="a later batch"),
        pytest.param(SentNote("t", 7, "other", 10), "t", "t", 0, id="a batch of this number that was taken back"),
        pytest.param(None, "t", "t", None, id="forgotten"),
        pytest.param(SentNote("old", 7, "this", 10), "t", "t", None, id="forgotten, and an old one is left"),
        pytest.param(None, "t", "new", 0, id="made anew"),
        pytest.param(SentNote("t", 7, "this", 10), "t", "new", 0, id="made anew, its note is left"),
        pytest.param(SentNote("new", 7, "this", 4), "t", "new", 4, id="made anew, some sent"),
        pytest.param(SentNote("new", 8, "later", 4), "t", "new", 10, id="made anew, later batch"),
        pytest.param(SentNote(None, 7, "this", 4), None, None, 4, id="no ids"),
        pytest.param(None, None, None, None, id="no ids, forgotten"),
        pytest.param(None, None, "t", None, id="brokers learned ids, forgotten"),
        pytest.param(SentNote(None, 7, "this", 4), None, "t", 4, id="brokers learned ids"),
    ],
)
def test_letters_are_counted_wrongly(
    note: SentNote | None, planned: str | None, found: str | None, sent: int | None
) -> None:
    """The note decides as long as it is of this topic; without it only a topic that is new is known to be empty."""
    assert letters_sent(note, MARK, TOTAL, planned, found) == sent


@pytest.mark.parametrize("note", [SentNote(None), SentNote("t", 7, "this", 4)])
def test_note_changes_on_its_way(note: SentNote) -> None:
    """It is read as it was written, and fits into an offset's metadata."""
    assert SentNote.from_json(note.to_json()) == note
    assert len(SentNote("x" * 22, 2**63 - 1, "b" * 36, 2**63 - 1).to_json()) < 4096


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"v":2,"topic":null}', '{"v":1}', '{"v":1,"topic":null,"x":1}'])
def test_foreign_metadata_is_taken_for_a_note(text: str) -> None:
    """Somebody else committed as this group: that says nothing of letters."""
    with pytest.raises(Terminal, match="note of a dead-letter topic"):
        SentNote.from_json(text)


def test_pipelines_of_two_projects_fence_each_other() -> None:
    """Equal names with tables of their own make different producers."""
    names = {producer_name("orders", uuid) for uuid in ("aaaaaaaa-1", "bbbbbbbb-1")}
    assert names == {"frazil-orders-dead-letters-aaaaaaaa", "frazil-orders-dead-letters-bbbbbbbb"}
