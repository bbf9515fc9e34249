"""What a capture may do at a broker whose authorizer is on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frazil.capture.position import CaptureOrder
from frazil.capture.run import capture_files
from frazil.errors import Terminal
from frazil.kafka.admin.grants import Grant, grants
from frazil.pipeline.settings.capture import FileCapture


def test_listed_grants_of_captures_suffice_and_are_needed(ward: Any) -> None:
    """With the listed grants alone a capture makes its topics and goes on; without Write it is told so, and nothing of letters."""
    names = {"topic": f"{ward.name}-logs", "positions": f"{ward.name}-positions", "capture": ward.name}
    (ward.root / "access.log").write_text("one\ntwo\n")
    (ward.root / "captures").mkdir()
    definition = {"capture": "file", "name": ward.name, "topic": names["topic"], "cluster": "guarded", "partitions": 1}
    (ward.root / "captures" / "logs.yaml").write_text(json.dumps({**definition, "paths": [f"{ward.root}/access.log"]}))
    loaded = ward.project(ward.guarded.clients()["SCRAM-SHA-512"])
    settings = ward.root / "settings.yaml"
    settings.write_text(
        json.dumps(
            {
                **json.loads(settings.read_text()),
                "captures": {"positions": names["positions"], "folders": [str(ward.root)]},
            }
        )
    )
    project = type(loaded).load(ward.environment)

    def run(order: str) -> int:
        chosen = project.capture(ward.name)
        assert isinstance(chosen, FileCapture)
        return capture_files(project, chosen, CaptureOrder(order, "a test"), print).records

    needed = [*grants("capture", **names), *grants("make_capture_topics", **names)]
    writes = Grant("topic", names["topic"], "Write")
    ward.guarded.allow(*(one for one in needed if one != writes), Grant("topic", names["topic"], "Describe"))
    with pytest.raises(Terminal) as refused:
        run("first")
    assert refused.value.next_step == f"grant Write on topic {names['topic']}"

    ward.guarded.allow(writes)
    assert run("second") == 2
    (ward.root / "access.log").write_text("one\ntwo\nthree\n")
    assert run("third") == 1
