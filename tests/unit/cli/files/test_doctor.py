"""`frazil doctor` where the files can't be used: the rest of it needs brokers and catalogs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from frazil.cli.files.doctor import verdict_findings
from frazil.cli.files.verdict import Verdict

Frazil = Callable[..., Any]


def test_doctor_checks_the_machine_despite_broken_settings(frazil: Frazil, place: Path) -> None:
    """Without settings nothing else can be asked, but the machine can: all of that is said, and the exit code is 1."""
    (place / "settings.yaml").write_text("clusters: {}\n", encoding="utf-8")

    report = json.loads(frazil("doctor", "--json").out)
    ended = frazil("doctor")

    states = {check["check"]: check["state"] for check in report["checks"]}
    assert (ended.code, report["ok"], states["settings"]) == (1, False, "failed")
    assert {"python", "packages", "java", "disk"} <= states.keys()
    assert "failed: settings: " in ended.out
    assert "  next: correct the file; `frazil validate` names every key" in ended.out


def test_each_broken_pipeline_file_is_a_finding() -> None:
    """Files that can be used are counted, each other one is a finding of its own."""
    verdicts = [Verdict("s", "settings"), Verdict("a", "pipeline"), Verdict("b", "pipeline", ("name: missing",))]

    findings = list(verdict_findings(verdicts))

    assert [(finding.check, finding.state) for finding in findings] == [
        ("settings", "ok"),
        ("pipelines", "failed"),
        ("pipelines", "ok"),
    ]
