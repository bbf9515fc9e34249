"""Routes of connector plugins: their list, and the validation of a configuration of an Iceberg sink or of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, HTTPException

from frazil import __version__
from frazil.connect.findings import APACHE, TABULAR, is_secret
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil_airflow.rest.configuration import CLASS, NAME, PIPELINE, checked_name, draft, visible_value
from frazil_airflow.rest.connectors import CONFIG
from frazil_airflow.rest.request import ApiCall, BodyDep, CallDep, check

router = APIRouter()

_PLUGINS = (APACHE, TABULAR, PIPELINE)
_GROUP = "Frazil"


@router.get("/connector-plugins")
def plugins() -> list[dict[str, str]]:
    """The values that `connector.class` may have."""
    return [{"class": name, "type": "sink", "version": __version__} for name in _PLUGINS]


@router.put("/connector-plugins/{plugin}/config/validate", openapi_extra=CONFIG)
def validate(call: CallDep, plugin: str, body: BodyDep) -> dict[str, Any]:
    """Check a configuration and change nothing. The `documentation` of a sink's key says what the import makes of it."""
    plugin_class = _plugin_class(plugin)
    name, stated = body.get(NAME), body.get(CLASS, PIPELINE)
    if stated != plugin_class:
        message = f"Included connector type {str(stated)[:200]} does not match request type {plugin_class}"
        raise HTTPException(HTTPStatus.BAD_REQUEST, message)
    if not isinstance(name, str):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "name: is required and missing")
    call.require("PUT", checked_name(name))
    errors, remarks = _errors(call, name, body)
    configs = [
        {
            "definition": _definition(key, remarks.get(key, "")),
            "value": {
                "name": key,
                "value": visible_value(key, body[key]) if key in body else None,
                "recommended_values": [],
                "errors": errors.get(key, []),
                "visible": True,
            },
        }
        for key in dict.fromkeys([*body, *errors])
    ]
    return {"name": plugin_class, "error_count": len(errors), "groups": [_GROUP], "configs": configs}


def _plugin_class(plugin: str) -> str:
    """The class with this name, or with this last part of its name, as in Kafka Connect."""
    plugin_class = next((name for name in _PLUGINS if plugin in (name, name.rpartition(".")[2])), None)
    if plugin_class is None:
        message = f"Failed to find any class that implements Connector and which name matches {plugin[:200]}"
        raise HTTPException(HTTPStatus.NOT_FOUND, f"{message}, available connectors are: {', '.join(_PLUGINS)}")
    return plugin_class


def _errors(call: ApiCall, name: str, body: Mapping[str, Any]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Errors of a configuration by key, and remarks of the import by key."""
    with call.source.slot() as project:
        drafted = draft(name, body, project)
        problems = list(drafted.problems) or check(drafted, project)[1]
    errors: dict[str, list[str]] = {}
    for key, problem in _by_key(problems, body):
        errors.setdefault(key, []).append(problem)
    return errors, {finding.key: f"{finding.outcome}: {finding.message}" for finding in drafted.findings}


def _by_key(problems: list[str], body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each problem with the key of the configuration that it is about: the key at its beginning, else `name`."""
    for problem in problems:
        path, colon, text = problem.partition(": ")
        outer_key = path.partition(".")[0]
        if colon and (path in body or " " not in path):
            is_pipeline_key = outer_key in Pipeline.model_fields and path not in body
            yield (outer_key, problem) if is_pipeline_key else (path, text)
        else:
            yield NAME, problem


def _definition(key: str, documentation: str) -> dict[str, Any]:
    return {
        "name": key,
        "type": "PASSWORD" if is_secret(key) else "STRING",
        "required": False,
        "default_value": None,
        "importance": "MEDIUM",
        "documentation": documentation,
        "group": _GROUP,
        "order_in_group": 1,
        "width": "LONG",
        "display_name": key,
        "dependents": [],
        "order": 1,
    }
