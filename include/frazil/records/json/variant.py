"""The rule which JSON texts a `variant` column takes without loss, when Spark's `parse_json` reads them.

`parse_json` of Spark 4.1 keeps a number as a 64-bit integer, else as a decimal of up to 38 digits if it is written without
an exponent, else as a double, whatever that loses: 1e400 becomes Infinity, a 39-digit integer loses its last digits. Half a
surrogate pair becomes a question mark. It fails the whole job where its parser (Jackson) has a bound: 1,000 levels, numbers
of 1,000 characters, names of 50,000, texts of 20,000,000; and where the encoded value is longer than 128 MiB. So what it
would change or choke on must not reach it. A test holds this rule against Spark.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Final

from frazil.records.model.dead_letter import DeadCode, Reason
from frazil.records.model.json_number import ExactNumber, Number, exact_value
from frazil.records.model.json_text import SHOWN_CHARACTERS

LONGEST_TEXT: Final = 16 * 2**20
"""Bytes of a text that surely stays below 128 MiB: encoded it is at most 3.25 times as long (a list of `1e0`)."""

LONGEST_NUMBER: Final = 1_000
"""Characters of a number."""

LONGEST_NAME: Final = 50_000
"""Bytes of an object's name as it is written; Jackson counts UTF-16 units, of which there are never more."""

DEEPEST: Final = 1_000
"""Levels of objects and lists."""

_DECIMAL_DIGITS: Final = 38
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(?:\s*:)?|-?[0-9][0-9.eE+-]*|[\[{]|[\]}]')
_MAYBE_HALF: Final = re.compile(r"\\u[dD][89abAB]|\\u[dD][c-fC-F]")
_PLAIN_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?|-?[0-9]{1,9}(?:\.[0-9]{1,6})?[eE][+-]?[0-9]{1,2}")
"""At most 36 digits, 18 of them after the point: surely an integer or decimal that keeps them all. With a small exponent at
most 15: the double that is nearest to it is written so again."""


def variant_refusal(text: str) -> Reason | None:
    """Why a JSON text can't be stored as variant without loss; None if it can.

    No object in the text repeats a name, as `json_text.document` writes it.
    """
    if len(text) * 4 > LONGEST_TEXT and (size := len(text.encode("utf-8", "surrogatepass"))) > LONGEST_TEXT:
        return Reason(DeadCode.OUT_OF_RANGE, f"expected at most {LONGEST_TEXT:,} bytes for a variant, found {size:,}")
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        first = token[0]
        if first in "[{":
            depth += 1
            if depth > DEEPEST:
                return Reason(DeadCode.TOO_DEEP, f"expected at most {DEEPEST:,} levels for a variant")
        elif first in "]}":
            depth -= 1
        elif (reason := _text_refusal(token) if first == '"' else _number_refusal(token)) is not None:
            return reason
    return None


def _text_refusal(token: str) -> Reason | None:
    quoted = token[: token.rindex('"') + 1]
    is_name = quoted != token
    if is_name and len(quoted) * 4 > LONGEST_NAME and len(quoted[1:-1].encode()) > LONGEST_NAME:
        return Reason(
            DeadCode.OUT_OF_RANGE, f"expected names of at most {LONGEST_NAME:,} bytes, found {_shown(quoted)}"
        )
    if _MAYBE_HALF.search(quoted) and re.search("[\ud800-\udfff]", json.loads(quoted)):
        return Reason(DeadCode.LONE_SURROGATE, f"expected whole characters, found half of a pair in {_shown(quoted)}")
    return None


def _number_refusal(token: str) -> Reason | None:
    if _PLAIN_NUMBER.fullmatch(token) or (len(token) <= LONGEST_NUMBER and _keeps_number(token)):
        return None
    message = f"expected a number that 38 digits or a double hold exactly, found {_shown(token)}"
    return Reason(DeadCode.LOSSY_CAST, message)


def _keeps_number(text: str) -> bool:
    """Return whether `parse_json` keeps a number: as decimal, or as a double that equals it or whose shortest text is the number."""
    if "e" not in text and "E" not in text:
        whole, _, fraction = text.lstrip("-").partition(".")
        if len(fraction) <= _DECIMAL_DIGITS and len((whole + fraction).lstrip("0")) <= _DECIMAL_DIGITS:
            return True
    nearest = float(text)
    if nearest in {float("inf"), float("-inf")}:
        return False
    exact = _absolute(exact_value(Number(text)))
    return exact in (
        _absolute(exact_value(Number(f"{decimal:f}"))) for decimal in (Decimal(repr(nearest)), Decimal(nearest))
    )


def _absolute(number: ExactNumber) -> tuple[str, int]:
    """A number without its sign: that of a zero is lost, which is equal to it."""
    return number.digits, number.exponent


def _shown(token: str) -> str:
    return token if len(token) <= SHOWN_CHARACTERS else f"{token[:SHOWN_CHARACTERS]}…"
