"""Blocks have the same outcomes as values that are decoded one by one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.records.json.typed import FoldedDecoder, typed_decoder
from frazil.records.model.spec import RecordSpec
from tests.unit.records.kafka_batches import decode_both, kafka_batch

NUMBERS = RecordSpec(
    pa.schema(
        [
            pa.field("a", pa.int32(), nullable=False),
            pa.field("b", pa.int64()),
            pa.field("c", pa.float64()),
            pa.field("d", pa.decimal128(6, 2)),
            pa.field("e", pa.float32()),
        ]
    ),
    defaults={"a": 3, "b": 4},
)
TEXTS = RecordSpec(
    pa.schema(
        [
            pa.field("a", pa.timestamp("us", tz="UTC")),
            pa.field("b", pa.timestamp("us")),
            pa.field("c", pa.string(), nullable=False),
            pa.field("d", pa.date32()),
            pa.field("e", pa.time64("us")),
            pa.field("f", pa.binary()),
            pa.field("g", pa.uuid()),
        ]
    ),
    sources={"c": ("z",)},
)
_INNER = pa.struct(
    [
        pa.field("a", pa.list_(pa.field("element", pa.timestamp("us"), nullable=False))),
        pa.field("b", pa.bool_(), nullable=False),
    ]
)
NESTED = RecordSpec(
    pa.schema(
        [
            pa.field("a", _INNER),
            pa.field("b", pa.large_list(_INNER)),
            pa.field("c", pa.list_(pa.list_(pa.int32()))),
            pa.field("d", pa.struct([pa.field("d", pa.decimal128(4, 1)), pa.field("e", _INNER)])),
        ]
    )
)
COUNTED = RecordSpec(
    pa.schema(
        [
            pa.field("a", pa.timestamp("us")),
            pa.field("b", pa.timestamp("us", tz="UTC")),
            pa.field("c", pa.time64("us")),
            pa.field("d", pa.timestamp("us")),
            pa.field("e", pa.struct([pa.field("a", pa.timestamp("us"))])),
            pa.field("f", pa.list_(pa.timestamp("us"))),
            pa.field("g", pa.timestamp("us")),
        ]
    ),
    units={"a": "s", "b": "ns", "c": "ms", "d": "us", "e": "s", "f": "ms"},
    local_times={"g": "dead_letter"},
)
FROM_INSIDE = RecordSpec(
    pa.schema([pa.field("p", pa.int64()), pa.field("q", pa.string(), nullable=False), pa.field("b", pa.bool_())]),
    sources={"p": ("a", "b"), "q": ("a", "c", "d")},
    defaults={"q": "none", "p": 7},
)
WHOLE = RecordSpec(
    pa.schema([pa.field("a", pa.int64()), pa.field("json", pa.string())]), sources={"json": ()}, unknown_fields="fail"
)
_TEXT = pa.field("json", pa.string())
WHOLES = [
    WHOLE,
    *(RecordSpec(pa.schema([_TEXT]), sources={"json": ()}, duplicate_keys=keys, field_names=names)
      for keys in ("last", "dead_letter") for names in ("exact", "case_insensitive")),
    RecordSpec(pa.schema([_TEXT]), sources={"json": ()}, variants=frozenset({"json"})),
    RecordSpec(pa.schema([pa.field("a", pa.int64()), _TEXT]), sources={"json": ()}, field_names="case_insensitive"),
    RecordSpec(pa.schema([pa.field("b", pa.string()), pa.field("c", pa.string()), pa.field("json", pa.large_string())]),
               sources={"json": ()}, unknown_fields="rescue", rescued_column="c", duplicate_keys="dead_letter"),
]  # fmt: skip
FLAT = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("é", pa.list_(pa.int64())),
        pa.field("c", pa.string()),
        pa.field("", pa.int64()),
    ]
)
STRUCTS = pa.schema(
    [
        pa.field("a", pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.struct([pa.field("c", pa.string())]))])),
        pa.field("B", pa.int64()),
        pa.field("c", pa.string()),
    ]
)
SHAPES = [FLAT, STRUCTS]
POLICIES = [
    RecordSpec(shape, unknown_fields=unknown_fields, duplicate_keys=repeated, field_names=names, casts=casts, rescued_column="c",
               empty_value="filter")
    for shape in SHAPES
    for unknown_fields in ("ignore", "rescue", "fail")
    for repeated in ("last", "dead_letter")
    for names in ("exact", "case_insensitive")
    for casts in ("none", "text")
]  # fmt: skip
SPECS = [NUMBERS, TEXTS, NESTED, COUNTED, FROM_INSIDE]

BLANKS = st.sampled_from(["", "", "", " ", "\n", "\r\n    ", "\t"])
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "z", "unknown", "é", "", "A", "B", "É"])
KEYS = NAMES.map(json.dumps) | st.sampled_from([r'"\u0061"', r'"\u0064"', '"a', "a"])
SCALARS = st.one_of(
    st.sampled_from(["null", "true", "false", "0", "1", "-0", "1.0", "1.50", "1e2", "1E-3", "0.1"]),
    st.sampled_from(["2147483648", "9223372036854775808", "9999.99", "10000", "1e400", "-1e-400"]),
    st.sampled_from(["NaN", "-Infinity", "Inf", "01", "+1", ".5", "1.", "tru", "nul", "'a'", ""]),
    st.sampled_from([r'"\ud800"', r'"\ud83d\ude00"', r'"\u0000"', '"\x00"', '"a\nb"', r'"\q"']),
    st.sampled_from(['"2024-02-29 01:02:03"', '"2024-02-30T00:00:00Z"', '"2024-01-31T24:00:00"']),
    st.sampled_from(['"2024-01-01T00:00:00.1234567+0130"', '"0001-01-01 00:00:00+01"', '"12:30"']),
    st.sampled_from(['"2024-01-01 00:00:00.25-03:30"', '"2024-12-31"', '"23:59:59.5"', '"AAE="']),
    st.sampled_from(
        ["1714979289.123", "1714979289123", "253402300800", "-62135596800", "1e9", "1714979289123456000", "86399.9"]
    ),
    st.sampled_from(['"00112233-4455-6677-8899-aabbccddeeff"', '"1.5"', '"{}"', '", NaN ]"']),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-100000, 100000, places=3).map(str),
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=4).map(lambda text: f'"{text}"'),
    st.datetimes().map(lambda moment: f'"{moment}"'),
    st.dates().map(lambda day: f'"{day}"'),
)


def _joined(items: list[tuple[str, str]], ends: str) -> str:
    return ends[0] + ",".join(f"{blank}{item}{blank}" for blank, item in items) + ends[1]


def _containers(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(KEYS, BLANKS, values).map(lambda part: f"{part[0]}{part[1]}:{part[2]}")
    lists = st.lists(st.tuples(BLANKS, values), max_size=3)
    objects = st.lists(st.tuples(BLANKS, member), max_size=4)
    return lists.map(lambda items: _joined(items, "[]")) | objects.map(lambda items: _joined(items, "{}"))


VALUES = st.recursive(SCALARS, _containers, max_leaves=8)
MEMBERS = st.tuples(KEYS, BLANKS, VALUES).map(lambda part: f"{part[0]}{part[1]}:{part[2]}")
OBJECTS = st.lists(st.tuples(BLANKS, MEMBERS), max_size=7).map(lambda items: _joined(items, "{}"))
DOCUMENTS = st.tuples(BLANKS, OBJECTS | OBJECTS | OBJECTS | VALUES, BLANKS).map("".join)
RAW = DOCUMENTS.map(lambda text: text.encode("utf-8", "surrogatepass"))

FRAGMENTS = [
    b"",
    b"\n",
    b"\0",
    b"\xff",
    b"}",
    b"{",
    b'"',
    b"\\",
    b",",
    b"]",
    b"}{",
    b"\xef\xbb\xbf",
]


@st.composite
def _broken(draw: st.DrawFn) -> bytes:
    """A document with a piece cut out of it, or something put into it."""
    raw = draw(RAW)
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, len(raw)) | st.just(start))
    return raw[:start] + draw(st.sampled_from(FRAGMENTS)) + raw[end:]


PARTS = [
    *(b'"a":1', b'"a":null', b'"b":"x"', b'"b":null', b'"":5', b'"c":null', b'"\xc3\xa9":[1]', b'"u":1', b'"u":":"'),
    *(b'"A":1', b'"B":2', b'"a":{"a":1}', b'"a":{"b":{"c":"x"}}', b'"a":{"b":{"c":"x"},"u":null}', b'"u":{"a":null}'),
    *(b'"a": 1', b'"a" :1', b'"b":"a:"', b'"b":":a"', b'"\\u0061":3', b'"b":"\\"a\\":null"', b'"u":null'),
]
PLAIN = st.lists(st.sampled_from(PARTS), max_size=5).map(lambda parts: b"{" + b",".join(parts) + b"}")
GOOD = st.just(b'{"a":1,"z":"x"}') | st.just(b'{"a":null,"b":null,"z":"2024-01-01 00:00:00"}')
BATCHES = st.lists(st.none() | GOOD | GOOD | RAW | RAW | _broken(), max_size=24)
TORN = st.tuples(RAW, st.floats(0, 1)).map(
    lambda part: [part[0][: int(part[1] * len(part[0]))], part[0][int(part[1] * len(part[0])) :]]
)
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(st.sampled_from(SPECS), BATCHES)
def test_any_values_have_the_same_outcome_as_block_and_one_by_one(spec: RecordSpec, values: list[bytes | None]) -> None:
    """Rows, dead letters with their messages, and counts are equal whatever a producer sends."""
    decode_both(spec, kafka_batch(values))


@relaxed
@given(st.sampled_from([*POLICIES, *WHOLES]), BATCHES | st.lists(PLAIN | GOOD | RAW, max_size=12))
def test_every_policy_has_the_same_outcome_as_block_and_one_by_one(
    spec: RecordSpec, values: list[bytes | None]
) -> None:
    """Unknown and repeated fields, and names in another case, are seen by the block path too."""
    decode_both(spec, kafka_batch(values))


@pytest.mark.parametrize(
    "spec", POLICIES, ids=lambda s: f"{s.unknown_fields}-{s.duplicate_keys}-{s.field_names}-{s.casts}"
)
def test_every_policy_has_a_block_path(spec: RecordSpec) -> None:
    """Plain values, also with null in them, are decided as blocks under every policy."""
    flat = spec.columns is FLAT
    plain = b'{"a":%d,"b":"x","":null}' if flat else b'{"a":{"a":%d,"b":{}},"B":2}'
    values = pa.array([plain % number for number in range(100)], pa.binary())
    decoder = FoldedDecoder(spec) if spec.field_names == "case_insensitive" else typed_decoder(spec)
    assert decoder is not None
    assert len(decoder.decode(values).positions) == len(values)


ESCAPES = st.sampled_from(
    [r"\"", r"\\", r"\n", r"\/", r"\u00e9", r"\u0001", r"\ud800", "é", ":", " ", "a", r"\\\"", "{", "\x7f"]
)
WRITTEN = st.lists(ESCAPES, max_size=6).map(lambda parts: f'"{"".join(parts)}"')
WRITTEN_OBJECTS = st.lists(st.tuples(BLANKS, WRITTEN, BLANKS, WRITTEN | VALUES), max_size=4).map(
    lambda members: "{" + ",".join(f"{blank}{name}{more}:{blank}{value}" for blank, name, more, value in members) + " }"
)


@relaxed
@given(
    st.sampled_from(WHOLES),
    st.lists(WRITTEN_OBJECTS.map(lambda text: text.encode("utf-8", "surrogatepass")), max_size=8),
)
def test_whole_values_are_the_same_text_as_block_and_one_by_one(spec: RecordSpec, values: list[bytes | None]) -> None:
    """Blanks are left out, escapes and repeated names are written as one by one."""
    decode_both(spec, kafka_batch(values))


@pytest.mark.parametrize("spec", WHOLES)
def test_every_column_of_a_whole_value_has_a_block_path(spec: RecordSpec) -> None:
    """Pretty-printed values, with the escapes that writers use, are decided as blocks."""
    values = pa.array([json.dumps({"b": ["x: \\", '"\n', {}]}, indent=2).encode()] * 100, pa.binary())
    if len(spec.columns) > 1:
        values = pa.array([b'{ "%s": null }' % spec.columns.names[0].encode()] * 100, pa.binary())
    decoder = FoldedDecoder(spec) if spec.field_names == "case_insensitive" else typed_decoder(spec)
    assert decoder is not None
    assert len(decoder.decode(values).positions) == len(values)


@relaxed
@given(st.sampled_from(SPECS), st.lists(TORN | GOOD.map(lambda raw: [raw]), max_size=6))
def test_torn_documents_are_not_put_together(spec: RecordSpec, parts: list[list[bytes]]) -> None:
    """A document torn into two records is two records."""
    decode_both(spec, kafka_batch([part for pair in parts for part in pair]))


@relaxed
@given(st.lists(st.dictionaries(NAMES, st.none() | st.integers(-9, 9), max_size=6), min_size=1))
def test_pretty_printed_json_of_the_standard_library_always_lands(
    documents: list[dict[str, int | None]],
) -> None:
    """Good values never become dead letters, and keep their values."""
    names = ["a", "b", "é", ""]
    spec = RecordSpec(pa.schema([pa.field(name, pa.int64()) for name in names]))
    batch = kafka_batch([json.dumps(document, indent=4).encode() for document in documents])
    rows = decode_both(spec, batch).rows.select(names).to_pylist()
    assert rows == [{name: document.get(name) for name in names} for document in documents]


def test_good_values_do_take_the_block_path() -> None:
    """Equal outcomes prove something only if blocks decode values at all."""
    values = [json.dumps({"a": number, "d": 1.5}, indent=4).encode() for number in range(1000)]
    values[500:503] = [b"", b'{"a":1,}', b'{"a":"x"}']
    values[700] = b'{"a":9223372036854775808}'
    decoder = typed_decoder(RecordSpec(NUMBERS.columns))
    assert decoder is not None
    decided = set(decoder.decode(pa.array(values, pa.binary())).positions.to_pylist())
    assert len(decided) == 1000 - 4
    assert decided.isdisjoint({500, 501, 502, 700})


def test_each_spec_of_this_file_has_a_block_path() -> None:
    """Otherwise the comparison would be of the exact path with itself."""
    assert all(typed_decoder(spec) is not None for spec in SPECS)


def test_hopeless_batch_is_left_to_the_exact_path() -> None:
    """Where each value fails, parsing blocks again and again would never end in time."""
    decode_both(NUMBERS, kafka_batch([b'{"a":1,}', b'{"a":1,"a":2}'] * 2000))


def test_values_beyond_a_segment_are_decoded_in_parts() -> None:
    """Big values are not all copied at once; the order stays."""
    text = "x" * (3 << 20)
    values = [json.dumps({"a": number, "t": text}).encode() for number in range(24)]
    spec = RecordSpec(pa.schema([pa.field("a", pa.int64())]))
    assert decode_both(spec, kafka_batch(values)).rows.column("a").to_pylist() == list(range(24))
