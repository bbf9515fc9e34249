"""House rules that no linter knows: pins, sizes, pages that must agree with the code."""

from __future__ import annotations

import ast
import builtins
import re
import runpy
import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pytest_socket import SocketBlockedError

import frazil

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("include", "plugins", "dags", "spark_jobs", "docs", "docker", "tests")
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50
MAX_VERBS = 19
MAX_MAP_LINES = 125
WITHOUT_PACKAGE = {"bench", "model"}
"""Folders of unit tests of programs outside of `frazil`: the benchmark's, and the model of the protocol."""

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def locked(file: Path) -> dict[str, set[str]]:
    """Package -> versions pinned in a lock file; two versions where they differ by Python version."""
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", file.read_text(encoding="utf-8"), re.MULTILINE):
        pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


def declared() -> list[Requirement]:
    """Every requirement of pyproject.toml, extras included."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [Requirement(text) for group in (PROJECT["project"]["dependencies"], *extras) for text in group]


def python_files() -> list[Path]:
    return sorted(path for top in SOURCES for path in (ROOT / top).rglob("*.py"))


def markdown_files() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_lock_pins_what_pyproject_declares(requirement: Requirement) -> None:
    """A dependency edited without `make lock` would be absent, or another version, on every other machine."""
    versions = locked(ROOT / "requirements.txt").get(canonicalize_name(requirement.name), set())

    assert versions, f"{requirement} is not in requirements.txt: run `make lock`"
    assert all(version in requirement.specifier for version in versions), f"{requirement}: locked {versions}"


@pytest.mark.parametrize("lock", ["requirements.txt", ".ci/bootstrap.txt", ".ci/release.txt"])
def test_every_pin_has_a_checksum(lock: str) -> None:
    """A pin without a checksum accepts whatever is served under that version."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"^(?=[A-Za-z0-9._-]+==)", text, flags=re.MULTILINE)[1:]

    assert entries
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_pyspark_and_its_client_are_one_version() -> None:
    """Both install into one folder: different versions leave a mixed tree that can't be imported."""
    pins = locked(ROOT / "requirements.txt")

    assert len(pins["pyspark"]) == 1
    assert pins["pyspark"] == pins["pyspark-client"]


def test_version_is_the_same_everywhere() -> None:
    """The snapshot summary names the version that wrote it: it must be the one that was released."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")

    assert PROJECT["project"]["version"] == frazil.__version__
    assert f"## {frazil.__version__}" in changelog
    images = re.findall(r"image: frazil-\w+:(\S+)$", compose, re.MULTILINE)
    assert len(images) > 1
    assert set(images) == {frazil.__version__}


def test_no_file_is_longer_than_the_house_allows() -> None:
    """A file that grows past one screenful of ideas hides its second one."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}

    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE_LINES} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name of each function and lines of its body. A signature may be long: for a command it declares the options."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            body = node.body[1:] if documented else node.body
            yield f"{path.relative_to(ROOT)}:{node.name}", body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_function_is_longer_than_the_house_allows() -> None:
    """The tail is where mistakes live."""
    long = {name: n for path in python_files() for name, n in functions(path) if n > MAX_FUNCTION_LINES}

    assert long == {}


def test_every_file_is_named_after_a_concept() -> None:
    """A file called after no concept collects everything."""
    nothing = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}

    assert [str(path.relative_to(ROOT)) for path in python_files() if path.stem in nothing] == []


def test_generated_pages_agree_with_the_models() -> None:
    """A reference that lags behind the code is worse than none."""
    generated = runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()

    assert len(generated) > 1
    assert [path.name for path, text in generated.items() if path.read_text(encoding="utf-8") != text] == []


def test_every_key_of_a_file_is_explained() -> None:
    """A key without a meaning in the reference sends its reader to the source."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))

    assert "| key | type | default | meaning |" in pages
    assert re.findall(r"^\| `(\w+)` .*\|\s*\|$", pages, re.MULTILINE) == []


def test_threat_model_names_tests_that_exist() -> None:
    """A promise without its test is a wish: every row of "Who may do what" ends with the test that holds it."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    section = page.split("\n## Who may do what\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.endswith("| held by |")]
    held_by = [re.fullmatch(r"\| .+ \| `(tests/[\w/]+\.py)::(test_\w+)` \|", row) for row in rows]

    assert [row for row, match in zip(rows, held_by, strict=True) if match is None] == []
    named = [(match[1], match[2]) for match in held_by if match is not None]
    assert len(named) >= 10
    assert [name for name in named if f"def {name[1]}(" not in _text_of(ROOT / name[0])] == []


def test_each_wish_names_a_page_and_a_test_that_exist() -> None:
    """Every row of "What people asked for" leads to its page, and to the test that holds it or to another answer."""
    page = (ROOT / "docs" / "wishes.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| wish |"))]
    form = r"\| .+ \| \[[\w./-]+\]\((?P<page>[\w./-]+)(#(?P<anchor>[\w-]+))?\) \|( `(?P<file>tests/[\w/]+\.py)::(?P<test>test_\w+)` \|)?"
    matches = {row: re.fullmatch(form, row) for row in rows}
    missing = [
        row
        for row, match in matches.items()
        if match is None
        or not _has_heading(ROOT / "docs" / match["page"], match["anchor"])
        or (match["test"] and f"def {match['test']}(" not in _text_of(ROOT / match["file"]))
    ]

    assert missing == []
    assert sum(1 for match in matches.values() if match is not None and match["test"]) >= 50


def _has_heading(page: Path, anchor: str | None) -> bool:
    headings = re.findall(r"^#+ (.+)$", _text_of(page), re.MULTILINE)
    return bool(headings) and anchor in (
        None,
        *(re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings),
    )


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@pytest.mark.parametrize("page", markdown_files(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A renamed file leaves dead links behind."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]

    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_the_map_names_every_room() -> None:
    """A room that is missing on the map has no rule about what it may know."""
    house = ROOT / "include" / "frazil"
    rooms = {path.stem for path in house.iterdir() if path.is_dir() or path.suffix == ".py"} - {
        "__init__",
        "__pycache__",
    }
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= MAX_MAP_LINES
    assert [room for room in sorted(rooms) if f"`{room}" not in text] == []


def test_unit_tests_mirror_the_packages() -> None:
    """The tests of a file are found by its path: each folder of tests is named after a package."""
    unit, house = ROOT / "tests" / "unit", ROOT / "include" / "frazil"
    folders = {str(path.parent.relative_to(unit)) for path in unit.rglob("*.py")}

    assert sorted(folder for folder in folders if not (house / folder / "__init__.py").is_file()) == sorted(
        WITHOUT_PACKAGE
    )


def test_makefile_has_few_verbs_and_explains_each() -> None:
    """`make help` is the table of contents: every verb is on it, and it fits on a screen."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)
    explained = re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)

    assert phony is not None
    assert phony[1].split() == explained
    assert len(explained) <= MAX_VERBS


def test_readme_names_only_verbs_that_exist() -> None:
    """The first command a newcomer types must not be a typing error of ours."""
    verbs = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = "".join(page.read_text(encoding="utf-8") for page in markdown_files())
    told = set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE))

    assert {"demo", "test"} <= told
    assert told - verbs == set()


def test_unit_tests_have_no_network() -> None:
    """A quick test that quietly asks a server is slow and red on somebody else's machine."""
    with pytest.raises((SocketBlockedError, UserWarning), match="tried to use socket"):
        socket.create_connection(("127.0.0.1", 9))


def test_contributing_names_files_that_exist() -> None:
    """A file that is named in full is there; one that a contributor is to make has a name of the example."""
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("CONTRIBUTING.md", "docs/extending.md"))
    named = set(re.findall(r"`((?:include|plugins|tests|docs)/[\w/]+\.py)`", pages))
    missing = [name for name in sorted(named) if not (ROOT / name).exists() and "value_size" not in name]

    assert len(named) > 20
    assert missing == []


WALK = re.compile(r"^\|[^|]*\| `([\w/.]+\.py)` \| `([\w.]+)` \|$", re.MULTILINE)


def defined(file: Path) -> set[str]:
    """Functions, classes and methods of a file; a method as `Class.method`."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_pages_lead_to_names_that_exist(page: str) -> None:
    """Each row that names a file and a function or class in it, in the walks and in the table of words."""
    steps = WALK.findall((ROOT / page).read_text(encoding="utf-8"))

    assert len(steps) > 10
    assert [(file, name) for file, name in steps if name not in defined(ROOT / file)] == []


RAISES = re.compile(r"^Raises:\n((?:    .*\n?)+)", re.MULTILINE)
EXCEPTIONS = re.compile(r"^    ([A-Z]\w+(?:, [A-Z]\w+)*):", re.MULTILINE)


def test_documented_exceptions_exist() -> None:
    """Who catches what a docstring promises must find it."""
    builtin_names, documented = {*vars(builtins)}, set[tuple[str, str]]()
    for path in (file for top in ("include", "plugins", "dags", "spark_jobs") for file in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ImportFrom(names=imported) | ast.Import(names=imported):
                    builtin_names |= {(each.asname or each.name).rpartition(".")[2] for each in imported}
                case ast.Assign(targets=[ast.Name(id=name)]):
                    builtin_names.add(name)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    builtin_names |= {node.name} if isinstance(node, ast.ClassDef) else set()
                    for section in RAISES.findall(ast.get_docstring(node) or ""):
                        names = ", ".join(EXCEPTIONS.findall(section)).split(", ")
                        documented |= {(f"{path.relative_to(ROOT)}:{node.lineno}", name) for name in names if name}

    assert len(documented) > 500
    assert sorted((place, name) for place, name in documented if name not in builtin_names) == []
