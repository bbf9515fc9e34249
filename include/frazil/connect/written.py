"""Imported pipelines and settings as YAML, with a comment at every value that a person must add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from frazil.connect.findings import Finding
from frazil.connect.importing import ImportedConnector

_WIDTH = 118
_HOLES = {
    "  columns: {}": "name the columns: name -> type; the connector takes them from the table",
    "destinations: []": "name every table that the field may name, with its columns",
}
"""Lines that validation refuses, and what to write there."""


def pipeline_text(imported: ImportedConnector) -> str:
    """The pipeline file: manual steps as comments first, then the keys."""
    lines = _yaml(imported.pipeline).splitlines()
    marked = [f"{line}  # {_HOLES[line]}" if line in _HOLES else line for line in lines]
    return "\n".join([*_header(imported), *marked, ""])


def settings_text(settings: Mapping[str, Any], imported: Sequence[ImportedConnector]) -> str:
    """The settings file, with the variables that it reads."""
    variables = {name: what for connector in imported for name, what in connector.variables.items()}
    written = _yaml(dict(settings))
    descriptions = [f"#   {name}: {what}" for name, what in sorted(variables.items()) if f"${{env:{name}}}" in written]
    head = [
        "# Carried over from Kafka Connect. Secrets are not in here; set these environment variables:",
        *descriptions,
    ]
    return "\n".join([*(head if descriptions else ["# Carried over from Kafka Connect."]), "", written])


def blanks(imported: ImportedConnector) -> list[str]:
    """The values that a person must add before `frazil validate` accepts the file."""
    lines = _yaml(imported.pipeline).splitlines()
    return list(dict.fromkeys(f"{line.strip()}  # {_HOLES[line]}" for line in lines if line in _HOLES))


def _header(imported: ImportedConnector) -> Iterator[str]:
    yield f"# Carried over from the connector {_one_line(imported.connector)} of Kafka Connect."
    open_ends = [finding for finding in imported.findings if finding.outcome in ("not_supported", "unknown")]
    changed = [finding for finding in imported.findings if finding.outcome == "changed" and finding.by_hand]
    if open_ends or changed:
        yield "# To do by hand, or to know:"
    for finding in (*open_ends, *changed):
        yield from _finding(finding)
    yield ""


def _finding(finding: Finding) -> Iterator[str]:
    yield f"# - {_one_line(finding.key)}: {_one_line(finding.message)}"
    if finding.by_hand:
        yield f"#   {_one_line(finding.by_hand)}"


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _yaml(mapping: Mapping[str, Any]) -> str:
    return yaml.dump(dict(mapping), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


class _Dumper(yaml.SafeDumper):
    """YAML without anchors: the same properties of two tables are written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True
