"""Pipeline files: references, YAML and models; errors name file, key path and the most similar key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import load_pipelines
from frazil.pipeline.files.load import ConfigError, load_pipeline
from frazil.pipeline.models.pipeline_file import Pipeline

REFERENCES = References(
    env={"OWNER": "rpc", "EMPTY": "", "TRICKY": "${env:OWNER}"}, local={"kafka": "127.0.0.1:9092"}
).allowing(("env:OWNER", "env:EMPTY", "env:TRICKY", "env:MISSING", "local:kafka", "local:kafak", "vault:x"))

GOOD = """\
name: orders
source: {topics: [orders]}
destinations:
  - table: shop.orders
    columns: {id: long, type: string, at: timestamptz}
"""

Load = Callable[[str], Pipeline]
Complaints = Callable[[str], list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a pipeline from text."""

    def from_text(text: str) -> Pipeline:
        path = tmp_path / "orders.yaml"
        path.write_text(text)
        return load_pipeline(path, REFERENCES)

    return from_text


@pytest.fixture
def complaints(tmp_path: Path, load: Load) -> Complaints:
    """The problems found in the text of a pipeline file."""

    def of(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert caught.value.file == tmp_path / "orders.yaml"
        assert str(caught.value).startswith(str(tmp_path / "orders.yaml"))
        return caught.value.problems

    return of


def test_defaults_are_the_documented_ones(load: Load) -> None:
    """Missing keys have the documented defaults."""
    orders = load(GOOD)

    assert (orders.interval, orders.start, orders.engine, orders.catalog) == ("5m", "earliest", "spark", "lake")
    assert orders.ledger_table == "shop.orders__ledger"
    assert orders.dead_letters_table == "shop.orders__dead_letters"
    assert orders.destinations[0].added_columns[0] == "_kafka_topic"
    assert orders.destinations[0].columns["id"].type == "long"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD + "intervall: 5m\n", ["intervall: unknown key, did you mean 'interval'?"]),
        (GOOD + "zzz: 1\n", ["zzz: unknown key; known keys: name, description, owner"]),
        (GOOD + "limits: {max_record: 4}\n", ["limits.max_record: unknown key, did you mean 'max_records'?"]),
        (
            GOOD + "dead_letters: {tolerance: {rate: 1}}\n",
            ["dead_letters.tolerance.rate: unknown key, did you mean 'max_rate'?"],
        ),
        (
            GOOD.replace("id: long", "id: {type: long, requierd: true}"),
            ["destinations.0.columns.id.requierd: unknown key, did you mean 'required'?"],
        ),
        (
            GOOD.replace("type: string", "type: {type: string, dok: x}"),
            ["destinations.0.columns.type.dok: unknown key, did you mean 'doc'?"],
        ),
        (
            GOOD + "    kafka_columns: {topik: x}\n",
            ["destinations.0.kafka_columns.topik: unknown key, did you mean 'topic'?"],
        ),
    ],
)
def test_misspelt_key_is_refused_with_the_nearest_one(complaints: Complaints, text: str, expected: list[str]) -> None:
    """An unknown key is an error with its path and the most similar key of that place."""
    problems_of_text = complaints(text)

    assert len(problems_of_text) == len(expected)
    assert all(problem.startswith(start) for problem, start in zip(problems_of_text, expected, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD.replace("name: orders\n", ""), "name: is required and missing"),
        (GOOD.replace("name: orders", "name: Orders-1"), "name: 'Orders-1' is not a pipeline name"),
        (GOOD.replace("[orders]", "[]"), "source: give either topics or topics_pattern"),
        (GOOD.replace("[orders]", "[a, a]"), "source.topics: a topic is named twice"),
        (GOOD.replace("[orders]", "['orders.*']"), "source.topics.0: 'orders.*' is not a topic name"),
        (GOOD.replace("shop.orders", "orders"), "destinations.0.table: 'orders' is not a table name"),
        (
            GOOD.replace("id: long", "id: bigint"),
            "destinations.0.columns.id.type: unknown type 'bigint', did you mean 'long'?",
        ),
        (
            GOOD.replace("id: long", "no: long"),
            "destinations.0.columns.0.[key]: Input should be a valid string, found False",
        ),
        (
            GOOD.replace("id: long", "_kafka_offset: long"),
            "destinations.0.columns._kafka_offset: is the name of a Kafka column",
        ),
        (
            GOOD + "    kafka_columns: {topic: x, offset: x}\n",
            "destinations.0.kafka_columns: expected five names, found one twice",
        ),
        (GOOD + "    kafka_columns: true\n", "destinations.0.kafka_columns: Input should be a valid dictionary"),
        (GOOD + "    kafka_columns:\n", "destinations.0.kafka_columns: Input should be a valid dictionary"),
        (GOOD + "    partition_by: [document]\n", "destinations.0.partition_by.0: 'document' is not a column"),
        (GOOD + "    partition_by: [days(at)]\n", "destinations.0.partition_by.0: 'days(at)' is no partition field"),
        (
            GOOD + "    partition_by: ['bucket(4, id)', 'bucket(8, id)']\n",
            "destinations.0.partition_by: names a field twice",
        ),
        (GOOD + "interval: 10s\n", "interval: '10s' is shorter than a minute"),
        (GOOD + "interval: 5\n", "interval: Input should be a valid string, found 5"),
        (GOOD + "interval: 999999999999d\n", "interval: '999999999999d' is too long an interval"),
        (GOOD + "start: middle\n", "start: Input should be 'earliest' or 'latest', found 'middle'"),
        (GOOD + "limits: {max_records: 0}\n", "limits.max_records: Input should be greater than 0, found 0"),
        (GOOD + "dead_letters: {table: shop.orders}\n", "file: destination shop.orders, dead letters shop.orders and"),
        (GOOD + "dead_letters: {table: shop.orders__ledger}\n", "file: destination shop.orders, dead letters"),
        (GOOD + "dead_letters: {tolerance: {max_rate: .nan}}\n", "dead_letters.tolerance.max_rate: Input should be"),
    ],
)
def test_invalid_value_is_refused_once(complaints: Complaints, text: str, expected: str) -> None:
    """Each mistake is one error, with its key path, the expectation and the value."""
    (problem,) = complaints(text)

    assert problem.startswith(expected)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (GOOD.replace("id: long", "id: decimal(12, 2)"), "destinations.0.columns.2)"),
        (GOOD.replace("id: long", "id: {type: decimal(12,2), from: a}"), "destinations.0.columns.id.2)"),
        (GOOD.replace("id: long", "id: struct<a:int,b:string>"), "destinations.0.columns.b:string>"),
        (GOOD + "transforms: [{type: Cast, spec: {id: decimal(12,2)}}]\n", "transforms.0.spec.2)"),
    ],
)
def test_text_that_yaml_splits_at_its_comma_is_to_be_quoted(complaints: Complaints, text: str, key: str) -> None:
    """The error about the rest of the text recommends quotes."""
    (advice,) = [problem for problem in complaints(text) if "quote it, as in 'decimal(12,2)'" in problem]

    assert advice.startswith(f"{key}: ")


def test_all_mistakes_are_reported_at_once(complaints: Complaints) -> None:
    """So a file can be corrected in one go."""
    text = GOOD.replace("long", "lng").replace("[orders]", "[orders], clustr: a") + "start: x\n"

    keys = {problem.split(":")[0] for problem in complaints(text)}

    assert keys == {"start", "source.clustr", "destinations.0.columns.id.type"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected keys and values, found an empty file"),
        ("# nothing\n", "expected keys and values, found an empty file"),
        ("- a\n", "expected keys and values, found list"),
        ("just words\n", "expected keys and values, found str"),
        ("a: [1\n", "line 2: not YAML"),
        ("a: 1\n---\nb: 2\n", "line 2: not YAML"),
        ("a: \x07\n", "not YAML"),
        ("a: @b\n", "line 1: not YAML: found character '@'"),
        ("a: " + "[" * 4_000, "line 1: expected at most 64 values within each other"),
        ("a: " + "[" * 100_000, "line 1: expected at most 64 values within each other"),
        (GOOD + "name: again\n", "line 6: not YAML: key 'name' is written twice"),
        (GOOD.replace("at: timestamptz", "id: int"), "line 5: not YAML: key 'id' is written twice"),
        (GOOD + "x: {1: a, 1: b}\n", "line 6: not YAML: key 1 is written twice"),
        (GOOD + "start: 2024-13-45\n", "line 6: not YAML: unreadable value"),
        (GOOD + "start: !!int five\n", "line 6: not YAML: unreadable value"),
        (GOOD + "start: !!timestamp five\n", "line 6: not YAML: unreadable value"),
        (GOOD + "? [a]\n: 1\n", "line 6: not YAML: found unhashable key"),
        (GOOD + "start: !!python/object:os.system {}\n", "line 6: not YAML: could not determine a constructor"),
        (GOOD + "start: &a [*a]\n", "line 6: alias *a has no anchor before it, or is part"),
    ],
)
def test_file_that_is_no_yaml_is_reported_with_its_name(complaints: Complaints, text: str, expected: str) -> None:
    """For any content, the error has the file's name, and a line if there is one."""
    (problem,) = complaints(text)

    assert problem.startswith(expected)


def test_merge_keys_of_yaml_are_accepted(load: Load) -> None:
    """YAML's `<<` adds keys of another mapping; keys of the mapping itself win."""
    text = GOOD.replace("{id: long,", "{<<: {id: int, more: date}, id: long,")

    columns = load(text).destinations[0].columns

    assert {name: column.type for name, column in columns.items()} == {
        "id": "long",
        "more": "date",
        "type": "string",
        "at": "timestamptz",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:OWNER}", "rpc"),
        ("${env:OWNER:-other}", "rpc"),
        ("${env:MISSING:-other}", "other"),
        ("${env:MISSING:-}", ""),
        ("${env:MISSING:-a:-b}", "a:-b"),
        ("${env:EMPTY:-other}", "other"),
        ("${env:EMPTY}", ""),
        ("a-${env:OWNER}-${local:kafka}", "a-rpc-127.0.0.1:9092"),
        ("${env:TRICKY}", "${env:OWNER}"),
    ],
)
def test_references_are_resolved_once(load: Load, text: str, expected: str) -> None:
    """A reference within the value of an environment variable is not resolved."""
    assert load(GOOD + f"owner: '{text}'\n").owner == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${env:MISSING}", "owner: environment variable MISSING is not set (or give a default: ${env:MISSING:-value})"),
        ("${local:kafak}", "owner: ${local:kafak}: unknown name; known: kafka"),
        ("${vault:x}", "owner: ${vault:x}: unknown kind 'vault'; known: env, file, airflow, local"),
    ],
)
def test_missing_reference_is_reported(complaints: Complaints, text: str, expected: str) -> None:
    """A reference without value is an error with its key path."""
    assert complaints(GOOD + f"owner: '{text}'\n") == [expected]


def test_missing_references_are_reported_together(complaints: Complaints) -> None:
    """One error names all missing variables of a file, also those in lists."""
    problems_of_text = complaints(GOOD.replace("[orders]", "['${env:A}', '${env:B}']") + "owner: ${env:C}\n")

    assert [problem.split(":")[0] for problem in problems_of_text] == ["source.topics.0", "source.topics.1", "owner"]


def test_file_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    """A file in another encoding, or a folder of that name, is an error like any other."""
    (tmp_path / "latin.yaml").write_bytes(GOOD.encode() + b"owner: M\xfcller\n")
    (tmp_path / "folder.yaml").mkdir()

    for name in ("latin.yaml", "folder.yaml", "nowhere.yaml"):
        with pytest.raises(ConfigError, match="can't be read"):
            load_pipeline(tmp_path / name, REFERENCES)


def test_one_broken_file_leaves_the_good_ones_usable(tmp_path: Path) -> None:
    """Valid files stay usable, and the errors of the others are available."""
    (tmp_path / "orders.yaml").write_text(GOOD)
    (tmp_path / "pizzas.yml").write_text(GOOD.replace("name: orders", "name: pizzas"))
    (tmp_path / "notes.txt").write_text("not a pipeline")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "date.yaml").write_text(GOOD + "start: 2024-13-45\n")
    (tmp_path / "deep.yaml").write_text(GOOD.replace("long", "list<" * 5000))
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "payments.yaml").write_text(GOOD.replace("orders", "payments") + "interval: 999999999999d\n")

    loaded = load_pipelines(tmp_path, REFERENCES)

    assert sorted(loaded.usable) == ["orders", "pizzas"]
    assert {error.file.name for error in loaded.broken} == {
        "bytes.yaml",
        "date.yaml",
        "deep.yaml",
        "empty.yaml",
        "payments.yaml",
    }
    assert loaded.get("orders").name == "orders"
    with pytest.raises(ConfigError, match="too long an interval"):
        loaded.get("payments")
    with pytest.raises(Terminal, match="did you mean 'orders'") as caught:
        loaded.get("order")
    assert "known pipelines: orders, pizzas" in str(caught.value)


def test_fingerprint_follows_the_file(load: Load) -> None:
    """The same file gives the same hash, another column type another one."""
    assert load(GOOD).outcome_fingerprint == load(GOOD + "# a comment\n").outcome_fingerprint
    assert load(GOOD).outcome_fingerprint == load(GOOD.replace("id: long", "id: {type: LONG}")).outcome_fingerprint
    assert load(GOOD).outcome_fingerprint != load(GOOD.replace("id: long", "id: int")).outcome_fingerprint
