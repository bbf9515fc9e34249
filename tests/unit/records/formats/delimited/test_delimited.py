"""Lines of fields: valid and invalid ones, and that blocks and single lines have the same outcomes."""

from __future__ import annotations

import csv
import io
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.formats.delimited.delimited import DelimitedFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import Decoded

Row = tuple[str | None, ...]


def rows(decoded: Decoded) -> dict[int, Row]:
    (group,) = decoded.groups or (None,)
    if group is None:
        return {}
    rows = zip(*(column.to_pylist() for column in group.columns.columns), strict=True)
    return dict(zip(group.positions.to_pylist(), rows, strict=True))


def outcome(decoded: Decoded) -> dict[int, object]:
    return {**rows(decoded), **decoded.dead}


def decode(values: list[bytes], fields: int = 3, **options: object) -> Decoded:
    """Decode by block and without; both must say the same."""
    names = tuple("abcdefgh"[:fields])
    array = pa.array([b"skipped", *values], pa.binary()).slice(1)
    fast = DelimitedFormat(names, **options).decode(array)
    exact = DelimitedFormat(names, **options, blocks=False).decode(array)
    assert outcome(fast) == outcome(exact)
    for group in (*fast.groups, *exact.groups):
        group.columns.validate(full=True)
        assert group.positions.to_pylist() == sorted(group.positions.to_pylist())
        assert group.columns.schema == pa.schema([(name, pa.string()) for name in names])
    return fast


GOOD: dict[str, tuple[bytes, Row, dict[str, object]]] = {
    "plain": (b"1,x,2.5", ("1", "x", "2.5"), {}),
    "blanks belong to the field": (b" 1 ,\t, ", (" 1 ", "\t", " "), {}),
    "null without quotes": (b"1,,", ("1", None, None), {}),
    "empty in quotes": (b'1,"",""', ("1", "", ""), {}),
    "all null": (b",,", (None, None, None), {}),
    "CRLF at the end": (b"1,2,3\r\n", ("1", "2", "3"), {}),
    "LF at the end": (b"1,2,3\n", ("1", "2", "3"), {}),
    "CR at the end": (b"1,2,3\r", ("1", "2", "3"), {}),
    "line break behind an empty field": (b"1,2,\n", ("1", "2", None), {}),
    "delimiter in quotes": (b'"a,b",c,d', ("a,b", "c", "d"), {}),
    "quote in quotes": (b'"say ""hi""",b,""""', ('say "hi"', "b", '"'), {}),
    "line breaks in quotes": (b'"a\nb\r\nc",d,"\n"', ("a\nb\r\nc", "d", "\n"), {}),
    "line breaks in quotes and at the end": (b'"a\n",b,"c\n"\n', ("a\n", "b", "c\n"), {}),
    "quote within a bare field": (b'5" pipe,b,c"', ('5" pipe', "b", 'c"'), {}),
    "backslash is a character": (b'a\\,"b\\",c', ("a\\", "b\\", "c"), {}),
    "byte order mark": (b"\xef\xbb\xbf1,2,3", ("1", "2", "3"), {}),
    "byte order mark before quotes": (b'\xef\xbb\xbf"1",2,3', ("1", "2", "3"), {}),
    "two byte order marks": (b"\xef\xbb\xbf\xef\xbb\xbf1,2,3", ("\ufeff1", "2", "3"), {}),
    "NUL and controls": (b"a\0b,\x01,\x7f", ("a\0b", "\x01", "\x7f"), {}),
    "other line separators are characters": ("a\u2028b,c\x0b,\x85".encode(), ("a\u2028b", "c\x0b", "\x85"), {}),
    "unicode": ('é,"日本,語",🧊'.encode(), ("é", "日本,語", "🧊"), {}),
    "no quoting": (b'"a,b",c', ('"a', 'b"', "c"), {"quote": None}),
    "tab": (b'a b\t"c\td"\t', ("a b", "c\td", None), {"delimiter": "\t"}),
    "pipe": (b"a|b,|c", ("a", "b,", "c"), {"delimiter": "|"}),
    "blank as delimiter": (b"a 'b c' d", ("a", "b c", "d"), {"delimiter": " ", "quote": "'"}),
    "signs of patterns": (b"a^].b^.^]^", ("a", ".b^.^", None), {"delimiter": "^", "quote": "]"}),
    "delimiter beyond ASCII": ("a¦b,¦c".encode(), ("a", "b,", "c"), {"delimiter": "¦"}),
    "control as delimiter": (b"a\x01b\x01c", ("a", "b", "c"), {"delimiter": "\x01"}),
    "NUL as delimiter": (b"a\0b\0c", ("a", "b", "c"), {"delimiter": "\0"}),
    "null text": (b'NULL,"NULL",null', (None, "NULL", "null"), {"null_text": "NULL"}),
    "empty is a text beside another null": (b'NULL,,""', (None, "", ""), {"null_text": "NULL"}),
    "nothing is null": (b'NULL,,""', ("NULL", "", ""), {"null_text": None}),
    "null of MySQL": (b"\\N,a\\,b,\\\\N", (None, "a,b", "\\N"), {"null_text": "\\N", "escape": "\\"}),
    "escaped quote": (b'"a\\"b""c",\\",d', ('a"b"c', '"', "d"), {"escape": "\\"}),
    "escaped line break": (b"a\\\nb,c,d", ("a\nb", "c", "d"), {"escape": "\\"}),
    "escape is the quote": (b'"a""b",c,d', ('a"b', "c", "d"), {"escape": '"'}),
    "names first": (b"c,a,b\n3,1,2\n", ("1", "2", "3"), {"header": True}),
    "names first, in quotes": (b'\xef\xbb\xbf"a",b,"c"\r\n1,2,', ("1", "2", None), {"header": True}),
}


@pytest.mark.parametrize(("value", "expected", "options"), GOOD.values(), ids=GOOD.keys())
def test_line_holds_exactly_its_fields(value: bytes, expected: Row, options: dict[str, object]) -> None:
    """What is written is what is read, on both ways."""
    neighbour = options.get("delimiter", ",").join("xyz").encode()
    values = [value] if options.get("header") else [value, neighbour, value]
    assert rows(decode(values, **options)) == dict(enumerate([expected, ("x", "y", "z"), expected][: len(values)]))


BAD: dict[str, tuple[bytes, DeadCode, dict[str, object]]] = {
    "no bytes": (b"", DeadCode.EMPTY_VALUE, {}),
    "one field": (b"1", DeadCode.INVALID_DELIMITED, {}),
    "only a line break": (b"\n", DeadCode.INVALID_DELIMITED, {}),
    "only a byte order mark": (b"\xef\xbb\xbf", DeadCode.INVALID_DELIMITED, {}),
    "too few": (b"1,2", DeadCode.INVALID_DELIMITED, {}),
    "too many": (b"1,2,3,", DeadCode.INVALID_DELIMITED, {}),
    "far too many": (b"," * 100_000, DeadCode.INVALID_DELIMITED, {}),
    "delimiter hides in quotes": (b'1,"2,3"', DeadCode.INVALID_DELIMITED, {}),
    "two lines": (b"1,2,3\n4,5,6", DeadCode.INVALID_DELIMITED, {}),
    "two lines of too few make enough": (b"1,2\n3", DeadCode.INVALID_DELIMITED, {}),
    "blank line behind": (b"1,2,3\n\n", DeadCode.INVALID_DELIMITED, {}),
    "LF, then CR": (b"1,2,3\n\r", DeadCode.INVALID_DELIMITED, {}),
    "line break before": (b"\n1,2,3", DeadCode.INVALID_DELIMITED, {}),
    "quote never ends": (b'1,2,"3', DeadCode.INVALID_DELIMITED, {}),
    "quote never ends, line does": (b'1,2,"3\n', DeadCode.INVALID_DELIMITED, {}),
    "doubled quote is no end": (b'1,2,"3""', DeadCode.INVALID_DELIMITED, {}),
    "lone quote": (b'1,2,"', DeadCode.INVALID_DELIMITED, {}),
    "text behind the quote": (b'1,"2"x,3', DeadCode.INVALID_DELIMITED, {}),
    "blank behind the quote": (b'1,"2" ,3', DeadCode.INVALID_DELIMITED, {}),
    "ends in an escape": (b"1,2,3\\", DeadCode.INVALID_DELIMITED, {"escape": "\\"}),
    "escaped quote is no end": (b'1,2,"3\\"', DeadCode.INVALID_DELIMITED, {"escape": "\\"}),
    "not UTF-8": (b"1,\xff,3", DeadCode.INVALID_UTF8, {}),
    "Latin-1": ("1,é,3".encode("latin-1"), DeadCode.INVALID_UTF8, {}),
    "UTF-16": ("1,2,3".encode("utf-16"), DeadCode.INVALID_UTF8, {}),
    "names only": (b"a,b,c\n", DeadCode.INVALID_DELIMITED, {"header": True}),
    "other names": (b"a,b,x\n1,2,3", DeadCode.INVALID_DELIMITED, {"header": True}),
    "a name twice": (b"a,b,b\n1,2,3", DeadCode.INVALID_DELIMITED, {"header": True}),
    "null as name": (b"a,b,\n1,2,3", DeadCode.INVALID_DELIMITED, {"header": True}),
    "names, then too few": (b"a,b,c\n1,2", DeadCode.INVALID_DELIMITED, {"header": True}),
    "names, then too many": (b"a,b,c\n1,2,3,4", DeadCode.INVALID_DELIMITED, {"header": True}),
    "more names": (b"a,b,c,d\n1,2,3", DeadCode.INVALID_DELIMITED, {"header": True}),
    "names, then two lines": (b"a,b,c\n1,2,3\n4,5,6", DeadCode.INVALID_DELIMITED, {"header": True}),
}


@pytest.mark.parametrize(("value", "code", "options"), BAD.values(), ids=BAD.keys())
def test_anything_else_is_dead_and_alone(value: bytes, code: DeadCode, options: dict[str, object]) -> None:
    """A broken line has its reason, and its neighbours are rows."""
    good = b"a,b,c\n1,2,3" if options.get("header") else b"1,2,3"
    decoded = decode([good, value, good, value], **options)
    assert rows(decoded) == {0: ("1", "2", "3"), 2: ("1", "2", "3")}
    assert [reason.code for reason in decoded.dead.values()] == [code, code]
    assert all(len(reason.message) < 200 for reason in decoded.dead.values())


def test_broken_neighbours_stay_two_dead_letters() -> None:
    """Two broken lines that are a good one together stay two dead letters."""
    assert rows(decode([b'1,2,"a', b'b"', b"1,2", b"3"])) == {}


def test_one_field_may_be_nothing_but_a_line_break() -> None:
    """A line without anything is one field that is null, and a value without a byte is none."""
    decoded = decode([b"\n", b"", b'""', b"a"], fields=1)
    assert rows(decoded) == {0: (None,), 2: ("",), 3: ("a",)}
    assert decoded.dead[1].code is DeadCode.EMPTY_VALUE


def test_message_names_the_actual_value() -> None:
    """Whoever reads the message knows what to look for."""
    dead_values = decode([b"1,2", b'1,"2"x', b'"' + b"x" * 1000, b"1,2,3,4", b"1,2,3\nrest", b"1,\xff,3"]).dead
    assert [reason.message[:70] for reason in dead_values.values()] == [
        "expected 3 fields, found 2",
        'expected a delimiter or the end at position 5, found text "x"',
        'expected the quote at position 0 to end, found text "\\"' + "x" * 15,
        "expected 3 fields, found 4",
        'expected one line, found behind it text "rest"',
        "expected UTF-8, found byte 0xff at position 2: invalid start byte",
    ]


def test_message_counts_the_fields_that_are_too_many() -> None:
    """A line with one more field says so; one of a million is not counted to its end."""
    lines = pa.array([",".join("x" * 19).encode(), b"," * 1_000_000])
    dead_values = DelimitedFormat(tuple(f"f{number}" for number in range(18))).decode(lines).dead
    assert [reason.message for reason in dead_values.values()] == [
        "expected 18 fields, found 19",
        "expected 18 fields, found at least 1018",
    ]


def test_message_names_the_column_that_differs() -> None:
    """The first name that is missing and the first that is too much: not a list that is cut before them."""
    names = tuple(f"column_{number}" for number in range(60))
    lines = [
        [*names[:40], "column_forty", *names[41:]],
        [*names, "one_more"],
        names[:59],
        [*names[:59], names[0]],
        [*names, names[0]],
    ]
    values = [f"{','.join(line)}\n{',' * 59}".encode() for line in lines]
    dead = DelimitedFormat(names, header=True).decode(pa.array(values)).dead
    assert [
        reason.message.removeprefix("expected a line of the declared names, found ") for reason in dead.values()
    ] == [
        'no text "column_40", and text "column_forty", which is none of them',
        'text "one_more", which is none of them',
        'no text "column_59"',
        'no text "column_59"',
        "one of them twice",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"fields": ()},
        {"fields": ("a", "a")},
        {"fields": ("a",), "delimiter": ""},
        {"fields": ("a",), "delimiter": "||"},
        {"fields": ("a",), "delimiter": "\n"},
        {"fields": ("a",), "delimiter": '"'},
        {"fields": ("a",), "quote": ""},
        {"fields": ("a",), "escape": ","},
    ],
    ids=str,
)
def test_ambiguous_separators_are_refused(options: dict[str, object]) -> None:
    """A declaration that means two things is refused before the first record."""
    with pytest.raises(Terminal):
        DelimitedFormat(**options)


def test_format_travels_to_executors() -> None:
    """A copy made from its bytes decodes alike."""
    expected_format = DelimitedFormat(("a", "b"), escape="\\")
    copy = pickle.loads(pickle.dumps(expected_format))  # noqa: S301 (made in the line before)
    assert copy == expected_format
    assert rows(copy.decode(pa.array([b"1,2"]))) == {0: ("1", "2")}


def test_nothing_is_decoded_to_nothing() -> None:
    """A batch without values is no failure."""
    assert decode([]) == Decoded((), {})


SIGNS = st.lists(st.sampled_from([*'ab ,,;"""\'\\\n\r\0\ufeffé', "\\N", ",\\N,"]), max_size=12).map("".join)


@settings(deadline=None)
@given(
    st.lists(st.one_of(SIGNS.map(str.encode), st.binary(max_size=8)), max_size=8),
    st.integers(1, 4),
    st.sampled_from([",", ";", "\t", " ", "'"]),
    st.sampled_from(['"', None, "a"]),
    st.sampled_from(["", None, "a", "\\N", "\\N", "b ", "\\", "a,\\N", '"\\N"']),
    st.sampled_from([None, None, "\\", '"']),
)
def test_block_and_single_lines_agree(
    values: list[bytes], fields: int, delimiter: str, quote: str | None, null_text: str | None, escape: str | None
) -> None:
    """Arbitrary bytes never fail, and the fast way never says anything else."""
    decoded = decode(values, fields, delimiter=delimiter, quote=quote, null_text=null_text, escape=escape)
    assert rows(decoded).keys() | decoded.dead.keys() == set(range(len(values)))


@settings(deadline=None)
@given(
    st.lists(st.tuples(*[st.text(st.characters(codec="utf-8", exclude_characters="\ufeff"))] * 3), max_size=5),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
)
def test_what_a_csv_writer_wrote_is_read(texts: list[tuple[str, str, str]], quoting: int) -> None:
    """Lines of the standard library's writer come back as they went in."""
    values = []
    for text in texts:
        line = io.StringIO(newline="")
        csv.writer(line, quoting=quoting).writerow(text)
        values.append(line.getvalue().encode())
    decoded = decode(values, null_text=None)
    assert rows(decoded) == dict(enumerate(texts))
