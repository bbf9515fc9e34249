"""The parts of a pipeline file that decide outcomes, as a text that is kept beside the ledger: each batch names it by its hash."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic import ValidationError

from frazil.pipeline.model import DECIDING, Pipeline
from frazil.pipeline.references import REFERENCE, References

_VERSION: Final = 1

_NAME: Final = re.compile(r"frazil-[a-z0-9_]+-rules-[0-9a-f]{12}\.json")


class UnfitRulesError(ValueError):
    """A text that does not give back the rules that its hash names."""


def rules_file(pipeline: str, fingerprint: str) -> str:
    """Name of the file, in the metadata folder of the ledger."""
    return f"frazil-{pipeline}-rules-{fingerprint}.json"


def is_rules_file(path: str) -> bool:
    """Whether a path is of such a file, of whatever pipeline: batches name it as long as the ledger has them."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def rules_text(pipeline: Pipeline, references: References) -> str:
    """What is kept of a pipeline: with references in place of what they stand for, which may be secrets."""
    parts = pipeline.file.model_dump(mode="json", by_alias=True, include=DECIDING, exclude_unset=True)
    own = json.dumps(parts).replace("${", "$${")
    return json.dumps({"v": _VERSION, "parts": references.hidden(own)})


def pipeline_of(text: str, present: Pipeline, fingerprint: str, references: References) -> Pipeline:
    """The pipeline as it was under the rules of a text; what decides no outcome is the present file's.

    Raises:
        UnfitRulesError: They are not those of the hash: another Frazil wrote them, a reference stands for another value by now, or
            somebody edited the text.
    """
    try:
        rules = json.loads(text)
        parts: dict[str, Any] = json.loads(REFERENCE.sub(lambda match: _resolved(match, references), rules["parts"]))
        own = present.file.model_dump(
            mode="json", by_alias=True, include={"name", "source", "catalog"}, exclude_unset=True
        )
        pipeline = Pipeline.model_validate({**own, **parts})
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise UnfitRulesError(f"can't be read ({type(error).__name__})") from error
    if pipeline.outcome_fingerprint != fingerprint:
        raise UnfitRulesError(
            "gives another hash: of another version of Frazil, with other values of references, or edited"
        )
    return pipeline


def _resolved(match: Any, references: References) -> str:
    if match["escape"]:
        return str(match[0]).removeprefix("$")
    return json.dumps(references.resolve_allowed(match))[1:-1]
