"""What is found in pipeline files with some transforms."""

from __future__ import annotations

from typing import Any

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.run.staging.record_problems import record_problems

FIELDS = {
    "id": "long",
    "customer": "string",
    "address": "struct<city: string, zip: string>",
    "lines": "list<struct<sku: string>>",
}
JSON = {"fields": FIELDS}
SUGGESTION = "no field 'custmer' here; did you mean customer?"


def problems(*steps: dict[str, Any], value: dict[str, Any] = JSON, **more: Any) -> tuple[str, ...]:
    """What is found in a file with these transforms; its column takes whatever they leave."""
    destination = {"table": "a.b", "columns": {"all": {"type": "string", "from": []}}}
    parts = {"name": "p", "source": {"topics": ["t"]}, "value": value, "destinations": [destination], **more}
    return record_problems(Pipeline.model_validate({**parts, "transforms": list(steps)}))
