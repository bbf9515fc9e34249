"""What MkDocs must be told about these pages, which are written for a Git host as well: hooks that mkdocs.yml names.

Links that leave docs/ would lead nowhere on the site: the files they name come along, below `repository/`.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REPOSITORY = "repository"
"""Folder of the site with files of the repository from outside docs/."""

NAVIGATED = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages outside docs/ that the navigation names."""

_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take along what pages link to outside docs/, and the pages outside that the navigation names."""
    linked = {_repository_path(page.src_uri, link) for page in files.documentation_pages() for link in _links(page)}
    outside = {path for path in linked if not path.startswith("docs/") and (ROOT / path).is_file()}
    for path in sorted({*NAVIGATED, *outside}):
        level = InclusionLevel.INCLUDED if path in NAVIGATED else InclusionLevel.NOT_IN_NAV
        place = str(ROOT / path)
        files.append(File.generated(config, f"{REPOSITORY}/{path}", abs_src_path=place, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """Links as they lead on the site."""
    source = page.file.src_uri

    def link(match: re.Match[str]) -> str:
        path = _repository_path(source, match[1])
        target = path.removeprefix("docs/") if path.startswith("docs/") else f"{REPOSITORY}/{path}"
        return relpath(target, dirname(source) or ".") if files.get_file_from_path(target) else match[1]

    return _LINK.sub(link, markdown)


def _repository_path(source: str, link: str) -> str:
    """Where a link of a page leads in the repository."""
    target = source.removeprefix(f"{REPOSITORY}/") if source.startswith(f"{REPOSITORY}/") else f"docs/{source}"
    return normpath(f"{dirname(target)}/{link}").lstrip("/")


def _links(page: File) -> list[str]:
    return _LINK.findall(Path(str(page.abs_src_path)).read_text(encoding="utf-8"))
