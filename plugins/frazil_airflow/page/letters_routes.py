"""Dead letters of a pipeline: a list with filters, and all letters of one record. Users who may read the task logs also see the
record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import HTMLResponse

from frazil.batch.changes import LetterChoice, Place
from frazil.batch.position import parse_instant
from frazil.errors import FrazilError, Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.model.dead_letter import DeadCode
from frazil.report.dead_letters import DeadLetter, LetterMark, WholeLetter, declared_names
from frazil.report.dead_letters_summary import meaning, remedy
from frazil.report.letter_reports import KeptReport
from frazil_airflow.outputs.links import report_address
from frazil_airflow.page.pipeline_routes import common_context
from frazil_airflow.page.rendering import render
from frazil_airflow.page.request import PageRequest, PageRequestDep
from frazil_airflow.project.pipelines import INGEST, REPORT

MAX_BYTES = 16_384
"""Bytes of a payload that are shown."""

MAX_HEADER_BYTES = 512
"""Bytes of a header that are shown: a record may have many headers."""

MAX_INDENTED = 4 * MAX_BYTES
"""Characters of indented JSON that are shown. Indentation makes deeply nested brackets up to forty times as long."""

Kind = Literal["null", "empty", "json", "text", "hex"]

_WIDTH = 16
_VISIBLE = range(32, 127)


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes as readable text.

    Attributes:
        kind: The form in which the bytes are shown.
        size: Number of bytes.
        text: The bytes as JSON or text; None if they are neither.
        hexadecimal: The bytes as a hex dump.
        is_cut: Whether only the first `most` bytes are shown.
    """

    kind: Kind
    size: int
    text: str | None = None
    hexadecimal: str = ""
    is_cut: bool = False
    most: int = MAX_BYTES


def payload_text(content: bytes | None, most: int = MAX_BYTES) -> Payload:
    """Make the first `most` bytes readable. JSON is indented if it is not cut; any other text is shown unchanged."""
    if content is None:
        return Payload("null", 0)
    if not content:
        return Payload("empty", 0)
    cut, is_cut = content[:most], len(content) > most
    text = _text(cut, is_cut=is_cut)
    pretty = None if is_cut or text is None else _json(text)
    kind: Kind = "json" if pretty is not None else "hex" if text is None else "text"
    return Payload(kind, len(content), pretty if pretty is not None else text, dump(cut), is_cut, most)


def dump(content: bytes) -> str:
    """A hex dump of sixteen bytes a line: offset, bytes, and characters that are printable ASCII."""
    lines = []
    for start in range(0, len(content), _WIDTH):
        part = content[start : start + _WIDTH]
        characters = "".join(chr(byte) if byte in _VISIBLE else "·" for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<{3 * _WIDTH - 1}}  {characters}")
    return "\n".join(lines)


def _text(content: bytes, *, is_cut: bool) -> str | None:
    """Bytes as UTF-8 without a character that the cut split; None if they are not UTF-8, or over a tenth is not printable."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if not (is_cut and error.start >= len(content) - 3):
            return None
        text = content[: error.start].decode()
    hidden = sum(not (character.isprintable() or character in "\n\r\t") for character in text)
    return text if hidden * 10 <= len(text) else None


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

_COLON = ":"


def _json(text: str) -> str | None:
    """Indented JSON with unchanged tokens, since parsed numbers would lose digits; None if it is no JSON, or too long."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    indented = "".join(_indented(_TOKEN.findall(text)))
    return indented if len(indented) <= MAX_INDENTED else None


def _indented(tokens: Sequence[str]) -> Iterator[str]:
    depth = 0
    for number, token in enumerate(tokens):
        before = tokens[number - 1] if number else ""
        if token in {"}", "]"}:
            depth -= 1
            yield "" if before in ("{", "[") else _new_line(depth)
        elif before in ("{", "[", ","):
            yield _new_line(depth)
        yield ": " if token == _COLON else token
        depth += token in ("{", "[")


def _new_line(depth: int) -> str:
    return "\n" + "  " * min(depth, 40)


PAGE_SIZE = 50

MOST_LETTERS = 10
"""Letters of one record that are shown: each destination may have one, with the whole record in it."""

MOST_HEADERS = 50
"""Headers of a record that are shown."""

HEADER_KEY = 200
"""Characters of a header's key that are shown."""

REPORTS = 5
"""Stored reports that are linked, the newest ones."""

When = Annotated[str, Query(max_length=60)]
"""An instant, or how long ago it was, for timestamps of records; empty: any."""

Partition = Annotated[int, Path(ge=0, lt=2**31)]
Offset = Annotated[int, Path(ge=0, lt=2**63)]
"""Bounded as in Kafka: a filter on a table's column can't hold greater numbers."""

router = APIRouter()


@router.get("/pipelines/{name}/dead-letters")
def letters(  # noqa: PLR0913, PLR0917 - filters of a list
    request: Request,
    page_request: PageRequestDep,
    name: str,
    code: Annotated[str, Query(max_length=60)] = "",
    topic: Annotated[str, Query(max_length=300)] = "",
    since: When = "",
    until: When = "",
    state: Literal["open", "landed", "all"] = "open",
    after: Annotated[str, Query(max_length=2_000)] = "",
) -> HTMLResponse:
    """A page of dead letters, the newest first. `after`: where the previous page ended."""
    pipeline = page_request.pipeline(name)
    begin, end = _period(since, until)
    choice = LetterChoice(
        codes=frozenset({code} if code else ()), topics=frozenset({topic} if topic else ()), since=begin, until=end
    )
    listing = page_request.source.letters(name, choice, state, _mark(after), PAGE_SIZE)
    shows_records = _shows_records(page_request, name)
    if listing is not None and not shows_records:
        listing = replace(listing, letters=_without_records(pipeline, listing.letters))
    reports, problem = _reports(page_request, name)
    filters = {"code": code, "topic": topic, "since": since, "until": until, "state": state}
    last = listing.letters[-1].mark if listing is not None and listing.letters and listing.has_more else None
    return render(
        request,
        "letters.html.j2",
        listing=listing,
        filters=filters,
        is_first=not after,
        after=json.dumps(last) if last is not None else "",
        codes=sorted(DeadCode),
        shows_records=shows_records,
        reports=reports,
        reports_problem=problem,
        **common_context(page_request, pipeline, "letters"),
    )


@router.get("/pipelines/{name}/dead-letters/{topic}/{partition}/{offset}")
def letter(
    request: Request, page_request: PageRequestDep, name: str, topic: str, partition: Partition, offset: Offset
) -> HTMLResponse:
    """Every letter of one record: reason, what to do, and, for users who may read it, what the table keeps of the record."""
    pipeline = page_request.pipeline(name)
    whole = page_request.source.letter(name, Place(topic, partition, offset))
    if not whole:
        raise HTTPException(404, f"Pipeline {name} has no dead letter of record {topic}/{partition}/{offset}")
    shows_records = _shows_records(page_request, name)
    facts = [whole_letter.letter for whole_letter in whole[:MOST_LETTERS]]
    pieces = [
        {
            "letter": letter,
            **(_record(whole_letter) if shows_records else {}),
            "meaning": meaning(letter.code),
            "remedy": remedy(letter.code),
        }
        for letter, whole_letter in zip(
            facts if shows_records else _without_records(pipeline, facts), whole, strict=False
        )
    ]
    return render(
        request,
        "letter.html.j2",
        letters=pieces,
        more_letters=len(whole) - len(pieces),
        payload=pipeline.dead_letters.payload,
        shows_records=shows_records,
        ingest=f"{INGEST}{name}",
        **common_context(page_request, pipeline, "letters"),
    )


def _shows_records(page_request: PageRequest, name: str) -> bool:
    """Whether the user may see keys, values, headers, and the messages that quote them."""
    return page_request.access.may_read_logs(f"{INGEST}{name}")


def _without_records(pipeline: Pipeline, letters: Iterable[DeadLetter]) -> tuple[DeadLetter, ...]:
    """Letters whose paths end before the first name of the record: a map's key, or a field that the file does not declare."""
    names = declared_names(pipeline)
    return tuple(
        replace(letter, path=names.visible_path(letter.path) if letter.path else letter.path) for letter in letters
    )


def _record(whole: WholeLetter) -> dict[str, Any]:
    headers = [(key[:HEADER_KEY], payload_text(value, MAX_HEADER_BYTES)) for key, value in whole.headers[:MOST_HEADERS]]
    return {
        "key": payload_text(whole.key),
        "value": payload_text(whole.value),
        "headers": headers,
        "more_headers": len(whole.headers) - len(headers),
    }


def _period(since: str, until: str) -> tuple[datetime | None, datetime | None]:
    now = datetime.now(UTC)
    try:
        begin, end = (parse_instant(text, now) if text.strip() else None for text in (since, until))
    except (ValueError, Terminal) as error:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    if begin is not None and end is not None and begin >= end:
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, f"since {since} is not before until {until}")
    return begin, end


def _reports(page_request: PageRequest, name: str) -> tuple[list[tuple[KeptReport, str]], str]:
    """The newest stored reports with their addresses, if the user may open them; and why they can't be listed, else empty."""
    if not page_request.access.may_read_logs(f"{REPORT}{name}"):
        return [], ""
    try:
        return [
            (report, report_address(name, report.name)) for report in page_request.source.reports(name, REPORTS)
        ], ""
    except FrazilError as problem:
        return [], str(problem)


def _mark(text: str) -> LetterMark | None:
    """Parse the mark where the previous page ended. It comes from the browser, so it may be any text."""
    if not text:
        return None
    try:
        batch, topic, partition, offset, destination = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise HTTPException(422, "after is not where a page ended") from error
    types = ((batch, int | None), (topic, str), (partition, int), (offset, int), (destination, str | None))
    numbers = (number for number in (batch, partition, offset) if isinstance(number, int))
    if not all(isinstance(value, kind) for value, kind in types) or not all(0 <= number < 2**63 for number in numbers):
        raise HTTPException(422, "after is not where a page ended")
    return LetterMark(batch, topic, partition, offset, destination)
