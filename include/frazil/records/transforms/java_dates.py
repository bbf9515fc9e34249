"""Reads and writes columns of times by the patterns of Java's SimpleDateFormat, in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from frazil.error_codes import BAD_TRANSFORM
from frazil.errors import Terminal
from frazil.records import pa, pc

# It reads more strictly than Java, which turns 30 February into a day in March and ignores the rest of a text: here a text must
# match the pattern to its end, and be a time that exists. It differs in two further points, so that a text always means the same:
# `S` is the fraction of a second, with as many digits as the pattern has letters (Java counts milliseconds, so `.5` is five of
# them), and a year of two digits is 1969 to 2068 (Java's range moves with the clock). Names of months and days are English.
# Without a zone, texts are UTC.
#
# Letters: `y M d E a H k K h m s S z Z X`.

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
FIRST: Final = -62_135_596_800 * SECOND
LAST: Final = 253_402_300_800 * SECOND - 1
"""Years 1 to 9999 in microseconds, which every engine reads back."""
_DIGITS: Final = {"y": 4, "M": 2, "d": 2, "H": 2, "k": 2, "K": 2, "h": 2, "m": 2, "s": 2}
_FIRST_OF_1900S: Final = 69
"""Years of two digits from 69 on are 19xx, as in POSIX."""
_NAME_LETTERS: Final = 3
"""With so many letters or more, months are written as names."""
_FULL_NAME_LETTERS: Final = 4
"""With so many letters or more, names are written in full."""
_MICRO_DIGITS: Final = 6
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKEN: Final = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<plain>[^A-Za-z']+)")
_ZONES: Final = {
    "z": "UTC|GMT|Z|(?:GMT)?[+-][0-9]{2}:?[0-9]{2}",
    "Z": "[+-][0-9]{4}",
    "X": "Z|[+-][0-9]{2}",
    "XX": "Z|[+-][0-9]{4}",
    "XXX": "Z|[+-][0-9]{2}:[0-9]{2}",
}


class _Part(NamedTuple):
    """A part of a pattern: a letter, repeated as in `text`; or, if `letter` is empty, the literal `text`."""

    letter: str
    text: str

    @property
    def is_number(self) -> bool:
        return self.letter == "S" or (self.letter in _DIGITS and not self.is_name)

    @property
    def is_name(self) -> bool:
        return self.letter == "M" and len(self.text) >= _NAME_LETTERS


@dataclass(frozen=True)
class DatePattern:
    """A pattern of SimpleDateFormat.

    Raises:
        Terminal: It has an unsupported letter, a quote that does not end, a letter twice, or no date or time.
    """

    pattern: str

    def __post_init__(self) -> None:
        letters = [part.letter for part in self._parts if part.letter]
        unknown_letters = [letter for letter in letters if letter not in {*_DIGITS, *"SEaZXz"}]
        if unknown_letters:
            hint = " (Y is the year of a week; y is the year)" if "Y" in unknown_letters else ""
            raise self._unusable(f"the letter {unknown_letters[0]} is not supported{hint}")
        if len(set(letters)) < len(letters):
            raise self._unusable("a letter occurs twice")
        if not set(letters) - {"E", "a"}:
            raise self._unusable("it has no part of a date or time")
        if any(part.letter == "X" and part.text not in _ZONES for part in self._parts):
            raise self._unusable("X is written once, twice or three times")

    @cached_property
    def _parts(self) -> list[_Part]:
        parts: list[_Part] = []
        position = 0
        while position < len(self.pattern):
            match = _TOKEN.match(self.pattern, position)
            if match is None:
                raise self._unusable("a quote is not closed")
            if match["letters"]:
                parts.append(_Part(match["letters"][0], match["letters"]))
            else:
                quoted = match["quoted"]
                parts.append(_Part("", match["plain"] or (quoted or "'").replace("''", "'")))
            position = match.end()
        return parts

    def _unusable(self, why: str) -> Terminal:
        return BAD_TRANSFORM.terminal(
            f"date pattern {self.pattern!r}: {why}",
            next_step="write it with y M d E a H k K h m s S z Z X, other letters in single quotes",
        )

    @cached_property
    def _regex(self) -> str:
        next_parts = [*self._parts[1:], _Part("", "")]
        pairs = zip(self._parts, next_parts, strict=True)
        return "^" + "".join(_part_regex(part, next_part) for part, next_part in pairs) + "$"

    def read(self, texts: pa.StringArray) -> pa.Int64Array:
        """Return microseconds since 1970-01-01T00:00Z; null for null and for a text that does not match the pattern."""
        return _DateParts(pc.extract_regex(texts, self._regex)).micros()

    def write(self, micros: pa.Int64Array) -> pa.StringArray:
        """Return texts of microseconds since 1970-01-01T00:00Z; null for null and outside of years 1 to 9999."""
        moments = in_range(micros).cast(pa.timestamp("us"))
        pieces = [_format_part(part, moments) for part in self._parts]
        if all(isinstance(piece, pa.Scalar) for piece in pieces):  # only zones: the same text for every moment
            pieces[0] = pc.if_else(moments.is_valid(), pieces[0], pa.scalar(None, pa.string()))
        return pc.binary_join_element_wise(*pieces, "")


def in_range(numbers: pa.Int64Array, first: int = FIRST, last: int = LAST) -> pa.Int64Array:
    """Return the numbers from `first` to `last`, null for others; by default, microseconds of years 1 to 9999."""
    return _null_unless(_is_between(numbers, first, last), numbers)


def _part_regex(part: _Part, next_part: _Part) -> str:
    """Return the regular expression of one part. A number before another one has a fixed width, as in Java."""
    letter, width = part.letter, len(part.text)
    if not letter:
        return re.escape(part.text)
    if letter in "zZX":
        return f"(?P<zone>{_ZONES.get(part.text, _ZONES[letter])})"
    if part.is_name or letter in "Ea":
        names = {"M": _MONTHS, "E": _WEEKDAYS, "a": ("AM", "PM")}[letter]
        group = {"M": "name", "E": "weekday", "a": "a"}[letter]
        return f"(?P<{group}>(?i:{'|'.join([*names, *(name[:3] for name in names)])}))"
    if letter == "S" or next_part.is_number or (letter == "y" and width > 1):
        return f"(?P<{letter}>[0-9]{{{width}}})"
    return f"(?P<{letter}>[0-9]{{1,{max(width, _DIGITS[letter])}}})"


class _DateParts:
    """Date and time parts of texts as columns; null where a text did not match the pattern."""

    def __init__(self, groups: pa.StructArray) -> None:
        self._parts = {field.name: values for field, values in zip(groups.type, groups.flatten(), strict=True)}
        self._zeros = pc.if_else(groups.is_valid(), 0, pa.scalar(None, pa.int64()))

    def micros(self) -> pa.Int64Array:
        days, is_valid = self._days()
        hours, hours_valid = self._hours()
        minutes, seconds = self._number("m"), self._number("s")
        is_valid = pc.and_(
            is_valid, pc.and_(hours_valid, pc.and_(_is_between(minutes, 0, 59), _is_between(seconds, 0, 59)))
        )
        clock = pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)
        offset, offset_valid = self._offset()
        instant = pc.add(pc.multiply(days, DAY), pc.multiply(pc.subtract(clock, offset), SECOND))
        return _null_unless(pc.and_(is_valid, offset_valid), pc.add(instant, self._fraction()))

    def _number(self, name: str, default: int = 0) -> pa.Int64Array:
        if name not in self._parts:
            return pc.add(self._zeros, default)
        return self._parts[name].cast(pa.int64())

    def _days(self) -> tuple[pa.Int64Array, pa.BooleanArray]:
        year, month, day = self._year(), self._month(), self._number("d", 1)
        days = _civil_days(year, month, day)
        is_valid = pc.and_(_is_between(year, 1, 9999), _is_between(month, 1, 12))
        # A day that a month does not have is one of the next month.
        is_same_day = pc.equal(pc.day(_null_unless(is_valid, days).cast(pa.int32()).cast(pa.date32())), day)
        return days, pc.fill_null(pc.and_(is_valid, is_same_day), False)  # noqa: FBT003 - a value

    def _year(self) -> pa.Int64Array:
        year = self._number("y", 1970)
        if "y" not in self._parts:
            return year
        is_short = pc.equal(pc.utf8_length(self._parts["y"]), 2)
        century = pc.if_else(pc.greater_equal(year, _FIRST_OF_1900S), 1900, 2000)
        return pc.if_else(is_short, pc.add(year, century), year)

    def _month(self) -> pa.Int64Array:
        if "name" not in self._parts:
            return self._number("M", 1)
        begin = pc.utf8_lower(pc.utf8_slice_codeunits(self._parts["name"], 0, 3))
        return pc.add(pc.index_in(begin, pa.array([name[:3].lower() for name in _MONTHS])), 1).cast(pa.int64())

    def _hours(self) -> tuple[pa.Int64Array, pa.BooleanArray]:
        letter = next((letter for letter in "HkKh" if letter in self._parts), "H")
        low, high = {"H": (0, 23), "k": (1, 24), "K": (0, 11), "h": (1, 12)}[letter]
        number = self._number(letter)
        hours = _remainder(number, high) if letter in "kh" else number
        if letter in "Kh" and "a" in self._parts:
            hours = pc.add(hours, pc.if_else(pc.equal(pc.ascii_lower(self._parts["a"]), "pm"), 12, 0))
        return hours, _is_between(number, low, high)

    def _fraction(self) -> pa.Int64Array:
        if "S" not in self._parts:
            return self._zeros
        micros = pc.utf8_slice_codeunits(self._parts["S"], 0, _MICRO_DIGITS)
        return pc.utf8_rpad(micros, _MICRO_DIGITS, "0").cast(pa.int64())

    def _offset(self) -> tuple[pa.Int64Array, pa.BooleanArray]:
        """Return seconds east of UTC, and whether they are valid."""
        if "zone" not in self._parts:
            return self._zeros, self._zeros.is_valid()
        zone = self._parts["zone"]
        digits = pc.utf8_rpad(pc.replace_substring_regex(zone, "[^0-9]", ""), 4, "0").cast(pa.int64())
        minutes = _remainder(digits, 100)
        seconds = pc.multiply(pc.add(pc.multiply(pc.divide(digits, 100), 60), minutes), 60)
        west = pc.match_substring(zone, "-")
        return pc.if_else(west, pc.negate(seconds), seconds), pc.and_(
            _is_between(digits, 0, 2359), _is_between(minutes, 0, 59)
        )


def _civil_days(year: pa.Int64Array, month: pa.Int64Array, day: pa.Int64Array) -> pa.Int64Array:
    """Return days since 1970-01-01 in the Gregorian calendar; years begin in March, so that leap days end them."""
    early = pc.less_equal(month, 2)
    year = pc.if_else(early, pc.subtract(year, 1), year)
    months = pc.if_else(early, pc.add(month, 9), pc.subtract(month, 3))
    day_of_year = pc.add(pc.divide(pc.add(pc.multiply(months, 153), 2), 5), pc.subtract(day, 1))
    leaps = pc.add(pc.subtract(pc.divide(year, 4), pc.divide(year, 100)), pc.divide(year, 400))
    return pc.subtract(pc.add(pc.add(pc.multiply(year, 365), leaps), day_of_year), 719_468)


def _remainder(number: pa.Int64Array, divisor: int) -> pa.Int64Array:
    return pc.subtract(number, pc.multiply(pc.divide(number, divisor), divisor))


def _is_between(number: pa.Int64Array, low: int, high: int) -> pa.BooleanArray:
    inside = pc.and_(pc.greater_equal(number, low), pc.less_equal(number, high))
    return pc.fill_null(inside, False)  # noqa: FBT003 - a value


def _null_unless(is_kept: pa.BooleanArray, values: pa.Array) -> pa.Array:
    return pc.if_else(is_kept, values, pa.scalar(None, values.type))


def _format_part(part: _Part, moments: pa.TimestampArray) -> pa.StringArray | pa.StringScalar:
    letter, width = part.letter, len(part.text)
    if not letter:
        return pa.scalar(part.text)
    if letter in "zZX":
        return pa.scalar({"z": "UTC", "Z": "+0000", "X": "Z"}[letter])
    if part.is_name or letter == "E":
        forms = {"M": "%B", "E": "%A"} if width >= _FULL_NAME_LETTERS else {"M": "%b", "E": "%a"}
        return pc.strftime(moments, forms[letter])
    if letter == "a":
        return pc.if_else(pc.less(pc.hour(moments), 12), pa.scalar("AM"), pa.scalar("PM"))
    if letter == "S":
        micros = pc.add(pc.multiply(pc.millisecond(moments), 1000), pc.microsecond(moments))
        digits = pc.utf8_lpad(micros.cast(pa.string()), _MICRO_DIGITS, "0")
        return pc.utf8_slice_codeunits(pc.utf8_rpad(digits, width, "0"), 0, width)
    return pc.utf8_lpad(_component(part, moments).cast(pa.string()), width, "0")


def _component(part: _Part, moments: pa.TimestampArray) -> pa.Int64Array:
    match part.letter:
        case "y":
            year = pc.year(moments)
            return _remainder(year, 100) if len(part.text) == 2 else year  # noqa: PLR2004 - yy
        case "M":
            return pc.month(moments)
        case "d":
            return pc.day(moments)
        case "m":
            return pc.minute(moments)
        case "s":
            return pc.second(moments)
    hour = pc.hour(moments)
    size = {"H": 24, "k": 24, "K": 12, "h": 12}[part.letter]
    hour = _remainder(hour, size)
    return pc.if_else(pc.equal(hour, 0), size, hour) if part.letter in "kh" else hour
