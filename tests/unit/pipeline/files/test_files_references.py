"""References to secrets in properties files and in Airflow's connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.pipeline.files import files
from frazil.pipeline.files.files import REFERENCE, References, connection_fields, connection_variable
from frazil.pipeline.files.load import ConfigError, load_settings


def resolved(text: str, env: dict[str, str] | None = None) -> str:
    return REFERENCE.sub(References(env or {}, {}).resolve, text)


def test_secret_file_is_read_as_kafka_connect_reads_it(tmp_path: Path) -> None:
    """The value of a key, with escapes and blanks; a reference within a value is not resolved."""
    file = tmp_path / "secrets.properties"
    file.write_text("# comment\nkafka.owner = a\\u0062c \\\n  d=e\nother: ${env:OWNER}\n")

    assert resolved(f"${{file:{file}:kafka.owner}}") == "abc d=e"
    assert resolved(f"${{file:{file}:other}}", {"OWNER": "rpc"}) == "${env:OWNER}"
    assert resolved(f"${{file:{file}:missing:-nobody}}") == "nobody"


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("${file:/nowhere/x:password}", "/nowhere/x can't be read: No such file or directory"),
        ("${file:secrets.properties:password}", "expected ${file:/absolute/path:key}"),
        ("${file:FOLDER/broken.properties:password}", "can't be read: it is no properties file"),
        ("${file:FOLDER/secrets.properties:user}", "secrets.properties has no key 'user'"),
        ("${airflow:kafka_prod}", "expected ${airflow:CONNECTION:FIELD}"),
        ("${airflow::password}", "expected ${airflow:CONNECTION:FIELD}"),
    ],
)
def test_missing_secret_is_reported_without_its_file_content(tmp_path: Path, written: str, says: str) -> None:
    """The errors about a missing file or key, a relative path and an invalid file quote nothing of the file."""
    (tmp_path / "secrets.properties").write_text("password=hunter2\n")
    (tmp_path / "broken.properties").write_text("password=hunter2 \\u00zz\n")

    with pytest.raises(KeyError) as caught:
        resolved(written.replace("FOLDER", str(tmp_path)))

    assert says in caught.value.args[0]
    assert "hunter2" not in caught.value.args[0]


def test_unknown_connection_falls_back_to_default_or_stays_a_reference() -> None:
    """The environment variable is used, or the default; without both the reference stays unresolved."""
    text = "${airflow:kafka-prod:password}"
    variable = connection_variable("kafka-prod", "password")

    assert variable == "FRAZIL_CONNECTION__KAFKA_PROD__PASSWORD"
    assert resolved(text, {variable: "hunter2"}) == "hunter2"
    assert resolved("${airflow:kafka-prod:password:-none}") == "none"
    assert resolved("${airflow:kafka-prod:password:-}") == ""
    assert resolved(text) == text
    settings = {"properties": [f"{text} ${{env:A}}", "${airflow:malformed:}", 3]}
    assert list(connection_fields(settings)) == [("kafka-prod", "password")]


def test_two_connections_of_one_variable_are_refused(tmp_path: Path) -> None:
    """The variable could have either value, so the file is refused with both names; a repeated reference is fine."""
    file = tmp_path / "settings.yaml"
    file.write_text('{clusters: {a: "${airflow:kafka-prod:password} ${airflow:kafka-prod:password}"}}')
    with pytest.raises(ConfigError) as of_the_model:
        load_settings(file, References({}, {}))
    assert "variable" not in str(of_the_model.value)

    file.write_text('{clusters: {a: "${airflow:kafka-prod:password}", b: "${airflow:Kafka.prod:password}"}}')
    with pytest.raises(
        ConfigError,
        match=r"\$\{airflow:kafka-prod:password\} and \$\{airflow:Kafka\.prod:password\} are both the variable",
    ):
        load_settings(file, References({}, {}))


def test_written_properties_are_read_back_unchanged() -> None:
    """This holds for all keys and values, including Java's special characters."""
    variables = {"a=b: c": " #!\\ x\t\r\n", "ü": "", "plain": "a=b:c"}

    assert files.read(files.write(variables)) == variables
