"""`frazil validate --diff`: a pull request is told what it would change, and the sample workflow does what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.errors import Terminal
from frazil.runtime.home import project_root

Frazil = Callable[..., Any]

WORKFLOW = project_root() / "docs" / "examples" / "pipelines-ci.yml"


def git(folder: Path, *arguments: str) -> None:
    program = shutil.which("git")
    assert program is not None
    own = ("-c", "user.name=a tester", "-c", "user.email=tester@example.org", "-C", str(folder))
    subprocess.run([program, *own, *arguments], check=True, capture_output=True)


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def committed(place: Path) -> Path:
    """The project's files on branch main, as they were."""
    git(place, "init", "--initial-branch", "main")
    git(place, "add", "settings.yaml", "pipelines")
    git(place, "commit", "--message", "as it was")
    return place / "pipelines"


def effects(report: Any, name: str) -> list[tuple[str, str]]:
    """Weight and text of what a change of a pipeline does."""
    (difference,) = [entry for entry in report["pipelines"] if entry["name"] == name]
    return [(effect["weight"], effect["text"]) for effect in difference["effects"]]


def offline(frazil: Frazil) -> Any:
    ended = frazil("validate", "--diff", "main", "--offline", "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_only_changes_are_reported(frazil: Frazil, committed: Path) -> None:
    """A comment under every pull request about files that it did not touch would be read by nobody."""
    replace(committed / "pizzas.yaml", "name: pizzas", "name: pizzas  # a remark changes nothing")

    report = offline(frazil)

    assert (report["ok"], report["pipelines"], report["settings"]) == (True, [], [])
    assert "nothing changes" in frazil("validate", "--diff", "main", "--offline").out


def test_changes_of_schedule_topics_and_key_are_reported(frazil: Frazil, committed: Path) -> None:
    """What the next run would do otherwise is told in words, before it does."""
    replace(committed / "pizzas.yaml", "interval: 1m\nstart: earliest", "interval: 7m\nstart: latest")
    replace(committed / "pizzas.yaml", "completed-pizzas", "pizzas-v2")

    change_effects = effects(offline(frazil), "pizzas")

    assert ("info", "DAG ingest__pizzas runs every 7m instead of 1m") in change_effects
    assert ("warning", "topic completed-pizzas is not read any more; its place in the position stays") in change_effects
    assert ("info", "topic pizzas-v2 is read from its beginning") in change_effects
    assert any(
        weight == "warning" and text.startswith("start counts for the first run only")
        for weight, text in change_effects
    )
    assert ("info", "offline: the tables were not looked at") in change_effects


def test_rename_is_reported_as_a_rename(frazil: Frazil, committed: Path) -> None:
    """A renamed pipeline has no position: that is said, and not only that a DAG comes and another one goes."""
    replace(committed / "payments.yaml", "name: payments", "name: paid")

    report = offline(frazil)

    assert [(entry["name"], entry["kind"]) for entry in report["pipelines"]] == [("paid", "renamed")]
    assert any(text.startswith("renamed from payments: refused") for _, text in effects(report, "paid"))


def test_removed_pipeline_lists_the_tables_that_stay(frazil: Frazil, committed: Path) -> None:
    """What stays is told by name, so that nobody thinks that removing a file removes data."""
    (committed / "payments.yaml").unlink()

    change_effects = effects(offline(frazil), "payments")

    assert ("info", "DAG ingest__payments goes; its runs stay in Airflow") in change_effects
    assert any(weight == "warning" and "orders.payments__ledger" in text for weight, text in change_effects)


CAPTURE = "{capture: file, name: NAME, topic: TOPIC, interval: 1m, paths: [/var/log/app.log]}"


@pytest.mark.parametrize(
    ("name", "topic", "kind", "message"),
    [
        ("logs", "logs-v2", "changed", "if it ran already, another kind of source or another topic is refused"),
        ("weblogs", "logs", "renamed", "renamed from logs, whose position it does not have"),
        ("weblogs", "other", "new", "its first run captures all present lines or rows into topic other"),
        (None, "", "removed", "nothing is captured any more; topic and position stay"),
    ],
)
def test_changes_of_captures_are_reported(
    frazil: Frazil, committed: Path, name: str | None, topic: str, kind: str, message: str
) -> None:
    """A capture is a file as a pipeline is: what a change of it does is told before it does."""
    settings = committed.parent / "settings.yaml"
    settings.write_text(settings.read_text() + "\ncaptures: {folders: [/var/log]}\n")
    (committed.parent / "captures").mkdir()
    file = committed.parent / "captures" / "logs.yaml"
    file.write_text(CAPTURE.replace("NAME", "logs").replace("TOPIC", "logs"))
    git(committed.parent, "add", "captures", "settings.yaml")
    git(committed.parent, "commit", "--message", "a capture")
    file.unlink()
    if name is not None:
        file.write_text(CAPTURE.replace("NAME", name).replace("TOPIC", topic))

    captures = offline(frazil)["captures"]

    change = next(entry for entry in captures if entry["name"] == (name or "logs"))
    assert change["kind"] == kind
    assert any(effect["text"].startswith(message) for effect in change["effects"]), change
    assert f"capture {name or 'logs'}" in frazil("validate", "--diff", "main", "--offline").out.replace("logs -> ", "")


def test_comment_shows_no_secret_and_mentions_nobody(frazil: Frazil, committed: Path) -> None:
    """Values of settings and of table properties are not told; an owner's @ calls nobody."""
    replace(committed / "pizzas.yaml", "owner: ", "owner: '@everyone'  # ")
    replace(committed.parent / "settings.yaml", "clusters:", "clusters:\n  other: {bootstrap_servers: 'hidden:1'}")

    comment = frazil("validate", "--diff", "main", "--offline", "--markdown").out

    assert "settings changed: clusters.other.bootstrap\\_servers" in comment
    assert "hidden" not in comment
    assert "@everyone" not in comment


def test_broken_file_is_reported_and_not_compared(frazil: Frazil, committed: Path) -> None:
    """A file that can't be used has no effects: what is wrong with it is told, also in the comment."""
    replace(committed / "pizzas.yaml", "owner: ", "ownr: ")

    ended = frazil("validate", "--diff", "main", "--markdown")

    assert ended.code == Terminal.exit_code
    assert "ownr: unknown key, did you mean 'owner'?" in ended.out


def test_binary_file_does_not_end_the_comparison(frazil: Frazil, committed: Path) -> None:
    """A folder of a revision is taken as it is, whatever else lies in it."""
    (committed / "picture.bin").write_bytes(b"\xff\xfe\x00")
    git(committed.parent, "add", "pipelines")
    git(committed.parent, "commit", "--message", "a picture")

    assert offline(frazil)["pipelines"] == []


def test_repository_of_pipeline_files_alone_is_compared(frazil: Frazil, place: Path) -> None:
    """The folder of pipelines may be the repository itself; schemas and settings beside it are in no revision of it."""
    folder = place / "pipelines"
    git(folder, "init", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--message", "as it was")
    (folder / "payments.yaml").unlink()

    assert [(entry["name"], entry["kind"]) for entry in offline(frazil)["pipelines"]] == [("payments", "removed")]


def test_unknown_revision_is_named(frazil: Frazil, committed: Path) -> None:
    """A mistyped branch is named, not taken for one without files, which would make all pipelines new."""
    ended = frazil("validate", "--diff", "mian", "--offline")

    assert ended.code == Terminal.exit_code
    assert "no revision is named 'mian'" in ended.err


def test_sample_workflow_runs(committed: Path) -> None:
    """Its steps that call Frazil do what they say in a repository of pipeline files."""
    replace(committed / "pizzas.yaml", "interval: 1m", "interval: 7m")
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    steps = [step for step in workflow["jobs"]["validate"]["steps"] if "frazil " in step.get("run", "")]
    environment = os.environ | {"BASE": "main", "PYTHONPATH": str(project_root() / "include")}

    assert len(steps) == 2
    for step in steps:
        command = step["run"].replace("frazil ", f"{sys.executable} -m frazil.cli ", 1)
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=committed,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "DAG ingest\\_\\_pizzas runs every 7m" in (committed / "changes.md").read_text(encoding="utf-8")


def test_capture_of_another_cluster_is_said_to_begin_again(frazil: Frazil, committed: Path) -> None:
    """Its position stays behind, and nothing refuses a topic that is new there."""
    settings = committed.parent / "settings.yaml"
    settings.write_text(settings.read_text() + "\ncaptures: {folders: [/var/log]}\n")
    (committed.parent / "captures").mkdir()
    file = committed.parent / "captures" / "logs.yaml"
    text = CAPTURE.replace("NAME", "logs").replace("TOPIC", "logs")
    file.write_text(text.replace("interval: 1m", "interval: 1m, cluster: former"))
    git(committed.parent, "add", "captures", "settings.yaml")
    git(committed.parent, "commit", "--message", "a capture")
    file.write_text(text)

    (change,) = offline(frazil)["captures"]

    assert any("the other cluster has no position of this capture" in effect["text"] for effect in change["effects"]), (
        change
    )
    assert not any("if it ran already" in effect["text"] for effect in change["effects"]), change
