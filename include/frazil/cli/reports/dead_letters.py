"""`frazil dead-letters`: lists, shows and reports records that could not become rows, and replays those that fit now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frazil.cli.operate.run import manual_request
from frazil.cli.output import console
from frazil.cli.output.console import Json, PipelineName, Progress, Reason, Yes, confirm, examples, help_text
from frazil.cli.reports.dead_letter_views import (
    Codes,
    Since,
    Tables,
    Topics,
    Until,
    choice_by_names,
    choice_of,
    instant_of,
    letter_lines,
    letter_rows,
    named_letter,
)
from frazil.error_codes import BAD_ARGUMENT, BAD_FILE, NAME_UNKNOWN

if TYPE_CHECKING:
    from frazil.batch.changes import LetterChoice
    from frazil.iceberg.ledger.dead_letters import State
    from frazil.report.dead_letters import WholeLetter
    from frazil.run.repair.dead_letter_replay import ReplayResult


def replay(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    codes: Codes = None,
    topics: Topics = None,
    tables: Tables = None,
    since: Since = None,
    until: Until = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="TOPIC/PARTITION/OFFSET[/TABLE]",
            help="Only dead letters of this record, or only the one of this table. May be repeated.",
        ),
    ] = None,
    reason: Reason,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show how many would land. Change nothing.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Decode open dead letters again with the present pipeline file, and land the records that fit now, exactly once.

    The records are read from the dead-letter table, so Kafka need not have them any more. The position does not move. Records
    that fail again stay open, with the new reason and one more attempt.
    """
    from frazil.project import Project
    from frazil.run.repair.dead_letter_replay import replay_dead_letters
    from frazil.run.state.context import RunContext

    choice = choice_by_names(choice_of(codes, topics, since, tables, until), records or ())
    project = Project.load()
    progress = Progress()
    context = RunContext.open(project, project.pipeline(pipeline), progress.done)
    request = replace(manual_request(), reason=reason)
    with progress:
        preview = replay_dead_letters(context, choice, request, dry_run=True)
    if dry_run or not preview.tried:
        _show_replay(pipeline, preview, as_json=as_json, is_preview=True)
        return
    if not as_json:
        _show_replay(pipeline, preview, as_json=False, is_preview=True)
    confirm(yes=yes)
    with progress:
        result = replay_dead_letters(context, choice, request)
    _show_replay(pipeline, result, as_json=as_json, is_preview=False)


def _show_replay(pipeline: str, result: ReplayResult, *, as_json: bool, is_preview: bool) -> None:
    if as_json:
        console.print_json({"pipeline": pipeline, "done": not is_preview} | console.json_value(result))
        return
    if result.bare:
        console.say(
            f"{result.bare:,} dead letters have no record, by dead_letters.payload: frazil replay reads the records from Kafka"
        )
    if not result.tried:
        console.say(f"{pipeline}: no open dead letter to decode again")
        return
    verb = "would become rows" if is_preview else "are rows now"
    filtered = f", {result.filtered:,} are filtered out" if result.filtered else ""
    batches = f" (batch {', '.join(map(str, result.batches))})" if result.batches else ""
    console.say(f"{pipeline}: of {result.tried:,} dead letters {result.landed:,} {verb}{filtered}{batches}")
    for code, count in sorted((result.dead_codes or {}).items()):
        console.say(f"still dead, {code}: {count:,}")


_PERIOD = "7d"
"""How far a report looks back: most producers send something in a week, and the trend stays recent."""

app = typer.Typer(
    name="dead-letters",
    help="Records that could not become rows: list them, show one, report on them, land those that fit now.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def list_letters(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    codes: Codes = None,
    topics: Topics = None,
    tables: Tables = None,
    since: Since = None,
    until: Until = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Dead letters that have not landed. This is the default.")
    ] = False,
    landed: Annotated[bool, typer.Option("--landed", help="Dead letters that a replay has landed.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Both.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Show at most this number, newest batches first. 0 shows all.")
    ] = 50,
    as_json: Json = False,
) -> None:
    """List dead letters: the record, its time, the reason, the path in its value, the attempts and the batch.

    Keys and values are not read. Long messages are cut; --json prints them whole.
    """
    from frazil.project import Project
    from frazil.report import dead_letters as report

    if is_open + landed + everything > 1:
        raise typer.BadParameter("--open, --landed and --all exclude each other")
    state: State = "landed" if landed else "all" if everything else "open"
    choice = choice_of(codes, topics, since, tables, until)
    project = Project.load()
    listing = report.list_letters(project, project.pipeline(pipeline), choice, state, limit or None)
    letters = () if listing is None else listing.letters
    if as_json:
        console.print_json(letters)
    elif listing is None:
        console.say(f"{pipeline}: the pipeline never ran, so it has no dead letters")
    elif not letters:
        console.say(f"{pipeline}: no {_described(choice, state)}")
    else:
        for line in letter_rows(letters, with_landed=state != "open"):
            console.say(line)
        if with_rows := sum(letter.row_batch is not None for letter in letters):
            console.say(f"{with_rows:,} are open although their rows exist: they don't land again")
        more = f"; there may be more: --limit {limit * 10}" if listing.has_more else ""
        console.say(f"{pipeline}: {len(letters):,} {_described(choice, state, len(letters))}{more}")


def _described(choice: LetterChoice, state: State, count: int = 0) -> str:
    """The choice of letters in words, such as `open dead letters of code WRONG_TYPE`."""
    kind = "" if state == "all" else f"{state} "
    parts = [
        f"{kind}dead letter" + ("" if count == 1 else "s"),
        f"of code {' or '.join(sorted(choice.codes))}" if choice.codes else "",
        f"in topic {' or '.join(sorted(choice.topics))}" if choice.topics else "",
        f"of table {' or '.join(sorted(choice.tables))}" if choice.tables else "",
        f"since {choice.since.isoformat(timespec='seconds')}" if choice.since else "",
        f"until {choice.until.isoformat(timespec='seconds')}" if choice.until else "",
    ]
    return " ".join(part for part in parts if part)


def show(
    pipeline: PipelineName,
    record: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC/PARTITION/OFFSET[/TABLE]",
            help="The record; with TABLE, its dead letter of this table.",
            show_default=False,
        ),
    ],
    *,
    raw: Annotated[
        Path | None,
        typer.Option(
            "--raw", metavar="FILE", help="Write the exact bytes of the value to this file.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one dead letter: its reason, what to do about it, and its headers, key and value.

    JSON is shown as JSON, other text as text, everything else as a hex dump; at most 4 KiB of each part.
    """
    from frazil.project import Project
    from frazil.report.dead_letters import find_letters

    place, table = named_letter(record)
    project = Project.load()
    letters = find_letters(project, project.pipeline(pipeline), place, table)
    if not letters:
        raise NAME_UNKNOWN.terminal(
            f"pipeline {pipeline} has no dead letter of record {place}" + (f" and table {table}" if table else ""),
            next_step=f"frazil dead-letters list {pipeline} --all shows which there are",
        )
    if raw is not None:
        _write(raw, _value(letters[0]))
    if as_json:
        console.print_json([_body(letter) for letter in letters])
        return
    for number, letter in enumerate(letters):
        for line in (*([""] if number else []), *letter_lines(letter)):
            console.say(line)


def _value(letter: WholeLetter) -> bytes:
    if letter.value is None:
        raise BAD_ARGUMENT.terminal(
            f"the dead letter of {letter.letter.place} has no value",
            next_step="it is a tombstone, or dead_letters.payload keeps values out of the table: read it from Kafka",
        )
    return letter.value


def _body(whole: WholeLetter) -> dict[str, object]:
    headers = [{"key": key, "value": value} for key, value in whole.headers]
    record = {"stage": whole.stage, "key": whole.key, "value": whole.value, "headers": headers}
    return {**console.json_value(whole.letter), **record}


def report(
    pipeline: PipelineName,
    *,
    since: Since = _PERIOD,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the report to this file as an HTML page.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE", help="Write the report to this file as Markdown.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Report on the dead letters of a period: counts by code and topic, the trend, samples. The default form is Markdown.

    The trend compares with the period of the same length before. Samples name the first field that does not fit.
    """
    from frazil.project import Project
    from frazil.report import dead_letters_summary as page
    from frazil.report.dead_letters_summary import summarize

    end = datetime.now(UTC)
    begin = instant_of(since or _PERIOD, end)
    if begin >= end:
        raise typer.BadParameter(f"--since {since} is not in the past")
    project = Project.load()
    summary = summarize(project, project.pipeline(pipeline), begin, end)
    if html is not None:
        _write(html, page.html(summary).encode())
    if markdown is not None:
        _write(markdown, page.markdown(summary).encode())
    if as_json:
        groups = [{**console.json_value(group), "trend": group.trend} for group in summary.groups]
        console.print_json({**summary.to_body(), "groups": groups})
    elif html is None and markdown is None:
        for line in page.markdown(summary).splitlines():
            console.say(line)


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as error:
        raise BAD_FILE.terminal(f"{file} can't be written: {error.strerror}") from error
    console.err().print(f"wrote {len(content):,} bytes to {file}", soft_wrap=True)


_EXAMPLES = """\
frazil dead-letters list pizzas
frazil dead-letters list pizzas --code INVALID_JSON --since 24h --limit 0 --json
frazil dead-letters show pizzas completed-pizzas/0/1564
frazil dead-letters show pizzas completed-pizzas/0/1564 --raw value.bin
frazil dead-letters report pizzas --since 24h
frazil dead-letters report pizzas --html dead-letters.html
frazil dead-letters replay pizzas --reason "columns were mended" --dry-run
frazil dead-letters replay pizzas --code WRONG_TYPE --since 24h --reason "columns were mended"
"""

_COMMANDS: Mapping[str, Callable[..., Any]] = {"list": list_letters, "show": show, "report": report, "replay": replay}

for _name, _command in _COMMANDS.items():
    app.command(_name, help=help_text(_command), epilog=examples(_EXAMPLES, f"frazil dead-letters {_name}"))(_command)
