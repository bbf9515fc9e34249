"""Measures the pages: words of each, and how easily its sentences are read.

`python docs/readability.py` prints a row per page that people write; generated pages and generated parts are left out. Words are
what stands outside of code and tables' rules. Reading ease is Flesch's: 206.835 - 1.015 x words per sentence - 84.6 x syllables per
word; 60 to 70 is plain English, code names count as one syllable. `--check` prints pages beyond the limit, and ends with 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("docs/reference/", "docs/messages.md", "docs/third-party-jars.md", "docs/benchmarks.md")
MOST_WORDS = 1_600
"""Of a page. The target is 1,500; the longest is docs/design.md, whose own bound docs/house.py has."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_VOWELS = re.compile(r"[aeiouy]+")
_END = re.compile(r"[.!?:;](?=\s|$)|\n\s*\n|\n(?=[-*|#\d])|(?<=.)\|")


def pages() -> list[Path]:
    """Pages that people write."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if not str(page.relative_to(ROOT)).startswith(GENERATED)]


def figures(text: str) -> tuple[int, float, float]:
    """Words, words per sentence, and reading ease of a page."""
    plain = _LINK.sub(r"\1", _CODE.sub("x", _GENERATED.sub("", _FENCE.sub("", text))))
    sentences = [words for part in _END.split(plain) if (words := _WORD.findall(part or ""))]
    words = [word for sentence in sentences for word in sentence]
    if not words:
        return 0, 0, 0
    syllables = sum(max(1, len(_VOWELS.findall(re.sub(r"e$", "", word.lower())))) for word in words)
    length = len(words) / len(sentences)
    return len(words), length, 206.835 - 1.015 * length - 84.6 * syllables / len(words)


def main(arguments: list[str]) -> int:
    """Print the figures; with `--check` only the pages beyond the limit."""
    rows = [(page.relative_to(ROOT), *figures(page.read_text(encoding="utf-8"))) for page in pages()]
    if "--check" in arguments:
        long = [(page, words) for page, words, _, _ in rows if words > MOST_WORDS]
        for page, words in long:
            print(f"{page}: {words:,} words, at most {MOST_WORDS:,}: divide it by what its readers want to do")
        return 1 if long else 0
    print("| page | words | words per sentence | reading ease |\n| --- | --- | --- | --- |")
    for page, words, length, ease in rows:
        print(f"| {page} | {words:,} | {length:.1f} | {ease:.0f} |")
    print(f"\n{len(rows)} pages, {sum(row[1] for row in rows):,} words")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
