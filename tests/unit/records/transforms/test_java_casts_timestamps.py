"""Times between their forms, by patterns of SimpleDateFormat."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.model.format import Frame
from frazil.records.transforms.java_dates import FIRST, LAST, DatePattern
from frazil.records.transforms.kinds.field_values import TimeForm, TimestampConverter, UnixPrecision
from tests.unit.records.transforms.frames import run

Build = Callable[..., Frame]

NOT_READ = None
EPOCH = dt.datetime(1970, 1, 1)
moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd", "2024-02-29", dt.datetime(2024, 2, 29)),
        ("yyyy-MM-dd", "2023-02-29", NOT_READ),
        ("yyyy-MM-dd", "1900-02-29", NOT_READ),
        ("yyyy-MM-dd", "2000-02-29", dt.datetime(2000, 2, 29)),
        ("yyyy-MM-dd", "2024-13-01", NOT_READ),
        ("yyyy-MM-dd", "2024-00-01", NOT_READ),
        ("yyyy-MM-dd", "2024-01-00", NOT_READ),
        ("yyyy-MM-dd", "0000-01-01", NOT_READ),
        ("yyyy-MM-dd", "2024-02-29 ", NOT_READ),
        ("yyyy-MM-dd", "2024-02-29\n", NOT_READ),
        ("yyyy-MM-dd", "", NOT_READ),
        ("yyyyMMddHHmmss", "20240229235959", dt.datetime(2024, 2, 29, 23, 59, 59)),
        ("yyyyMMdd", "2024229", NOT_READ),
        ("d/M/yyyy", "1/2/2024", dt.datetime(2024, 2, 1)),
        ("dd/MM/yy", "01/02/68", dt.datetime(2068, 2, 1)),
        ("dd/MM/yy", "01/02/69", dt.datetime(1969, 2, 1)),
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2024-02-29T23:59:59.123Z", dt.datetime(2024, 2, 29, 23, 59, 59, 123000)),
        ("HH:mm:ss.SSSSSSSSS", "00:00:00.123456789", dt.datetime(1970, 1, 1, 0, 0, 0, 123456)),
        ("HH:mm:ss.S", "00:00:00.5", dt.datetime(1970, 1, 1, 0, 0, 0, 500000)),
        ("HH:mm", "24:00", NOT_READ),
        ("HH:mm:ss", "23:59:60", NOT_READ),
        ("kk:mm", "24:01", dt.datetime(1970, 1, 1, 0, 1)),
        ("hh:mm a", "12:30 am", dt.datetime(1970, 1, 1, 0, 30)),
        ("hh:mm a", "12:30 PM", dt.datetime(1970, 1, 1, 12, 30)),
        ("hh:mm a", "13:30 PM", NOT_READ),
        ("KK:mm a", "11:30 PM", dt.datetime(1970, 1, 1, 23, 30)),
        ("EEE, d MMM yyyy HH:mm:ss z", "Thu, 29 Feb 2024 01:00:00 GMT", dt.datetime(2024, 2, 29, 1)),
        ("EEEE MMMM d yyyy", "thursday FEBRUARY 9 2024", dt.datetime(2024, 2, 9)),
        ("yyyy-MM-dd HH:mm:ssX", "2024-01-01 00:00:00+02", dt.datetime(2023, 12, 31, 22)),
        ("yyyy-MM-dd HH:mm:ssXXX", "2024-01-01 00:00:00-05:30", dt.datetime(2024, 1, 1, 5, 30)),
        ("yyyy-MM-dd HH:mm:ssZ", "2024-01-01 00:00:00+0200", dt.datetime(2023, 12, 31, 22)),
        ("yyyy-MM-dd HH:mm:ssZ", "2024-01-01 00:00:00+0260", NOT_READ),
        ("yyyy 'o''clock' ''", "2024 o'clock '", dt.datetime(2024, 1, 1)),
        ("yyyy.MM", "2024x01", NOT_READ),
    ],
)
def test_text_is_read_as_its_own_moment(pattern: str, text: str, expected: Any) -> None:
    """A text that matches the pattern to its end is a moment; any other text is none."""
    read = DatePattern(pattern).read(pa.array([text, None])).to_pylist()
    assert read == [None if expected is None else micros(expected), None]


@pytest.mark.parametrize(
    ("pattern", "moment", "expected"),
    [
        ("yyyyMMdd", dt.datetime(2024, 2, 9, 23), "20240209"),
        ("d.M.yy", dt.datetime(2004, 2, 9), "9.2.04"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "1969-12-31T23:59:59.999Z"),
        ("HH:mm:ss.SSSSSS", dt.datetime(1970, 1, 1, 0, 0, 0, 7), "00:00:00.000007"),
        ("EEE, d MMM yyyy HH:mm:ss Z", dt.datetime(2024, 2, 29), "Thu, 29 Feb 2024 00:00:00 +0000"),
        ("EEEE MMMM, hh a (z)", dt.datetime(2024, 2, 29, 12), "Thursday February, 12 PM (UTC)"),
        ("h K k H a", dt.datetime(2024, 2, 29, 0), "12 0 24 0 AM"),
        ("yyyy", dt.datetime(7, 1, 1), "0007"),
    ],
)
def test_moment_is_written_as_java_writes_it(pattern: str, moment: dt.datetime, expected: Any) -> None:
    """A moment is written as SimpleDateFormat writes it in UTC."""
    assert DatePattern(pattern).write(pa.array([micros(moment), None])).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    "pattern", ["YYYY-MM-dd", "yyyy-DDD", "yyyy 'open", "", "-", "EEE", "yyyy yyyy", "HH XXXX", "ww"]
)
def test_unsupported_pattern_is_refused(pattern: str) -> None:
    """A pattern with an unsupported letter is refused before any record is read."""
    with pytest.raises(Terminal, match="date pattern"):
        DatePattern(pattern)


@given(
    st.lists(moments, min_size=1),
    st.sampled_from(
        [
            "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
            "yyyyMMddHHmmssSSSSSS",
            "EEE d MMM yyyy hh:mm:ss.SSSSSS a z",
            "MMMM/d/yyyy K-m-s SSSSSS a",
            "yyyy M d k m s SSSSSSZ",
        ]
    ),
)
def test_moment_survives_the_way_through_text(times: list[dt.datetime], pattern: str) -> None:
    """What is written is read as the same moment, in any year."""
    numbers = [micros(moment) for moment in times]
    dates = DatePattern(pattern)
    assert dates.read(dates.write(pa.array(numbers, pa.int64()))).to_pylist() == numbers


@given(moments, st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)))
def test_offset_is_applied_as_python_does(moment: dt.datetime, offset: dt.timedelta) -> None:
    """Texts with an offset are the moment that Python reads in them."""
    zone = dt.timezone(dt.timedelta(minutes=offset // dt.timedelta(minutes=1)))
    local = moment.replace(tzinfo=zone, microsecond=0)
    read = DatePattern("yyyy-MM-dd'T'HH:mm:ssXXX").read(pa.array([local.isoformat().replace("+00:00", "Z")]))
    assert read.to_pylist() == [micros(local.astimezone(dt.UTC).replace(tzinfo=None))]


@given(
    st.lists(st.text(alphabet="0123456789-:. TZ+", max_size=24), min_size=1),
    st.sampled_from(["yyyy-MM-dd HH:mm", "s.SSS", "y-M-d", "HHmmZ"]),
)
def test_any_text_is_a_moment_or_none(texts: list[str], pattern: str) -> None:
    """Any text is a moment or none."""
    assert len(DatePattern(pattern).read(pa.array(texts))) == len(texts)


NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 5001, tzinfo=dt.UTC)
FAILS = "a dead letter"


@pytest.mark.parametrize(
    ("data_type", "value", "options", "expected"),
    [
        (pa.string(), "2024-02-29", {"target_type": "Date", "format": "yyyy-MM-dd"}, dt.date(2024, 2, 29)),
        (pa.string(), "2024-02-30", {"target_type": "Date", "format": "yyyy-MM-dd"}, FAILS),
        (pa.string(), "2024-02-29", {"target_type": "Date"}, FAILS),
        (pa.string(), "2024-02-29", {"target_type": "unix", "format": "yyyy-MM-dd"}, 1709164800000),
        (pa.int64(), 1709208000005, {"target_type": "Timestamp"}, NOON.replace(microsecond=5000)),
        (
            pa.int64(),
            1709208000,
            {"target_type": "Timestamp", "unix_precision": "seconds"},
            NOON.replace(microsecond=0),
        ),
        (pa.int64(), 1709208000005001999, {"target_type": "Timestamp", "unix_precision": "nanoseconds"}, NOON),
        (pa.int64(), 2**63 - 1, {"target_type": "Timestamp", "unix_precision": "seconds"}, FAILS),
        (pa.int64(), -(2**63), {"target_type": "Timestamp"}, FAILS),
        (pa.int64(), 2**63 - 1, {"target_type": "Timestamp", "unix_precision": "microseconds"}, FAILS),
        (pa.int32(), 86400, {"target_type": "Date", "unix_precision": "seconds"}, dt.date(1970, 1, 2)),
        (pa.int64(), -1, {"target_type": "Date"}, dt.date(1969, 12, 31)),
        (pa.int64(), -1, {"target_type": "Time"}, dt.time(23, 59, 59, 999000)),
        (pa.timestamp("us", "UTC"), NOON, {"target_type": "string", "format": "HH:mm"}, "12:00"),
        (pa.timestamp("us", "UTC"), NOON, {"target_type": "unix"}, 1709208000005),
        (
            pa.timestamp("us", "UTC"),
            NOON,
            {"target_type": "unix", "unix_precision": "nanoseconds"},
            1709208000005001000,
        ),
        (pa.timestamp("us"), dt.datetime(9999, 1, 1), {"target_type": "unix", "unix_precision": "nanoseconds"}, FAILS),
        (pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), {"target_type": "unix"}, -1),
        (pa.date32(), dt.date(1970, 1, 2), {"target_type": "unix"}, 86400000),
        (pa.time64("us"), dt.time(0, 0, 1), {"target_type": "unix"}, 1000),
        (pa.float64(), 1.0, {"target_type": "Date"}, FAILS),
    ],
)
def test_time_keeps_its_moment_in_every_form(
    frame: Build, data_type: Any, value: Any, options: dict[str, Any], expected: Any
) -> None:
    """A time means the same in its new form, or its record is a dead letter and the null beside it stays null."""
    done = run(TimestampConverter(field="at", **options), frame(value={"at": pa.array([value, None], data_type)}))
    if expected is FAILS:
        assert done.dead[0].code == "TRANSFORM_FAILED"
        assert done.dead[0].path == "at"
    else:
        assert done.frame.value.to_pylist() == [{"at": expected}, {"at": None}]


def test_missing_field_is_left_alone(frame: Build) -> None:
    """A missing field is ignored; a value without fields is converted without naming one."""
    given_frame = frame(value={"a": [1]})
    assert run(TimestampConverter("b", target_type="Date"), given_frame).frame is given_frame
    assert set(run(TimestampConverter(target_type="Date"), given_frame).dead) == {0}
    assert run(TimestampConverter(target_type="Date"), frame(value={"value": [0]})).frame.value.to_pylist() == [
        {"value": dt.date(1970, 1, 1)}
    ]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_moment_far_away_has_a_text_or_none(numbers: list[int]) -> None:
    """Every 64-bit number of microseconds has a text, or none outside of years 1 to 9999."""
    written = DatePattern("EEE MMMM d yyyy HH:mm:ss.SSS a").write(pa.array(numbers, pa.int64()))
    assert written.is_valid().to_pylist() == [FIRST <= number <= LAST for number in numbers]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1),
    st.sampled_from(get_args(TimeForm)),
    st.sampled_from(get_args(UnixPrecision)),
)
def test_number_is_read_as_its_own_moment(frame: Build, numbers: list[int | None], form: Any, unit: Any) -> None:
    """A number becomes the moment it is since 1970, rounded down, or its record is a dead letter; none wraps around."""
    converter = TimestampConverter("at", target_type="Timestamp", unix_precision=unit)
    done = run(converter, frame(value={"at": pa.array(numbers, pa.int64())}))
    per_second = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}[unit]
    exact = [None if number is None else number * 10**6 // per_second for number in numbers]
    instants = [instant for instant in exact if instant is None or FIRST <= instant <= LAST]
    assert done.frame.value["at"].cast(pa.int64()).to_pylist() == instants
    if instants:
        run(TimestampConverter("at", "yyyy-MM-dd", unit, target_type=form), done.frame)
