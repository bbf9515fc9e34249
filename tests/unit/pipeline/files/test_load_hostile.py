"""Hostile files are refused by name, with the line if there is one, and don't keep others from being read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from frazil.cli.files.verdict import judge
from frazil.pipeline.files.files import References, parse_yaml, stated_owner
from frazil.pipeline.files.folder import load_pipelines
from frazil.pipeline.files.load import MAX_IMPORTS, ConfigError, load_pipeline

NONE = References({}, {})

GOOD = """\
name: good
source: {topics: [good]}
destinations: [{table: shop.good, columns: {id: long}}]
"""

BAD = GOOD.replace("good", "bad")

HOSTILE = {
    "half of a character": ('description: "\\ud800"\n', r"line 4: a text holds \ud800, which can't be stored"),
    "half of a character as key": ('"\\ud800": 1\n', r"line 4: a text holds \ud800, which can't be stored"),
    "half of a character in a file name": (
        'value: {format: avro, schema_file: "a\\ud800b"}\n',
        r"line 4: a text holds",
    ),
    "NUL in a file name": ('value: {format: avro, schema_file: "a\\0b"}\n', r"line 4: a text holds \x00"),
    "number of 20,000 digits": (
        f"catch_up: 0x{'f' * 20_000}\n",
        "line 4: expected a number of at most 100 characters, found 20,002",
    ),
    "number to base 60 by its type": (
        f"catch_up: !!int 1{':1' * 130_000}\n",
        "line 4: expected a number of at most 100",
    ),
    "number beyond 64 bits": (f"catch_up: {2**63}\n", "catch_up: expected a whole number between -9223372036854775807"),
    "number of 4,000 digits in quotes": (f'catch_up: "{"9" * 4_000}"\n', "catch_up: expected a whole number between"),
    "offset beyond 64 bits": (
        f"start: {{offsets: {{bad: {{0: {2**63}}}}}}}\n",
        "start.offsets: expected a whole number between",
    ),
}


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """A folder with one valid pipeline file, beside a folder of schemas."""
    for name in ("pipelines", "schemas"):
        (tmp_path / name).mkdir()
    (tmp_path / "pipelines/good.yaml").write_text(GOOD)
    return tmp_path / "pipelines"


@pytest.mark.parametrize(("line", "problem"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_value_is_refused_where_it_stands_and_other_pipelines_load(
    pipelines: Path, line: str, problem: str
) -> None:
    """DAGs, the list of broken files and `validate` read the whole folder: one file stops none of them."""
    bad = pipelines / "bad.yaml"
    bad.write_text(BAD + line)

    loaded = load_pipelines(pipelines, NONE)

    assert list(loaded.usable) == ["good"]
    [error] = loaded.broken
    assert error.file == bad
    assert error.problems[0].startswith(problem)
    stated_owner(bad)
    verdicts = {
        Path(verdict.file).name: verdict.problems for verdict in judge([], {"FRAZIL_PIPELINES": str(pipelines)})
    }
    assert verdicts["good.yaml"] == ()
    assert verdicts["bad.yaml"][0].startswith(problem)


@pytest.mark.parametrize("text", ["1:30", "1:1.5", "-190:20:30", "1" + ":1" * 300 + ":1.5", "1" + ":1" * 130_000])
def test_numbers_with_colons_are_texts(text: str) -> None:
    """YAML 1.1 reads them to base 60: a float of 609 bytes overflowed, an integer of 260 KB took five seconds."""
    assert parse_yaml(f"x: {text}\n") == {"x": text}


def test_imports_of_imports_are_read_in_any_depth(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of imports needs no stack, keeps its order, and is bounded."""
    chain = {f"a{n}.proto": f'import "a{n + 1}.proto";\n' for n in range(MAX_IMPORTS)}
    last = {f"a{MAX_IMPORTS}.proto": "message M {int64 id = 1;}\n"}
    for name, text in (chain | last).items():
        (pipelines.parent / "schemas" / name).write_text(text)
    bad = pipelines / "bad.yaml"
    bad.write_text(BAD + "value: {format: protobuf, message: M, schema_file: a0.proto}\n")

    imports = load_pipeline(bad, NONE).value.schema_imports

    assert list(imports or ()) == [f"a{n}.proto" for n in range(1, MAX_IMPORTS + 1)]
    monkeypatch.setattr("frazil.pipeline.files.load.MAX_IMPORTS", 3)
    [error] = load_pipelines(pipelines, NONE).broken
    assert error.problems == ["value.schema_file: expected at most 3 imported files, found more"]


@pytest.mark.parametrize("unexpected", [OverflowError, ValueError, RecursionError])
def test_unforeseen_error_names_the_file_and_quotes_no_value(
    pipelines: Path, unexpected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error's own text may quote the value of a reference."""

    def fail(*_: object) -> object:
        raise unexpected("hunter2")

    (pipelines / "bad.yaml").write_text(BAD + "value: {format: avro, schema_file: a.avsc}\n")
    monkeypatch.setattr("frazil.pipeline.files.load._with_schema", fail)

    loaded = load_pipelines(pipelines, NONE)

    assert list(loaded.usable) == ["good"]
    [problem] = loaded.broken[0].problems
    assert problem.startswith(f"file: can't be read: {unexpected.__name__} in {Path(__file__).name}, line ")
    assert "hunter2" not in f"{loaded.broken[0]}{loaded.broken[0].__context__}"


def test_reference_in_the_name_of_a_schema_file_is_not_quoted_resolved(pipelines: Path) -> None:
    """The error about a missing file shows the reference."""
    (pipelines / "bad.yaml").write_text(BAD + 'value: {format: avro, schema_file: "${env:REGION}.avsc"}\n')

    with pytest.raises(ConfigError) as caught:
        load_pipeline(pipelines / "bad.yaml", References({"REGION": "eu-central-7"}, {}).allowing(["env:REGION"]))

    [problem] = caught.value.problems
    assert problem.startswith("value.schema_file: ")
    assert "${env:REGION}.avsc can't be read" in problem
    assert "eu-central-7" not in f"{caught.value}"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such name")
def test_complaint_about_a_file_whose_name_is_no_utf8_can_be_stored(pipelines: Path) -> None:
    """Errors are stored in Airflow's database and sent to people, in UTF-8."""
    Path(os.fsdecode(os.fsencode(pipelines) + b"/b\xff.yaml")).write_text("a: 1\n")

    [error] = load_pipelines(pipelines, NONE).broken

    assert str(error).encode().startswith(f"{pipelines}/b\\udcff.yaml:".encode())
