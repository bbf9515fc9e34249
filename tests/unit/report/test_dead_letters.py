"""Dead letters read from a table: only what is asked for, of tables old and new."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from frazil.batch.changes import LetterChoice, Place
from frazil.iceberg.ledger.dead_letters import LetterQuestion, State, letter_files
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, UNPARTITIONED
from frazil.project import Project
from frazil.report.dead_letters import LISTED, find_letters, letter_of, list_letters
from frazil.report.dead_letters_summary import LetterReport, summarize
from tests.unit.report.letters import NAME, NOW, letter

ANY = LetterChoice()

Append = Callable[..., None]


def offsets(project: Project, choice: LetterChoice = ANY, state: Any = "open", limit: int | None = None) -> list[int]:
    listing = list_letters(project, project.pipeline("orders"), choice, state, limit)
    assert listing is not None
    return [letter.offset for letter in listing.letters]


def report(project: Project, days: int = 1) -> LetterReport:
    return summarize(project, project.pipeline("orders"), NOW - timedelta(days=days), NOW)


def test_pipeline_that_never_ran_has_no_dead_letters(project: Project) -> None:
    """No table is an answer of its own, and looking makes none."""
    assert list_letters(project, project.pipeline("orders"), ANY, "all", 5) is None
    assert find_letters(project, project.pipeline("orders"), Place("orders", 0, 0)) == ()
    assert report(project).table_total is None
    assert project.lake("lake").tables() == []


def test_empty_table_has_no_dead_letters(project: Project, append: Append) -> None:
    """Made by the first run, without a snapshot."""
    project.lake("lake").create_table(NAME, DEAD_LETTER_SCHEMA, UNPARTITIONED, {})

    assert offsets(project) == []
    assert (report(project).table_total, report(project).groups) == (0, ())


@pytest.mark.parametrize(
    ("choice", "state", "expected"),
    [
        (ANY, "open", [4, 0, 1]),
        (ANY, "landed", [2, 3]),
        (ANY, "all", [4, 0, 1, 2, 3]),
        (LetterChoice(codes=frozenset({"INVALID_JSON"})), "open", [1]),
        (LetterChoice(topics=frozenset({"other"})), "open", [4]),
        (LetterChoice(since=NOW - timedelta(days=1)), "open", [4, 0]),
        (LetterChoice(until=NOW - timedelta(days=1)), "all", [1]),
        (LetterChoice(since=NOW - timedelta(days=2), until=NOW - timedelta(days=2)), "all", []),
        (LetterChoice(places=frozenset({Place("orders", 0, 1), Place("orders", 0, 2)})), "all", [1, 2]),
        (LetterChoice(codes=frozenset({"NULL_VALUE"})), "all", []),
    ],
)
def test_list_has_exactly_the_selected_dead_letters(
    project: Project, append: Append, choice: LetterChoice, state: str, expected: list[int]
) -> None:
    """Code, topic, time, record and whether it is landed; newest batch first, then in order."""
    append(
        letter(1, code="INVALID_JSON", timestamp=NOW - timedelta(days=2)),
        letter(0),
        letter(2, landed_batch=7),
        letter(3, landed_batch=7, timestamp=None),
    )
    append(letter(4, topic="other", _frazil_batch=2))

    assert offsets(project, choice, state) == expected


def test_short_list_reads_only_the_newest_files(
    project: Project, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten letters of the newest batches are in the newest file; the others stay closed."""
    for batch in range(1, 6):
        append(*(letter(batch * 10 + n, _frazil_batch=batch) for n in range(3)))
    opened: list[str] = []
    genuine = PyArrowFile.open
    monkeypatch.setattr(
        PyArrowFile, "open", lambda file, *a, **kw: opened.append(file.location) or genuine(file, *a, **kw)
    )

    listing = list_letters(project, project.pipeline("orders"), ANY, "open", 2)

    assert listing is not None
    assert [letter.offset for letter in listing.letters] == [50, 51]
    assert listing.has_more
    assert len({path for path in opened if path.endswith(".parquet")}) <= 1


def test_record_is_shown_with_all_its_bytes(project: Project, append: Append) -> None:
    """Key, value and headers as they came; of a topic that was recreated there are several."""
    append(letter(0, value=b"\xff\x00", key=None, headers=None))
    append(letter(0, _frazil_batch=4, stage="decode"))

    newer, older = find_letters(project, project.pipeline("orders"), Place("orders", 0, 0))

    assert (newer.letter.batch, newer.stage, newer.headers) == (4, "decode", (("h", b"v"),))
    assert (older.letter.batch, older.key, older.value, older.headers) == (1, None, b"\xff\x00", ())


ORDERS_AT_1 = frozenset({(Place("orders", 0, 1), "shop.orders")})


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (LetterChoice(tables=frozenset({"shop.orders"})), [(0, "shop.orders"), (1, "shop.orders")]),
        (LetterChoice(of_tables=ORDERS_AT_1), [(1, "shop.orders")]),
        (
            LetterChoice(places=frozenset({Place("orders", 0, 1)})),
            [(1, None), (1, "shop.audit"), (1, "shop.orders")],
        ),
        (LetterChoice(of_tables=ORDERS_AT_1, tables=frozenset({"shop.audit"})), []),
    ],
)
def test_only_dead_letters_of_the_named_table_are_listed(
    project: Project, append: Append, choice: LetterChoice, expected: list[tuple[int, str | None]]
) -> None:
    """A record may have a letter per table: each is told with its table, and only what was named is listed."""
    append(letter(0, destination="shop.orders"), letter(1, destination="shop.orders"))
    append(letter(1, destination="shop.audit"), letter(1))

    listing = list_letters(project, project.pipeline("orders"), choice, "open", None)

    assert listing is not None
    assert sorted(((letter.offset, letter.destination) for letter in listing.letters), key=str) == sorted(
        expected, key=str
    )


def test_dead_letters_of_two_tables_are_two_groups(project: Project, append: Append) -> None:
    """Each table is counted on its own, with samples of its own; whole records beside them."""
    append(letter(0, destination="a.b"), letter(1, destination="a.b"), letter(0, destination="a.c"), letter(2))

    letter_report = report(project)

    assert [
        (group.destination, group.count, [one.offset for one in group.samples]) for group in letter_report.groups
    ] == [
        ("a.b", 2, [0, 1]),
        (None, 1, [2]),
        ("a.c", 1, [0]),
    ]
    assert letter_report.has_tables


@pytest.mark.parametrize(("state", "expected"), [("open", [0, 1]), ("landed", [2]), ("all", [0, 1, 2])])
def test_replay_that_was_rolled_back_leaves_its_dead_letters_open(
    project: Project, append: Append, state: State, expected: list[int]
) -> None:
    """The closing table was rolled back past batch 7: what it landed is no row any more, so the letter is open."""
    append(letter(0), letter(1, landed_batch=7), letter(2, landed_batch=9))
    table = project.lake("lake").load_table(NAME)
    question = LetterQuestion(state=state, undone=frozenset({7, 8}))

    rows = [
        row
        for file in letter_files(table, NAME, question, LISTED)
        for batch in file.batches
        for row in batch.to_pylist()
    ]

    assert [row["offset"] for row in rows] == expected
    assert letter_of(letter(1, landed_batch=7), question.undone).landed_batch is None


def test_trend_compares_this_period_with_the_one_before(project: Project, append: Append) -> None:
    """This period against the one before, by code and topic; what is older still counts nowhere."""
    day = timedelta(days=1)
    append(*(letter(n) for n in range(3)), letter(3, landed_batch=9), letter(4, timestamp=None))
    append(letter(10, timestamp=NOW - day * 1.5), letter(11, timestamp=NOW - day * 1.9))
    append(letter(20, code="TOO_DEEP", timestamp=NOW - day * 1.5), letter(21, code="NULL_VALUE"))
    append(letter(30, timestamp=NOW - day * 2.1))

    letter_report = report(project)

    facts = [(group.code, group.count, group.open, group.before, group.trend) for group in letter_report.groups]
    assert facts == [
        ("WRONG_TYPE", 5, 4, 2, "+150%"),
        ("NULL_VALUE", 1, 1, 0, "new"),
        ("TOO_DEEP", 0, 0, 1, "gone"),
    ]
    assert (letter_report.count, letter_report.open, letter_report.before, letter_report.table_total) == (6, 5, 3, 10)
    assert [len(group.samples) for group in letter_report.groups] == [3, 1, 0]
    assert letter_report.groups[0].samples[0].path == "id"


def test_pages_of_dead_letters_join_without_a_gap_or_repeat(project: Project, append: Append):
    """However batches and files lie: the mark is a place in the order, so letters that came meanwhile move nothing."""
    append(
        letter(5, _frazil_batch=2), letter(1, _frazil_batch=2, destination="shop.orders"), letter(1, _frazil_batch=2)
    )
    append(letter(0), letter(2), letter(3, _frazil_batch=None))
    append(letter(4, partition=1, _frazil_batch=2), letter(9, _frazil_batch=3))
    orders = project.pipeline("orders")
    whole = list_letters(project, orders, ANY, "all", None)
    assert whole is not None
    pages, after = [], None
    for _ in range(len(whole.letters)):
        page = list_letters(project, orders, ANY, "all", 1, after)
        assert page is not None
        pages += page.letters
        after = page.letters[-1].mark
        append(letter(100 + len(pages), _frazil_batch=50))

    assert pages == list(whole.letters)
    assert list_letters(project, orders, ANY, "all", 5, after).letters == ()
