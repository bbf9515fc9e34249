"""`frazil capture`: a look, a run, and what a person must say before it goes on elsewhere."""

from __future__ import annotations

import json

from frazil.errors import Terminal
from tests.integration.cli.conftest import Place


def test_capture_does_what_its_dry_run_says(place: Place) -> None:
    """A look sends nothing and tells what a run sends; a move is asked for, with a reason, and files are validated."""
    log = place.root / "app.log"
    log.write_text("one\ntwo\nthr")
    capture = {"capture": "file", "name": "logs", "topic": place.topic, "partitions": 1, "paths": [str(log)]}
    (place.root / "captures").mkdir()
    file = place.root / "captures" / "logs.yaml"
    file.write_text(json.dumps(capture))
    unlisted = place.frazil("capture", "logs", "--dry-run")
    assert (unlisted.returncode, "captures.folders" in unlisted.stderr) == (Terminal.exit_code, True)
    settings = place.root / "settings.yaml"
    settings.write_text(f"{settings.read_text()}\ncaptures: {{folders: [{place.root}]}}\n")

    assert place.json("capture", "logs", "--dry-run")["files"] == [{"path": str(log), "offset": 0, "size": 11}]
    done = place.json("capture", "logs")
    assert (done["records"], done["n"], done["topic"]) == (2, 1, place.topic)
    assert place.succeed("capture", "logs").stdout == "logs: nothing new\n"
    assert "from byte 8, 11 bytes" in place.succeed("capture", "logs", "--dry-run").stdout

    assert place.frazil("capture", "logs", "--from", "end").returncode == 2
    unasked = place.frazil("capture", "logs", "--from", "beginning", "--reason", "again")
    assert (unasked.returncode, "it stands at transaction 1" in unasked.stderr) == (2, True)
    assert place.json("capture", "logs", "--from", "beginning", "--reason", "again", "--yes")["records"] == 2

    file.write_text(json.dumps({**capture, "cluster": "locla"}))
    verdict = place.frazil("validate")
    assert (verdict.returncode, "did you mean 'local'" in verdict.stdout) == (Terminal.exit_code, True)
    assert "capture   " in verdict.stdout
