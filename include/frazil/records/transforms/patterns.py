"""Regular expressions, matched by RE2 through Arrow: whole columns at once, in time by the length of the texts.

What backtracks may take longer than anybody waits, on a text that a producer chooses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from frazil.error_codes import BAD_TRANSFORM
from frazil.records import pa, pc

_NAMED_GROUP: Final = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?=[A-Za-z])")

_GROUPS: Final = 9
"""As many groups can be taken up: RE2 has one digit for them."""


class WholeMatch:
    """An expression that matches whole texts.

    Raises:
        Terminal: it is none, or RE2 does not take it: look-ahead, look-behind, back-references.
    """

    def __init__(self, pattern: str) -> None:
        re2_pattern = _NAMED_GROUP.sub(r"\1(?P<", pattern)
        try:
            compiled = re.compile(re2_pattern)  # for its groups only
            pc.match_substring_regex(pa.array([""]), re2_pattern)
        except (re.error, RecursionError, OverflowError, pa.ArrowInvalid) as e:
            raise BAD_TRANSFORM.terminal(
                f"{pattern!r} is not a regular expression that RE2 takes: {e}",
                next_step="correct the expression in the pipeline file",
            ) from e
        self.pattern: Final = pattern
        self.groups: Final = compiled.groups
        self.names: Final = dict(compiled.groupindex)
        self._whole: Final = f"\\A(?s:{re2_pattern})\\z"

    def holds(self, texts: pa.StringArray) -> pa.BooleanArray:
        """Return per text whether it matches."""
        return pc.match_substring_regex(texts, self._whole)

    def replaced(self, texts: pa.StringArray, pieces: Sequence[str | int]) -> pa.StringArray:
        """Return texts with those that match replaced; the others stay.

        Args:
            texts: The texts.
            pieces: Texts and numbers of groups, one after the other. A group that took part in no match is empty.

        Raises:
            Terminal: a number is too large.
        """
        if too_large := [piece for piece in pieces if isinstance(piece, int) and piece > _GROUPS]:
            raise BAD_TRANSFORM.terminal(
                f"group {too_large[0]} of {self.pattern!r} can't be used in a replacement: only the first {_GROUPS} can",
                next_step="write groups that the replacement does not use as (?:…)",
            )
        re2_pieces = (f"\\{piece}" if isinstance(piece, int) else piece.replace("\\", "\\\\") for piece in pieces)
        return pc.replace_substring_regex(texts, self._whole, "".join(re2_pieces))
