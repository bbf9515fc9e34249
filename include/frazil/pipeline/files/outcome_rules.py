"""The parts of a pipeline file that decide outcomes, as a text stored with the ledger: each batch names it by its hash."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pydantic_core import to_jsonable_python

from frazil.pipeline.files.load import resolve_references
from frazil.pipeline.files.references import References
from frazil.pipeline.models.pipeline_file import Pipeline

_VERSION: Final = 2

_NAME: Final = re.compile(r"frazil-[a-z0-9_]+-rules-[0-9a-f]{12}\.json")

_TEXTS: Final = ("schema_", "schema_imports")
"""Fields of `value` and `key` that a schema file fills."""


class UnfitRulesError(ValueError):
    """A text that does not give back the rules that its hash names."""


def rules_file(pipeline: str, fingerprint: str) -> str:
    """Name of the file, in the metadata folder of the ledger."""
    return f"frazil-{pipeline}-rules-{fingerprint}.json"


def is_rules_file(path: str) -> bool:
    """Whether a path is of such a file, of whatever pipeline: batches name it as long as the ledger has them."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None


def rules_text(pipeline: Pipeline) -> str:
    """The stored text of a pipeline: its file with references unresolved, and the texts of its schema files."""
    halves = {"value": pipeline.file.value, "key": pipeline.file.key}
    texts = {
        half: {name: getattr(half_settings, name) for name in _TEXTS if name in half_settings.model_fields_set}
        for half, half_settings in halves.items()
        if half_settings is not None and half_settings.schema_file is not None
    }
    # YAML's times as the hash has them: Python's text of one has a blank where that has a T.
    return json.dumps(to_jsonable_python({"v": _VERSION, "parts": pipeline.parts, "texts": texts}))


def pipeline_of(text: str | bytes, present: Pipeline, fingerprint: str, references: References) -> Pipeline:
    """The pipeline under the rules of a stored text; keys that decide no outcome come from the present file.

    Raises:
        UnfitRulesError: They are not those of the hash: another Frazil wrote them, a reference stands for another value by now, or
            somebody edited the text.
    """
    own = present.file.model_dump(mode="json", by_alias=True, include={"name", "source", "catalog"}, exclude_unset=True)
    try:
        rules = json.loads(text)
        parts: dict[str, Any] = resolve_references(rules["parts"], references)
        pipeline = Pipeline.model_validate({**own, **parts})
        halves = {half: getattr(pipeline, half).model_copy(update=texts) for half, texts in rules["texts"].items()}
        pipeline = pipeline.model_copy(update=halves)
        is_of_hash = pipeline.outcome_fingerprint == fingerprint
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnfitRulesError(f"can't be read ({type(error).__name__})") from error
    if not is_of_hash:
        raise UnfitRulesError(
            "gives another hash: of another version of Frazil, with other values of references, or edited"
        )
    return pipeline
