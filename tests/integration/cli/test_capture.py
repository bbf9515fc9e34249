"""`frazil capture`: a look, a run, and what a person must say before it goes on elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

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
    assert (unasked.returncode, "its position is transaction 1 of " in unasked.stderr) == (2, True)
    assert place.json("capture", "logs", "--from", "beginning", "--reason", "again", "--yes")["records"] == 2

    file.write_text(json.dumps({**capture, "cluster": "locla"}))
    verdict = place.frazil("validate")
    assert (verdict.returncode, "did you mean 'local'" in verdict.stdout) == (Terminal.exit_code, True)
    assert "capture   " in verdict.stdout


def test_status_shows_files_that_wait_and_what_a_run_would_refuse(place: Place) -> None:
    """Before the first run, behind it, when lines came, and when lines may be missing; nothing is sent by a look."""
    log = place.root / "app.log"
    log.write_text("one\ntwo\n")
    (place.root / "captures").mkdir()
    capture = {"capture": "file", "name": "web_logs", "topic": place.topic, "partitions": 1, "paths": [str(log)]}
    (place.root / "captures" / "logs.yaml").write_text(json.dumps(capture))
    settings = place.root / "settings.yaml"
    settings.write_text(f"{settings.read_text()}\ncaptures: {{folders: [{place.root}]}}\n")

    assert figures(place) == ("Idle", None, 1, 8)
    place.succeed("capture", "web_logs")
    assert figures(place) == ("Idle", 1, 0, 0)
    with log.open("a") as file:
        file.write("three\nfou")
    assert figures(place) == ("Idle", 1, 1, 9)
    assert "1 files" in place.succeed("status", "web_logs").stdout
    log.write_text("anew\n")
    assert figures(place)[0] == "Refused"
    assert "lines may be missing" in place.succeed("status", "web_logs").stdout
    moved_log = Path(f"{log}.moved")
    log.rename(moved_log)
    moved_log.unlink()
    (place.root / "app.log").write_text("of another machine\n")
    assert figures(place) == ("Idle", 1, None, None)


def figures(place: Place) -> tuple[str, int | None, int | None, int | None]:
    """State, number of the last transaction, files and bytes that wait."""
    body = place.json("status", "web_logs")["captures"]["web_logs"]
    return body["state"], body["n"], body["lag"], body["lag_bytes"]
