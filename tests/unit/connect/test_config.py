"""Reading configurations: what Java reads from a file is what is imported."""

from __future__ import annotations

import pytest

from frazil.connect.config import read_connectors
from frazil.pipeline.files.files import UnreadableProperties, read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b ", {"a": "b "}),
        ("a b=c", {"a": "b=c"}),
        ("# no\n! no\n\na=1", {"a": "1"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=C:\\\\dir\\\\", {"a": "C:\\dir\\"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t.", {"a": "é\t."}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=\r\nb=2\r\n", {"a": "", "b": "2"}),
        ("re=a\\\\.b|c", {"re": "a\\.b|c"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    """A path with backslashes or a continued list arrives as the worker saw it."""
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "x", "config": {"topics": "a", "tasks.max": 2, "gone": null, "on": true}}',
        '{"name": "x", "topics": "a", "tasks.max": 2, "gone": null, "on": true}',
        '[{"name": "x", "config": {"topics": "a", "tasks.max": 2, "on": true}}]',
    ],
)
def test_both_shapes_of_json_are_the_same_connector(text: str) -> None:
    """What was posted to Kafka Connect and what it answers are both at hand; numbers and switches are texts there."""
    (connector,) = read_connectors(text, "x.json")

    assert connector.config == {"name": "x", "topics": "a", "tasks.max": "2", "on": "true"}


@pytest.mark.parametrize("text", ["{", "[1]", '["password"]', "[" * 100_000])
def test_a_text_that_is_no_configuration_is_refused_without_quoting_it(text: str) -> None:
    """A secret in a broken file doesn't reach a terminal."""
    with pytest.raises(UnreadableProperties) as refused:
        read_connectors(text, "x.json")

    assert "password" not in str(refused.value)
