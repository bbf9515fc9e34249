"""What MkDocs must be told about these pages, which are written for a Git host as well: hooks that mkdocs.yml names.

Links that leave docs/ would lead nowhere on the site: the files they name come along, below `repository/`. Diagrams are
pictures, drawn beforehand by `python docs/website.py`: what draws them in a browser would come from another server. That
needs npm, to fetch the program, and Chromium; the build needs neither.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PICTURES = "images/diagrams"
BESIDE = "repository"
"""Folder of the site with files of the repository from outside docs/."""

NAVIGATED = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages outside docs/ that the navigation names."""

MERMAID = "mermaid@11.16.0"
"""The package of npm that draws."""

THEMES = {"light": "neutral", "dark": "dark"}
"""Colour schemes of the site, and what Mermaid calls those that go with them."""

_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_LOG = logging.getLogger("mkdocs.hooks.website")


@dataclass(frozen=True, slots=True)
class Diagram:
    """A diagram of a page: where its pictures lie below docs/, and what they must show."""

    name: str
    text: str

    @property
    def mark(self) -> str:
        """What a picture of this text ends with."""
        return f"<!-- {hashlib.sha256(self.text.encode()).hexdigest()} -->\n"

    def picture(self, scheme: str) -> str:
        """Path of a picture below docs/."""
        return f"{PICTURES}/{self.name}-{scheme}.svg"

    @property
    def is_drawn(self) -> bool:
        """Whether its pictures are there, and show this text."""
        paths = [DOCS / self.picture(scheme) for scheme in THEMES]
        return all(path.is_file() and path.read_text(encoding="utf-8").endswith(self.mark) for path in paths)


def diagrams(source: str, markdown: str) -> Iterator[Diagram]:
    """The diagrams of a page, by its path below docs/."""
    for number, match in enumerate(_DIAGRAM.finditer(markdown), start=1):
        yield Diagram(f"{Path(source).stem}-{number}", match[1])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take along what pages link to outside docs/, and the pages outside that the navigation names."""
    linked = {_repository_path(page.src_uri, link) for page in files.documentation_pages() for link in _links(page)}
    outside = {path for path in linked if not path.startswith("docs/") and (ROOT / path).is_file()}
    for path in sorted({*NAVIGATED, *outside}):
        level = InclusionLevel.INCLUDED if path in NAVIGATED else InclusionLevel.NOT_IN_NAV
        place = str(ROOT / path)
        files.append(File.generated(config, f"{BESIDE}/{path}", abs_src_path=place, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """Links as they lead on the site, and pictures in place of diagrams."""
    source = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        path = _repository_path(source, match[1])
        target = path.removeprefix("docs/") if path.startswith("docs/") else f"{BESIDE}/{path}"
        return relpath(target, dirname(source) or ".") if files.get_file_from_path(target) else match[1]

    found = list(diagrams(source, markdown))
    if stale := [each.name for each in found if not each.is_drawn]:
        _LOG.warning("%s: not drawn as they are now: %s; run python docs/website.py", source, ", ".join(stale))
    pictures = iter(found)
    return _DIAGRAM.sub(lambda _: _shown(next(pictures), source), _LINK.sub(link, markdown))


def _repository_path(source: str, link: str) -> str:
    """Where a link of a page leads in the repository."""
    there = source.removeprefix(f"{BESIDE}/") if source.startswith(f"{BESIDE}/") else f"docs/{source}"
    return normpath(f"{dirname(there)}/{link}").lstrip("/")


def _links(page: File) -> list[str]:
    return _LINK.findall(Path(str(page.abs_src_path)).read_text(encoding="utf-8"))


def _shown(diagram: Diagram, source: str) -> str:
    up = relpath(".", dirname(source) or ".")
    pictures = (f"![{diagram.name}]({up}/{diagram.picture(scheme)}#only-{scheme})" for scheme in THEMES)
    return "".join(f"{each}\n" for each in pictures)


def main() -> int:
    """Draw the diagrams whose pictures are missing or show another text; returns the exit code."""
    pages = {page.relative_to(DOCS).as_posix(): page for page in sorted(DOCS.rglob("*.md"))}
    found = [each for source, page in pages.items() for each in diagrams(source, page.read_text(encoding="utf-8"))]
    named = {DOCS / each.picture(scheme) for each in found for scheme in THEMES}
    for path in set((DOCS / PICTURES).glob("*.svg")) - named:
        path.unlink()
    if stale := [each for each in found if not each.is_drawn]:
        with tempfile.TemporaryDirectory() as folder:
            _draw(stale, _fetched(Path(folder)))
    print(f"{len(stale)} of {len(found)} diagrams drawn")
    return 0


def _fetched(folder: Path) -> Path:
    """Mermaid as one script, fetched by npm."""
    subprocess.run([str(shutil.which("npm")), "pack", "--silent", MERMAID], cwd=folder, check=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extract("package/dist/mermaid.min.js", folder, filter="data")
    return folder / "package" / "dist" / "mermaid.min.js"


def _draw(stale: list[Diagram], mermaid: Path) -> None:
    from playwright.sync_api import sync_playwright

    (DOCS / PICTURES).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=["--no-sandbox"]
        )
        for scheme, theme in THEMES.items():
            window = browser.new_page()
            window.add_script_tag(path=mermaid)
            options = {"startOnLoad": False, "theme": theme, "htmlLabels": False, "fontFamily": "sans-serif"}
            window.evaluate("of => mermaid.initialize(of)", options)
            for each in stale:
                drawing = "async ([id, text]) => (await mermaid.render(id, text)).svg"
                drawn = window.evaluate(drawing, [f"drawn-{each.name}", each.text])
                (DOCS / each.picture(scheme)).write_text(f"{drawn}\n{each.mark}", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
