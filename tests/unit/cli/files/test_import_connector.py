"""`frazil import-connector`: what is written can be used, and what can't is said."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.errors import Terminal
from frazil.runtime.home import project_root

Frazil = Callable[..., Any]

WORKER = """
bootstrap.servers=kafka.example.org:9092
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
security.protocol=SASL_SSL
consumer.sasl.mechanism=PLAIN
consumer.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="frazil" password="hunter2";
"""
CONNECTOR = {
    "name": "orders-sink",
    "config": {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.tables": "shop.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "https://catalog.example.org",
        "iceberg.catalog.credential": "client:hunter2",
    },
}


@pytest.fixture
def files(place: Path) -> Path:
    (place / "worker.properties").write_text(WORKER, encoding="utf-8")
    (place / "orders.json").write_text(json.dumps(CONNECTOR), encoding="utf-8")
    (place / "columns.yaml").write_text("{id: long, at: timestamptz}", encoding="utf-8")
    return place


def importing(files: Path, *options: str) -> tuple[str, ...]:
    worker = ("--worker", str(files / "worker.properties"), "--out", str(files / "imported"))
    return ("import-connector", str(files / "orders.json"), *worker, *options)


def test_imported_connector_is_a_valid_project(frazil: Frazil, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its columns and its variables, an imported connector is a valid project."""
    ended = frazil(*importing(files, "--columns", str(files / "columns.yaml")))

    assert ended.code == 0
    assert "1 connector, all imported" in ended.out
    for name in ("KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD", "CATALOG_CREDENTIAL"):
        assert name in ended.out
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("FRAZIL_SETTINGS", str(files / "imported" / "settings.yaml"))
    monkeypatch.setenv("FRAZIL_PIPELINES", str(files / "imported" / "pipelines"))
    assert "2 files, all usable" in frazil("validate").out


def test_a_hole_is_named_and_refused_by_validation(frazil: Frazil, files: Path) -> None:
    """Nobody runs a pipeline without columns by accident."""
    ended = frazil(*importing(files))

    assert "to fill in: columns: {}" in ended.out
    checked = frazil("validate", str(files / "imported" / "pipelines" / "orders_sink.yaml"))
    assert checked.code == Terminal.exit_code
    assert "destinations.0.columns" in checked.out


def test_what_validation_would_refuse_is_refused_with_its_words(frazil: Frazil, files: Path) -> None:
    """A file that is written is one that can be run: Spark, which merges rows, has no times of day."""
    upsert = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
    connector = {**CONNECTOR, "config": {**CONNECTOR["config"], **upsert}}  # type: ignore[dict-item]
    (files / "orders.json").write_text(json.dumps(connector), encoding="utf-8")
    (files / "columns.yaml").write_text("{id: long, opens: time}", encoding="utf-8")

    ended = frazil(*importing(files, "--columns", str(files / "columns.yaml")))

    assert ended.code == Terminal.exit_code
    assert "Spark has no type time" in ended.out
    assert not (files / "imported" / "pipelines").exists()


def test_no_secret_is_in_files_or_output(frazil: Frazil, files: Path) -> None:
    """Reports end up in tickets, files in repositories."""
    ended = frazil(*importing(files))
    reported = frazil(*importing(files, "--json", "--force"))

    written = [path.read_text(encoding="utf-8") for path in (files / "imported").rglob("*.yaml")]
    assert len(written) == 2
    assert "hunter2" not in "".join([*written, ended.out, ended.err, reported.out])


def test_existing_files_stay(frazil: Frazil, files: Path) -> None:
    """Work on an imported file is not lost to a second import."""
    frazil(*importing(files))
    file = files / "imported" / "pipelines" / "orders_sink.yaml"
    file.write_text("mine", encoding="utf-8")

    again = frazil(*importing(files))

    assert again.code == Terminal.exit_code
    assert "exists already" in again.err
    assert file.read_text(encoding="utf-8") == "mine"


def test_one_refused_connector_does_not_keep_the_others(frazil: Frazil, files: Path) -> None:
    """Of twelve connectors eleven are written, and the exit code tells of the twelfth."""
    (files / "jdbc.properties").write_text(
        "name=db\nconnector.class=io.confluent.connect.jdbc.JdbcSinkConnector\nconnection.password=hunter2\n",
        encoding="utf-8",
    )

    ended = frazil(*importing(files), str(files / "jdbc.properties"), "--json")

    report = json.loads(ended.out)
    assert ended.code == Terminal.exit_code
    assert [connector["pipeline"] is None for connector in report["connectors"]] == [False, True]
    assert "only the Iceberg sink is imported" in report["connectors"][1]["findings"][0]["message"]


@pytest.mark.parametrize("text", ["{", "null", "[1]"])
def test_a_broken_file_ends_with_one_line(frazil: Frazil, files: Path, text: str) -> None:
    """The file is named, and nothing of it is quoted."""
    (files / "orders.json").write_text(text, encoding="utf-8")

    ended = frazil(*importing(files))

    assert ended.code == Terminal.exit_code
    assert "orders.json" in ended.err + ended.out


def test_documented_example_has_the_documented_result(
    frazil: Frazil, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries the page sees what it shows."""
    page = (project_root() / "docs" / "from-kafka-connect.md").read_text(encoding="utf-8")
    connector, worker, columns, transcript, pipeline = re.findall(
        r"^```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    monkeypatch.chdir(place)
    for name, text in (("orders-sink.json", connector), ("worker.properties", worker), ("columns.yaml", columns)):
        (place / name).write_text(text, encoding="utf-8")
    command, shown = transcript.split("\n", 1)

    ended = frazil(*command.removeprefix("$ frazil ").split())

    assert ended.out.strip() == shown.strip()
    assert (place / "imported" / "pipelines" / "orders_sink.yaml").read_text(encoding="utf-8") == pipeline


@pytest.mark.parametrize("text", ["{shop.orders: {type: string, id: long}}", "{type: string, id: long}"])
def test_column_may_be_named_type(frazil: Frazil, files: Path, text: str) -> None:
    """Columns of a table by its name, or of the one table: one of them may be called type."""
    (files / "columns.yaml").write_text(text, encoding="utf-8")

    ended = frazil(*importing(files, "--columns", str(files / "columns.yaml")))

    assert ended.code == 0, ended.err
    (written,) = (files / "imported" / "pipelines").iterdir()
    (destination,) = yaml.safe_load(written.read_text(encoding="utf-8"))["destinations"]
    assert destination["columns"] == {"type": "string", "id": "long"}


@pytest.mark.parametrize("text", ["{shop.orders: 7}", "{shop.orders: [id]}", "{name: x, config: {a: 7}}", "7"])
def test_columns_of_another_shape_are_refused_by_name(frazil: Frazil, files: Path, text: str) -> None:
    """Whatever file is given: it is refused by name, with what is expected."""
    (files / "columns.yaml").write_text(text, encoding="utf-8")

    ended = frazil(*importing(files, "--columns", str(files / "columns.yaml")))

    assert ended.code == Terminal.exit_code
    assert "columns.yaml" in ended.err
    assert "{table: {column: type}}" in ended.err


def test_file_without_connectors_is_refused(frazil: Frazil, files: Path) -> None:
    """Nothing was imported, so nothing is said to be."""
    (files / "orders.json").write_text("[]", encoding="utf-8")

    ended = frazil(*importing(files))

    assert ended.code == Terminal.exit_code
    assert "has no connector" in ended.err
