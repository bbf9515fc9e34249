"""Places in topics as people name them: what is meant is found, and what can't be meant is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import ClusterFacts
from frazil.batch.position import EARLIEST, LATEST, Target, parse_offsets, parse_target, resolve
from frazil.errors import Terminal
from tests.unit.batch.kafka_facts import cluster_facts, facts_of

TEN = datetime(2026, 5, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-05-01T10:00:00+00:00", TEN),
        ("2026-05-01T10:00:00Z", TEN),
        ("2026-05-01T10:00:00", TEN),
        ("2026-05-01 10:00", TEN),
        ("2026-05-01T12:00:00+02:00", TEN),
        ("2026-05-01T10:00:00.123", TEN + timedelta(milliseconds=123)),
        ("2026-05-01", TEN.replace(hour=0)),
    ],
)
def test_instant_without_offset_is_in_utc(text: str, instant: datetime) -> None:
    """Without an offset an instant is in UTC, wherever the command is typed."""
    target = parse_target(text)

    assert target == Target("timestamp", instant)
    assert target.at_ms == int(instant.timestamp()) * 1000 + instant.microsecond // 1000
    assert str(target) == instant.isoformat() or text.endswith("+02:00")


def test_only_the_two_exact_words_are_accepted() -> None:
    """The two words, exactly."""
    assert [parse_target(word) for word in ("earliest", "latest")] == [EARLIEST, LATEST]
    assert [str(target) for target in (EARLIEST, LATEST)] == ["earliest", "latest"]
    assert EARLIEST.at_ms is None


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "Earliest", "-1", "0", "10:00", "2026-13-01", "offsets.json", "1712010110000", "1712010110"],
)
def test_invalid_target_is_refused(text: str) -> None:
    """Milliseconds of 1970 as well: read as ISO 8601 some of them are instants in the Middle Ages, so `earliest`."""
    with pytest.raises(
        Terminal, match="is not a position in a topic: expected earliest, latest, an instant such as"
    ) as error:
        parse_target(text)

    assert str(error.value.next_step).endswith('{"orders": {"0": 1200, "1": 1180}}')


@given(st.datetimes(datetime(1970, 1, 1), datetime(9990, 1, 1), timezones=st.just(UTC)), st.integers(-14 * 4, 14 * 4))
def test_reading_begins_at_the_first_record_of_the_instant(instant: datetime, quarters: int) -> None:
    """The millisecond that is asked for is the first that is not before the instant, to the last digit."""
    target = Target("timestamp", instant.astimezone(timezone(timedelta(minutes=15 * quarters))))
    assert target.at_ms is not None

    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=target.at_ms)

    assert timedelta(0) <= found - instant < timedelta(milliseconds=1)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "1970-01-01", "0001-01-01"])
def test_instant_before_1970_means_1970(text: str) -> None:
    """Kafka takes the timestamp -1 for the end of a log and -2 for its beginning."""
    assert parse_target(text).at_ms == 0


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ('{"orders": {"0": 1200, "1": 1180}}', {"orders": {0: 1200, 1: 1180}}),
        ('{"orders": [1200, 1180], "pizzas": {"7": 0}}', {"orders": {0: 1200, 1: 1180}, "pizzas": {7: 0}}),
        ("{}", {}),
    ],
)
def test_file_of_offsets_is_read_by_partition_or_order(text: str, offsets: dict[str, dict[int, int]]) -> None:
    """Partitions by number, or in their order."""
    assert parse_offsets(text, "f.json") == Target("offsets", offsets=offsets)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        "null",
        '"orders"',
        '{"orders": 5}',
        '{"orders": null}',
        '{"orders": "12"}',
        '{"orders": {"zero": 5}}',
        '{"orders": {"-1": 5}}',
        '{"orders": {"0": -5}}',
        '{"orders": {"0": 5.0}}',
        '{"orders": {"0": "5"}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": null}}',
        '{"orders": [1, null]}',
        pytest.param("[" * 100_000, id="nested"),
    ],
)
def test_damaged_file_of_offsets_is_refused(text: str) -> None:
    """A file edited by hand is whole, or refused by its name with the shape that is expected."""
    with pytest.raises(Terminal, match=r"^f\.json holds no offsets: ") as error:
        parse_offsets(text, "f.json")

    assert '{"orders": {"0": 1200, "1": 1180}}' in str(error.value.next_step)


@given(cluster_facts(), st.data())
def test_target_is_an_offset_within_the_log(facts: ClusterFacts, data: st.DataObject) -> None:
    """Every partition gets an offset between its log start and its stable end, whatever the broker found for an instant."""
    logs = {(name, n): p for name, topic in facts.topics.items() for n, p in enumerate(topic.partitions)}
    offsets_by_key = {key: data.draw(st.none() | st.integers(0, 80)) for key in logs}

    assert resolve(EARLIEST, facts, {}) == {key: p.log_start for key, p in logs.items()}
    assert resolve(LATEST, facts, {}) == {key: p.stable_end for key, p in logs.items()}
    for key, offset in resolve(Target("timestamp", TEN), facts, offsets_by_key).items():
        at = offsets_by_key[key]
        p = logs[key]
        assert p.log_start <= offset <= p.stable_end
        assert offset == (p.stable_end if at is None else sorted((p.log_start, at, p.stable_end))[1])
    assert resolve(Target("timestamp", TEN), facts, offsets_by_key).keys() == logs.keys()


def test_partition_that_a_file_does_not_name_stays() -> None:
    """A file of offsets means what it names and nothing else; both ends of the log can be meant."""
    facts = facts_of((3, 8, 9), (3, 8, 9), (3, 8, 9))

    assert resolve(Target("offsets", offsets={"orders": {0: 3, 2: 8}}), facts, {}) == {
        ("orders", 0): 3,
        ("orders", 2): 8,
    }


def test_all_offsets_that_do_not_fit_are_in_one_message() -> None:
    """All of them stand in one message, each with what the log holds: a person edits the file once."""
    offsets = {"orders": {0: 2, 1: 9, 2: 5, 3: 0}, "unknown": {0: 1}}

    with pytest.raises(Terminal) as error:
        resolve(Target("offsets", offsets=offsets), facts_of((3, 8, 9), (3, 8, 9), (3, 8, 9)), {})

    assert error.value.message.splitlines()[1:] == [
        "  topic orders, partition 0: 2 was asked for, the log holds 3 to 8",
        "  topic orders, partition 1: 9 was asked for, the log holds 3 to 8",
        "  topic orders, partition 3: there is no such partition among the pipeline's topics",
        "  topic unknown, partition 0: there is no such partition among the pipeline's topics",
    ]
