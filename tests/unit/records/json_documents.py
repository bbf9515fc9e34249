"""JSON objects whose fields are mostly good: some are odd, missing, named twice, or written with blanks."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
from hypothesis import strategies as st

from frazil.records.model.format import Decoded, Format
from tests.unit.records.json.test_typed_block_and_exact_agree import BLANKS, VALUES

NAMES = st.sampled_from(["more", "é", '"', "a", "x", "payload", "schema"])


@st.composite
def objects(draw: st.DrawFn, good: Mapping[str, str]) -> str:
    """Draw an object of fields by their names and good values, as JSON text."""
    members = [(name, value) for name, value in good.items() if draw(st.integers(0, 9))]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        name = draw(st.sampled_from([*good]) | NAMES)
        members.insert(draw(st.integers(0, len(members))), (name, draw(VALUES)))
    if draw(st.booleans()):
        members = [(name, value) for name, value in dict(members).items()]
    blank = draw(BLANKS)
    return "{" + ",".join(f"{blank}{json.dumps(name)}:{blank}{value}" for name, value in members) + "}" + draw(BLANKS)


def outcomes(payload_format: Format, values: list[bytes]) -> tuple[dict[int, object], list[tuple[int, list[str]]]]:
    """Return the row or the reason of each value, by its position, and the unknown fields."""
    decoded: Decoded = payload_format.decode(pa.array([b"skipped", *values], pa.binary()).slice(1))
    results: dict[int, object] = dict(decoded.dead)
    for group in decoded.groups:
        group.columns.validate(full=True)
        rows = zip(group.positions.to_pylist(), group.columns.to_pylist(), strict=True)
        results |= {position: f"{group.columns.schema} {row!r}" for position, row in rows}
    assert results.keys() == set(range(len(values)))
    return results, sorted(decoded.unknown_fields.by_position())
