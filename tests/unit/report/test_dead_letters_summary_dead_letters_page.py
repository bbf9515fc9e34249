"""The report as Markdown and HTML: what records say is shown, and never runs or breaks the page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from frazil.report.dead_letters import DeadLetter
from frazil.report.dead_letters_summary import LetterGroup, LetterReport, html, markdown, visible

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOSTILE = '<script>alert("1")</script>`|\n# owned\x1b[31m\u202e'


def report(*groups: LetterGroup, letters_in_table: int | None = 9) -> LetterReport:
    return LetterReport(
        "orders", "team <b>|*x*", "shop.letters", NOW - timedelta(days=1), NOW, groups, letters_in_table
    )


def group(text: str = "id: expected a long", count: int = 2) -> LetterGroup:
    sample = DeadLetter(text, 0, 7, NOW, "WRONG_TYPE", text, text, 1, 1, None)
    return LetterGroup("WRONG_TYPE", text, count, 1, 1, (sample,))


class Tags(HTMLParser):
    """Collects tags, and requires that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag begins."""
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """A tag ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text between tags."""
        self.text += data


def test_page_escapes_messages() -> None:
    """Topics and messages come from producers; the page shows them letter by letter."""
    page = html(report(group(HOSTILE)))
    tags = Tags()
    tags.feed(page)

    assert tags.open == []
    assert "script" not in tags.seen
    assert '<script>alert("1")</script>' in tags.text
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize(
    ("count", "before", "text"),
    [
        (3, 0, "new"),
        (0, 3, "gone"),
        (3, 3, "same"),
        (1, 900, "-99%"),
        (12_345, 1, "+1,234,400%"),
        (1_001, 1_000, "same"),
    ],
)
def test_trend_rounds_percents_down(count: int, before: int, text: str) -> None:
    """Percents are whole and never rounded up."""
    assert LetterGroup("WRONG_TYPE", "orders", count, count, before, ()).trend == text


def test_each_line_names_its_table() -> None:
    """Where letters are of one table, each line says of which, and whole records are told apart; else there is no column."""
    sample = DeadLetter("orders", 0, 7, NOW, "WRONG_TYPE", "id", "id: x", 1, 1, None, "shop.refunds")
    of_table = LetterGroup("WRONG_TYPE", "orders", 2, 1, 1, (sample,), "shop.refunds")
    several = report(of_table, group("orders"))

    lines = markdown(several).splitlines()

    assert "| `WRONG_TYPE` | `orders` | `shop.refunds` | 2 | 1 | 1 | +100% |" in lines
    assert "| `WRONG_TYPE` | `orders` | whole record | 2 | 1 | 1 | +100% |" in lines
    assert "## `WRONG_TYPE` in `orders` of table `shop.refunds`" in lines
    page = html(several)
    assert all(text in page for text in ("<th>table</th>", "whole record", "of table shop.refunds"))
    assert "table" not in next(line for line in markdown(report(group("orders"))).splitlines() if "| code" in line)
    assert "<th>table</th>" not in html(report(group("orders")))


def test_advice_is_shown_with_code_spans() -> None:
    """What a code says is written for Markdown; the page has spans for it, and escapes the rest."""
    sample = DeadLetter("orders", 0, 7, NOW, "EMPTY_VALUE", None, "nothing", 1, 1, None)
    page = html(report(LetterGroup("EMPTY_VALUE", "orders", 1, 1, 0, (sample,))))

    assert "<code>{}</code>" in page
    assert "`" not in page


def test_page_is_one_file_in_both_colour_schemes() -> None:
    """One file without scripts, in the colours of the reader's system."""
    page = html(report(group()))

    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"https?://|url\(|@import", page)
    assert all(text in page for text in ("WRONG_TYPE", "+100%", "team &lt;b&gt;", "Correct the producer"))


def test_messages_are_escaped_in_markdown() -> None:
    """Every line is one that the report itself begins, whatever a message holds; tables keep their cells."""
    lines = markdown(report(group(HOSTILE))).splitlines()

    assert all(re.match(r"(#|\||- |[A-Z0-9]|$)", line) for line in lines)
    assert [line for line in lines if line.startswith("# ")] == ["# Dead letters of orders"]
    (row,) = (line for line in lines if line.startswith("| `WRONG_TYPE`"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert "``" in row
    assert r"team \<b\>\|\*x\*" in lines[2]


@pytest.mark.parametrize(
    ("letter_report", "text"),
    [
        (report(letters_in_table=None), "it never ran"),
        (report(letters_in_table=0), "and the table holds none."),
        (report(letters_in_table=9), "the table holds 9 dead letters of any time."),
        (report(group(count=1)), "1 dead letter, 1 of them open; 1 in the period before (9 in the table)."),
    ],
)
def test_page_without_dead_letters_says_so(letter_report: LetterReport, text: str) -> None:
    """An empty table would leave open whether it works."""
    assert text in markdown(letter_report)
    assert text in html(letter_report)


def test_text_of_a_record_is_escaped_in_a_terminal() -> None:
    """Control characters and turned text are shown as escapes, other scripts as they are."""
    assert visible("ünï\x1b[2J\n\u202e\x9b") == "ünï\\x1b[2J\\n\\u202e\\x9b"
