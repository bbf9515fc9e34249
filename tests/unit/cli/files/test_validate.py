"""`frazil validate`: a broken file is named with the key and the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Terminal

Frazil = Callable[..., Any]

PIPELINES = len(list((Path(__file__).parents[4] / "include" / "pipelines").glob("*.yaml")))
"""Pipeline files of the project, of which `place` has copies."""


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_project_as_it_is_can_be_used(frazil: Frazil) -> None:
    """The files that a newcomer starts from are valid."""
    ended = frazil("validate")

    assert ended.code == 0
    assert f"{PIPELINES + 1} files, all usable" in ended.out


def test_unknown_key_is_named_with_its_path_and_the_nearest_one(frazil: Frazil, place: Path) -> None:
    """A slip deep in a file is found without reading the reference."""
    replace(place / "pipelines" / "pizzas.yaml", "owner: rpc", "ownr: rpc")
    replace(place / "pipelines" / "payments.yaml", "doc: A time", "dcc: A time")

    ended = frazil("validate")

    assert ended.code == Terminal.exit_code
    assert "ownr: unknown key, did you mean 'owner'?" in ended.out
    assert "destinations.0.columns.created_at.dcc: unknown key, did you mean 'doc'?" in ended.out
    assert f"{PIPELINES + 1} files, 2 broken" in ended.out


def test_a_missing_environment_variable_is_named(frazil: Frazil, place: Path) -> None:
    """Also in the settings, and the pipelines are judged all the same."""
    replace(place / "settings.yaml", "${local:kafka}", "${env:BROKERS_OF_NOBODY}")

    ended = frazil("validate")

    assert ended.code == Terminal.exit_code
    assert "clusters.local.bootstrap_servers: environment variable BROKERS_OF_NOBODY is not set" in ended.out
    assert ended.out.count("ok ") == PIPELINES


def test_a_run_with_broken_settings_says_the_same(frazil: Frazil, place: Path) -> None:
    """The message that validate gives is the one that every command gives."""
    replace(place / "settings.yaml", "${local:kafka}", "${env:BROKERS_OF_NOBODY}")

    ended = frazil("run", "pizzas")

    assert ended.code == Terminal.exit_code
    assert "environment variable BROKERS_OF_NOBODY is not set" in ended.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("catalog: lak", "catalog: the settings have no 'lak' under catalogs, did you mean 'lake'?"),
        ("engine: flink", "engine: the settings have no 'flink' under engines, known: auto, inline, spark"),
    ],
)
def test_unknown_name_in_a_pipeline_is_reported_before_the_run(
    frazil: Frazil, place: Path, line: str, message: str
) -> None:
    """A pipeline file can be valid by itself and still point nowhere."""
    file = place / "pipelines" / "pizzas.yaml"
    replace(file, "owner: rpc", f"owner: rpc\n{line}")

    ended = frazil("validate", str(file))

    assert ended.code == Terminal.exit_code
    assert message in ended.out


def test_route_that_sends_every_record_to_every_table_is_a_warning(frazil: Frazil, place: Path) -> None:
    """Several tables and no route: usable, with a warning, since it is rarely meant."""
    file = place / "pipelines" / "payments_by_type.yaml"
    file.write_text(file.read_text(encoding="utf-8").partition("route:")[0], encoding="utf-8")

    ended = frazil("validate", str(file))

    assert ended.code == 0
    assert "warning: route: without it every record goes to each of 3 destinations" in ended.out


def test_only_named_files_are_validated(frazil: Frazil, place: Path) -> None:
    """An editor that checks one file is not told about the others."""
    replace(place / "pipelines" / "pizzas.yaml", "owner: rpc", "ownr: rpc")

    ended = frazil("validate", str(place / "pipelines" / "payments.yaml"), str(place / "settings.yaml"))

    assert ended.code == 0
    assert "2 files, all usable" in ended.out


def test_duplicate_pipeline_name_is_reported(frazil: Frazil, place: Path) -> None:
    """Two files of one pipeline would fight for its position."""
    text = (place / "pipelines" / "pizzas.yaml").read_text(encoding="utf-8")
    (place / "pipelines" / "zz.yaml").write_text(text, encoding="utf-8")

    ended = frazil("validate")

    assert ended.code == Terminal.exit_code
    assert "name: 'pizzas' is the name of several files" in ended.out

    ended = frazil("validate", "pizzas")

    assert ended.code == Terminal.exit_code
    assert "is the name of several files, so none of them runs" in ended.out.replace("\n", " ")


def test_a_file_that_is_not_there_is_a_problem_not_a_crash(frazil: Frazil, place: Path) -> None:
    """A typo in the file name reads like any other problem."""
    ended = frazil("validate", str(place / "nothing.yaml"))

    assert ended.code == Terminal.exit_code
    assert "can't be read" in ended.out


def test_programs_get_one_line_of_json(frazil: Frazil, place: Path) -> None:
    """CI shows the problems beside the file."""
    replace(place / "pipelines" / "pizzas.yaml", "owner: rpc", "ownr: rpc")

    report = json.loads(frazil("validate", "--json").out)

    assert report["ok"] is False
    assert [file["kind"] for file in report["files"]] == ["settings", *["pipeline"] * PIPELINES]
    [broken] = [file for file in report["files"] if file["problems"]]
    assert broken["file"].endswith("pizzas.yaml")
    assert broken["problems"] == ["ownr: unknown key, did you mean 'owner'?"]


@pytest.mark.parametrize(
    ("value", "transforms", "message"),
    [
        ("{format: avro}", "[]", "value: format avro needs one of registry, schema or schema_file"),
        ("{format: avro, registry: main, fields: [a]}", "[]", "value.fields: is for format json or delimited"),
        ("{format: avor}", "[]", "value.format: 'avor' is not a format, did you mean 'avro'?"),
        ("{format: avro, schema: 'no schema'}", "[]", "value: Avro schema"),
        ("{format: avro, registry: main}", "[]", "value.registry: the settings have no 'main' under registries"),
        ("{format: long}", "[]", "destinations.0.columns.id: "),
        ("{fields: {a: long}}", "[{type: Flaten}]", "'Flaten' is no transform, did you mean 'Flatten'?"),
        ("{fields: {a.b: long, a: 'struct<b: long>'}}", "[{type: Flatten}]", "transforms.0: Flatten: "),
    ],
)
def test_impossible_combinations_are_reported_before_the_first_run(
    frazil: Frazil, tmp_path: Path, value: str, transforms: str, message: str
) -> None:
    """Formats, schemas, transforms and columns that don't fit together are named before anything is read."""
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"name: orders\nsource: {{topics: [orders]}}\nvalue: {value}\ntransforms: {transforms}\n"
        "destinations: [{table: shop.orders, columns: {id: {type: uuid, required: true}}}]\n"
    )

    ended = frazil("validate", str(file))

    assert ended.code == Terminal.exit_code
    assert message in ended.out


def test_name_of_a_file_is_escaped(frazil: Frazil, place: Path) -> None:
    """Control characters in it are shown as escapes, as those of keys are."""
    (place / "pipelines" / "a\x1b[2J.yaml").write_text("name: 5\n")
    ended = frazil("validate")
    assert "\x1b" not in ended.out
    assert "a\\x1b[2J.yaml" in ended.out


def test_pipeline_is_judged_by_its_name(frazil: Frazil, place: Path) -> None:
    """The name is what every other command takes; the file may be called otherwise, and may be broken."""
    (place / "pipelines" / "pizzas.yaml").rename(place / "pipelines" / "z.yaml")
    replace(place / "pipelines" / "z.yaml", "owner: rpc", "ownr: rpc")

    usable, broken, missing = frazil("validate", "payments"), frazil("validate", "pizzas"), frazil("validate", "pizza")

    assert "1 file, all usable" in usable.out
    assert "z.yaml" in broken.out
    assert "ownr: unknown key" in broken.out
    assert (missing.code, "did you mean" in missing.err) == (Terminal.exit_code, True)
