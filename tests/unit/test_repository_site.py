"""The pages read the same on the site and on a Git host, and the site is not built from pages that lead nowhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import markdown
from markdown_it import MarkdownIt
from mkdocs.config import load_config

from docs.generate import tried_in
from frazil.runtime.jars import read_lock

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOCKS = {"h1", "h2", "h3", "h4", "li", "ol", "ul", "table", "tr", "blockquote"}


class Blocks(HTMLParser):
    """Counts what a page is built of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the parser's signature
        """Count a block."""
        self.counts.update({tag} & BLOCKS)


def test_page_looks_alike_on_the_site() -> None:
    """A list right behind its sentence, or indented by two, is a list to Git hosts, and running text to MkDocs."""
    config = load_config(str(ROOT / "mkdocs.yml"))
    site = markdown.Markdown(extensions=config.markdown_extensions, extension_configs=config.mdx_configs)
    host = MarkdownIt("commonmark").enable("table")
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}

    differ = {
        str(page.relative_to(ROOT)): (site_counts - shown, shown - site_counts)
        for page, text in pages.items()
        if (site_counts := Blocks(host.render(text)).counts) != (shown := Blocks(site.reset().convert(text)).counts)
    }

    assert differ == {}


def built(folder: Path, **pages: str) -> tuple[int, str]:
    """Exit code and complaints of a strict build of other pages, whose navigation knows the first one only."""
    (folder / "docs").mkdir()
    for name, text in pages.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    nav = [f"{next(iter(pages))}.md", "repository/CHANGELOG.md", "repository/CONTRIBUTING.md"]
    config = (
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nsite_dir: site\nhooks: [{DOCS / 'website.py'}]\nnav: {nav}\n"
    )
    (folder / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_site_with_dead_links_is_not_built(tmp_path: Path) -> None:
    """A dead link, a dead anchor and a page that nobody finds end `make check`."""
    code, output = built(tmp_path, index="# A page\n\n[a](#nowhere) [b](gone.md)\n", lost="# Not in nav\n")

    assert code == 1
    assert "does not contain an anchor '#nowhere'" in output or "there is no such anchor on this page" in output
    assert "'gone.md'" in output
    assert "lost.md" in output


def test_licence_of_every_jar_is_documented() -> None:
    """A jar that joins the lock is under a licence that somebody has to look at."""
    page = (DOCS / "third-party-jars.md").read_text(encoding="utf-8")
    coordinates = set(re.findall(r"^\| `(\S+)` \| [A-Z]", page, re.MULTILINE))

    assert coordinates == {
        artifact.coordinates for name in ("spark", "broker") for artifact in read_lock().artifacts(name)
    }


def test_marks_tell_what_was_tried_and_in_which_lane() -> None:
    """The table of docs/reliability.md is read from the tests' text: a proof that only the long lane runs says so."""
    text = """
import pytest
pytestmark = [pytest.mark.timeout(9), pytest.mark.tried("All", "real")]
@pytest.mark.full
@pytest.mark.tried("One", "rendered")
def test_one(): pass
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.tried("Two", "test double"))])
def test_two(x): pass
"""
    assert list(tried_in(text)) == [("All", "real", False), ("One", "rendered", True), ("Two", "test double", False)]
    assert [
        is_full for *_, is_full in tried_in(text.replace("@pytest.mark.param", "@pytest.mark.full\n@pytest.mark.param"))
    ] == [True] * 3
    assert list(tried_in(text.replace("tried", "other"))) == []
