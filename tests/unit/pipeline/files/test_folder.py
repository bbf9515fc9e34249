"""The folder of pipeline files."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.pipeline.files import folder
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import Pipelines, load_pipelines
from frazil.pipeline.files.load import load_pipeline
from frazil.pipeline.models.pipeline_file import Pipeline

NONE = References({}, {}).allowing(["env:NOBODY"])

FILE = """\
name: {0}
source: {{topics: [{0}]}}
destinations: [{{table: shop.{0}, columns: {{id: long}}}}]
"""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read and checked."""
    names: list[str] = []

    def noted(path: Path, references: References) -> Pipeline:
        names.append(path.name)
        return load_pipeline(path, references)

    monkeypatch.setattr(folder, "load_pipeline", noted)
    return names


def test_task_of_one_pipeline_reads_one_file(tmp_path: Path, read: list[str]) -> None:
    """Loading one pipeline reads one file of many; an unknown name reads all files, and is an error."""
    for name in ("orders", "pizzas", "returns"):
        (tmp_path / f"{name}.yaml").write_text(FILE.format(name))
    pipelines = Pipelines(tmp_path, NONE)

    assert pipelines.get("pizzas").name == "pizzas"
    assert read == ["pizzas.yaml"]
    with pytest.raises(Terminal, match="did you mean 'pizzas'"):
        pipelines.get("pizza")
    assert len(read) == 4


@pytest.mark.parametrize(
    "copy",
    [
        FILE.format("orders").replace("name: orders", "'name' : 'orders'"),
        FILE.format("orders").replace("name: orders", "name: &n orders # mine"),
        FILE.format("orders").replace("name: orders", "name: ${env:NOBODY:-orders}"),
        FILE.format("orders").replace("name: orders", "? name\n: orders"),
        FILE.format("orders").replace("\n", "\r\n"),
        "{name: orders, source: {topics: [a]}, destinations: [{table: s.a, columns: {id: long}}]}",
        FILE.format("orders").replace("name: orders", 'name: "ord\\x65rs"\ndescription: "\nname: other\n"'),
    ],
)
def test_two_spellings_of_one_name_are_both_refused(tmp_path: Path, read: list[str], copy: str) -> None:
    """Neither of two files with one name is valid, in any spelling, even if only one pipeline is loaded."""
    (tmp_path / "a.yaml").write_text(FILE.format("orders"))
    (tmp_path / "b.yaml").write_text(copy)

    pipelines = Pipelines(tmp_path, NONE)

    assert pipelines.find("orders") is None
    assert {"a.yaml", "b.yaml"} <= set(read)
    assert [error.file.name for error in pipelines.broken] == ["a.yaml", "b.yaml"]


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    """Otherwise a typo or a failed mount would silently stop all ingestion."""
    with pytest.raises(Terminal, match=r"does not exist: .*nowhere"):
        load_pipelines(tmp_path / "nowhere", References({}, {}))


def test_two_files_with_one_name_are_both_refused(tmp_path: Path) -> None:
    """A copy of a file must not continue from the position of the original."""
    (tmp_path / "a.yaml").write_text(FILE.format("orders"))
    (tmp_path / "b.yaml").write_text(FILE.format("orders") + "owner: copy\n")

    pipelines = load_pipelines(tmp_path, NONE)

    assert not pipelines.usable
    assert [error.file.name for error in pipelines.broken] == ["a.yaml", "b.yaml"]
    assert all("a.yaml" in str(error) and "b.yaml" in str(error) for error in pipelines.broken)


def test_folder_without_pipelines_is_valid(tmp_path: Path) -> None:
    """A new project has no pipelines yet; the error for a name says so."""
    with pytest.raises(Terminal, match=r"'orders'(.|\n)*known pipelines: none"):
        load_pipelines(tmp_path, NONE).get("orders")
