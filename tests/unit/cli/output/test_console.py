"""What commands write where nobody watches: plain text, whole names, JSON that parses."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.table import Table

from frazil.batch.changes import ChangeCounts
from frazil.batch.facts import UnknownFields
from frazil.batch.schema_change import SchemaChange, listed
from frazil.cli.demo.run import _sample_table, print_maintenance
from frazil.cli.output import console
from frazil.cli.output.console import Progress
from frazil.cli.reports.history import print_batches
from frazil.cli.reports.sql import show_result
from frazil.iceberg.schema.evolution import change_lines
from frazil.maintain.run import Figures, Maintained, StepOutcome, TableOutcome
from frazil.report.history import BatchHistory

ESCAPE = "\x1b"


def batch(partitions: int = 6, offset: int = 123_456_789) -> BatchHistory:
    return BatchHistory(
        n=1234,
        kind="ingest",
        batch="b",
        run="r",
        committed_at=datetime(2026, 11, 21, 4, 5, 6, tzinfo=UTC),
        snapshot_id=8_485_882_011_554_631_131,
        read=1_000_000,
        written=999_000,
        dead=1_000,
        filtered=0,
        dead_codes={},
        seconds=12.34,
        phases={},
        position={"orders": {"from": [0] * partitions, "next": [offset] * partitions}},
        files=1,
        bytes=1,
    )


@pytest.mark.parametrize("width", [80, 100, 120])
def test_snapshot_ids_and_offsets_are_never_broken_over_lines(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot id that is cut can't be used to travel to it."""
    monkeypatch.setenv("COLUMNS", str(width))

    print_batches([batch()])

    text = capsys.readouterr().out
    assert "8485882011554631131" in text
    assert text.count("0..123456789") == 6
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width


def test_changes_of_a_table_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """What a batch changed stands below it, table by table."""
    changes = (SchemaChange(("at", "zip"), "add", "string"), SchemaChange(("id",), "widen", "long"))

    merged = {"shop.now": ChangeCounts(1_200, 3), "shop.then": ChangeCounts(0, 0, 1)}
    print_batches([replace(batch(), schema_changes={"shop.orders": changes}, changes=merged)])

    output = " ".join(capsys.readouterr().out.split())
    assert "changed shop.orders: add at.zip string, widen id long" in output
    assert (
        "merged into shop.now: 1,200 upserts, 3 deletes merged into shop.then: 0 upserts, 0 deletes, 1 truncates"
        in output
    )


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_sample_fits_the_page_and_cuts_only_long_values(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Order ids have 39 digits; a date beside them must not lose its end."""
    monkeypatch.setenv("COLUMNS", str(width))
    row = {"order_id": "7" * 39, "store_id": 100, "meats": "m" * 40, "date": "2026-11-21 05:02:33"}

    console.out().print(_sample_table(pa.table({name: [value] for name, value in row.items()}), width))

    header, cells = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header == list(row)
    assert cells[-2:] == ["2026-11-21", "05:02:33"]
    assert cells[1] == "100"
    assert ("…" in cells[0]) == (width < 120)


def test_piped_output_has_no_control_codes_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CI systems force colours; a log file keeps the codes for ever."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    console.headline("title")
    console.show_failure("needs a person", "message", "step")
    with Progress() as progress:
        progress.doing("starting")
        progress.done("started")

    written = capsys.readouterr()
    assert "title" in written.out
    assert "started" in written.err
    assert ESCAPE not in written.out + written.err
    assert "\r" not in written.out + written.err


def test_piped_progress_prints_changes_only(capsys: pytest.CaptureFixture[str]) -> None:
    """A wait of a minute is one line in a log, not sixty."""
    with Progress() as progress:
        for _ in range(60):
            progress.doing("waiting for the schedule")
        for count in range(1000):
            progress.counting(f"{count} records")
        progress.done("landed")

    lines = capsys.readouterr().err.splitlines()
    assert [line.split("s  ", 1)[1] for line in lines] == ["waiting for the schedule", "landed"]


def test_json_is_one_line_whatever_a_row_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """Dead letters hold bytes, tables hold decimals and times, columns hold NaN."""
    row = {
        "text": "a\nb",
        "utf8": "café".encode(),
        "bytes": b"\xff\x00",
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "amount": Decimal("1.50"),
        "nan": float("nan"),
        "list": [(1, 2)],
        "none": None,
        "yes": True,
    }

    console.print_json([row])

    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == [
        {
            "text": "a\nb",
            "utf8": "café",
            "bytes": "base64:/wA=",
            "at": "2026-01-02T00:00:00+00:00",
            "day": "2026-01-02",
            "amount": "1.50",
            "nan": "nan",
            "list": [[1, 2]],
            "none": None,
            "yes": True,
        }
    ]


def test_a_result_too_wide_for_the_page_is_shown_record_by_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns squeezed to three letters each would show nothing."""
    monkeypatch.setenv("COLUMNS", "80")
    show_result(pa.table({"narrow": [1], "wide": ["x" * 100]}))

    out = capsys.readouterr().out
    assert "x" * 100 in out
    assert "-- 1\nnarrow  1\n" in out


def test_a_record_of_several_lines_stays_one_line_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Values of the demo are JSON over several lines."""
    show_result(pa.table({"value": [b'{\n"a": 1}', None]}))

    assert '{\\n"a": 1}' in capsys.readouterr().out


def test_a_result_without_rows_still_names_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing found is an answer."""
    show_result(pa.table({"code": pa.array([], pa.string())}))

    out = capsys.readouterr().out
    assert "code" in out
    assert "0 rows" in out


def test_table_wider_than_the_page_keeps_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    """However narrow the page, each row is one line with all of its cells."""
    table = Table("topic", "what happens")
    table.add_row("t" * 130, f"{'1' * 60} come again")

    console.show_table(table)

    (line,) = [line for line in capsys.readouterr().out.splitlines() if "come again" in line]
    assert ("t" * 130 in line, "1" * 60 in line) == (True, True)


def test_demo_ends_with_a_summary_of_maintenance(capsys: pytest.CaptureFixture[str]) -> None:
    """Health, files and snapshots before and after, and each step; a table without one is named too."""
    before, after = Figures(88, 6, 9_000, 6, 0, 2, 2), Figures(100, 1, 3_000, 0, 0, 1, 3)
    steps = (StepOutcome("compaction", "done", "6 small files", 3.5, {"rewritten_data_files_count": 6}),)
    outcome = TableOutcome("rpc.pizzas", "88", before, after, steps)

    print_maintenance(Maintained(datetime(2026, 11, 21, tzinfo=UTC), "pizzas", outcome))
    print_maintenance(None)

    assert capsys.readouterr().out.splitlines() == [
        "health 88 -> 100, 6 -> 1 files, 9,000 -> 3,000 bytes, 2 -> 3 snapshots",
        "compaction done in 3.5 s: 6 small files; rewritten data files 6",
        "no maintenance of the table is recorded",
    ]


def test_names_chosen_by_producers_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines, tables and failures show control characters as escapes, and square brackets as they are."""
    hostile = "a\x1b[2J\x9b31m\u202e[red]b[/red]\x07"
    table = Table("name")
    table.add_row(hostile)

    console.say(f"field {hostile}")
    console.show_table(table)
    show_result(pa.table({hostile: [hostile]}))
    print_batches([replace(batch(), unknown_fields=UnknownFields(1, {hostile: 1}))])
    console.show_failure("failed", hostile, hostile)
    with Progress() as progress:
        progress.done(hostile)

    written = capsys.readouterr()
    for text in (written.out, written.err):
        assert all(character.isprintable() or character == "\n" for character in text)
        assert "\\x1b[2J\\x9b31m\\u202e[red]b[/red]" in text


def test_many_changes_of_a_table_are_shown_in_a_bounded_line() -> None:
    """Records decide how many columns come, and how long the type of a struct is."""
    changes = [SchemaChange((f"field{number}",), "add", "struct<" + "a" * 5_000) for number in range(500)]
    assert len(listed(changes)) < 3_000
    assert listed(changes).endswith(", and 490 more")
    assert all(len(line) < 300 for line in change_lines(changes))


def test_json_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON escapes what is below a blank only: U+009B begins a command of a terminal as well, and U+2028 ends a line."""
    row = {"a\x9b31m": "\x1b[2J\x7f\x85\u2028\u202e\U000e0001 café"}

    console.print_json(row)

    out = capsys.readouterr().out
    assert out.removesuffix("\n").isprintable()
    assert "café" in out
    assert json.loads(out) == row
