"""Measures the house: how the code is cut into files and folders, and which words its names use.

`python docs/house.py` prints the figures beside their limits. `--check` prints only what is beyond its limit, and ends with 1.
A limit is either the target or, where the code has not got there, today's figure: lower it with each step, never raise it.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("include/frazil", "plugins", "dags", "spark_jobs")
TESTS = ("tests", "docs", "docker")
PACKAGES = "include/frazil"

CRUMB = 40
"""Lines of a file that is too small to be a thought of its own; a package's `__init__` is none."""

FUNCTION_WORDS = frozenset(
    [
        "of",
        "at",
        "by",
        "for",
        "from",
        "in",
        "into",
        "on",
        "to",
        "with",
        "without",
        "beside",
        "besides",
        "together",
        "within",
        "found",
        "told",
        "said",
        "asked",
        "made",
        "gone",
        "owed",
        "left",
        "known",
        "unknown",
        "wanted",
        "untold",
        "taken",
        "given",
        "kept",
        "held",
        "seen",
        "sent",
        "meant",
        "near",
        "less",
        "else",
        "then",
        "there",
        "here",
        "such",
        "both",
        "other",
        "others",
    ]
)
"""Words that are no name: function words, and participles that don't say of what."""

MOST_FILES = 15
"""Files that a folder holds before nobody sees them all at once."""

COMMON_NAME = 150
"""Bindings above which a name says nothing any more."""


@dataclass(frozen=True)
class Figure:
    """One measure: what it counts, the figure now, the highest figure that passes if there is one, and where the worst of it stands."""

    name: str
    now: float
    limit: float | None
    target: str
    worst: str = ""

    def line(self) -> str:
        """The figure as a row of a table."""
        limit = "" if self.limit is None else f"{self.limit:,g}"
        return f"| {self.name} | {self.now:,g} | {limit} | {self.target} | {self.worst} |"

    @property
    def is_beyond(self) -> bool:
        """Whether the figure is above its limit."""
        return self.limit is not None and self.now > self.limit


@dataclass(frozen=True)
class Module:
    """A source file, read and parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """All lines, as `wc` counts them."""
        return self.text.count("\n")

    def code_lines(self) -> set[int]:
        """Numbers of the lines that hold code: no blank ones, no comments, no docstrings."""
        skipped = (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
            tokenize.ENDMARKER,
        )
        documented = {line for first, last in docstrings(self.tree) for line in range(first, last + 1)}
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        lines = (range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in skipped)
        return {line for span in lines for line in span} - documented

    def import_lines(self) -> int:
        """Lines that import statements take, wherever they stand."""
        imports = [node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def modules(folders: Iterable[str] = SOURCES) -> list[Module]:
    """All source files in folders, by default those of the product."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = [(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]
    return [Module(path, text, ast.parse(text)) for path, text in texts]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of each text that stands alone as a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each name that a file binds, with its line: parameters, variables, functions, classes, attributes of classes."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno


def room(path: Path, depth: int) -> tuple[str, ...]:
    """Folders of a file below the package, as deep as asked."""
    return path.relative_to(PACKAGES).parts[:-1][:depth]


def two_way_pairs(files: list[Module]) -> list[str]:
    """Pairs of sub-rooms of one room that import each other; the loose files of a room are one sub-room."""
    arrows: set[tuple[str, str]] = set()
    for module in files:
        if not module.path.is_relative_to(PACKAGES):
            continue
        own = room(module.path, 2)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("frazil."):
                parts = tuple(node.module.split(".")[1:])
                target = parts[:2] if (ROOT / PACKAGES / "/".join(parts[:2])).is_dir() else parts[:1]
                if own and target[:1] == own[:1] and target != own:
                    arrows.add((".".join(own), ".".join(target)))
    return sorted(f"{one} <-> {second}" for one, second in arrows if one < second and (second, one) in arrows)


def bound_names(files: Iterable[Module]) -> list[tuple[str, str]]:
    """Each name that files bind, with its place."""
    return [(name, f"{module.path}:{line}") for module in files for name, line in bindings(module.tree)]


def function_words(bound: Iterable[tuple[str, str]]) -> list[str]:
    """The names among bound ones that are function words, each with its place."""
    return [f"{name} {place}" for name, place in bound if name in FUNCTION_WORDS]


def figures() -> list[Figure]:
    """Every measure of the house."""
    files = modules()
    code = {module.path: len(module.code_lines()) for module in files}
    crumbs = [module.path for module in files if module.lines <= CRUMB and module.path.name != "__init__.py"]
    folders = Counter(module.path.parent for module in files if module.path.name != "__init__.py")
    bound = bound_names(files)
    names = Counter(name for name, _ in bound)
    common = [
        f"{name} {count}" for name, count in names.most_common(12) if count > COMMON_NAME and name not in ("self", "_")
    ]
    words, test_words = function_words(bound), function_words(bound_names(modules(TESTS)))
    comments = sum(len(re.findall(r"(?m)^\s*# ", module.text)) for module in files)
    pairs = two_way_pairs(files)
    longest = max(files, key=lambda module: module.lines)
    folder, most = folders.most_common(1)[0]
    design = len((ROOT / "docs/design.md").read_text(encoding="utf-8").split())
    lines = sum(code.values())
    return [
        Figure("source lines", sum(module.lines for module in files), None, "77,000"),
        Figure("source files", len(files), None, ""),
        Figure("code lines per file", round(lines / len(files)), None, "130 to 250"),
        Figure("lines of the longest file", longest.lines, 500, "500", str(longest.path)),
        Figure(f"files of at most {CRUMB} lines", len(crumbs), LIMITS["crumbs"], "15", ", ".join(map(str, crumbs[:3]))),
        Figure(
            "import lines, % of code lines",
            round(100 * sum(module.import_lines() for module in files) / lines, 1),
            LIMITS["imports"],
            "10",
        ),
        Figure("files in one folder", most, LIMITS["folder"], "15", str(folder)),
        Figure(
            f"folders of more than {MOST_FILES} files",
            sum(n > MOST_FILES for n in folders.values()),
            LIMITS["folders"],
            "0",
        ),
        Figure("pairs of sub-rooms that import each other", len(pairs), LIMITS["pairs"], "0", "; ".join(pairs[:3])),
        Figure("bindings of function words", len(words), LIMITS["function words"], "0", ", ".join(words[:12])),
        Figure(
            "the same in tests and documentation",
            len(test_words),
            LIMITS["function words in tests"],
            "0",
            ", ".join(test_words[:3]),
        ),
        Figure(f"names of more than {COMMON_NAME} bindings", len(common), LIMITS["common"], "0", ", ".join(common[:6])),
        Figure("comment lines, % of code lines", round(100 * comments / lines, 1), None, "6 to 10"),
        Figure("words of docs/design.md", design, LIMITS["design"], "1,800"),
    ]


LIMITS: dict[str, float] = {
    "crumbs": 17,
    "imports": 11.1,
    "folder": MOST_FILES,
    "folders": 0,
    "pairs": 0,
    "function words": 0,
    "function words in tests": 161,
    "common": 10,
    "design": 1_800,
}
"""The highest figures that pass: lower each with what makes it lower."""


def main() -> int:
    """Print the figures; with `--check` only those beyond their limits."""
    measured = figures()
    beyond = [figure for figure in measured if figure.is_beyond]
    shown = beyond if "--check" in sys.argv[1:] else measured
    if shown:
        print("| figure | now | limit | target | where |\n| --- | --- | --- | --- | --- |")
        print("\n".join(figure.line() for figure in shown))
    return 1 if beyond and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
