"""Help: there, with an example, and at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from frazil.cli.app import app
from frazil.runtime.home import project_root

Frazil = Callable[..., Any]

COMMANDS = sorted(
    command.callback.__name__.replace("_", "-")
    for command in app.registered_commands
    if command.callback and not command.hidden
)

HEAVY = {
    "airflow",
    "confluent_kafka",
    "duckdb",
    "httpx",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "yaml",
}


def test_no_verb_is_lost() -> None:
    """Renaming a command breaks scripts; this list is the promise."""
    assert " ".join(COMMANDS) == (
        "apply capture demo doctor down history import-connector init lag maintain new pause peek plan plugins produce repair replay"
        " reset resume run schema sql status stop up validate verify"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example_that_exists(frazil: Frazil, command: str) -> None:
    """A reader copies the example; it must name this command and options that it has."""
    ended = frazil(command, "--help")

    examples = re.findall(r"^ *Example: (.*)$", ended.out, re.MULTILINE)
    options = set(re.findall(r"--[a-z-]+", ended.out.split("Example:")[0]))
    assert ended.code == 0
    assert examples
    assert all(f"frazil {command}" in example for example in examples)
    assert {option for example in examples for option in re.findall(r" (--[a-z-]+)", example)} <= options


def test_options_with_a_placeholder_declare_their_name() -> None:
    """Typer 0.27, the newest on the day of Airflow 3.3.2, took a placeholder for the name: `frazil new` had `--TABLE`."""
    files = (project_root() / "include" / "frazil" / "cli").rglob("*.py")

    assert [str(file) for file in files if re.search(r"typer\.Option\(\s*metavar=", file.read_text())] == []


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "produce",
        "validate",
        "doctor",
        "import-connector",
        "plan",
        "run",
        "history",
        "sql",
        "verify",
        "peek",
        "new",
    ],
)
def test_every_report_can_be_read_by_a_program(frazil: Frazil, command: str) -> None:
    """A command that reports and has no --json would be parsed by regular expressions."""
    assert "--json" in frazil(command, "--help").out


def test_every_command_is_in_a_group(frazil: Frazil) -> None:
    """Thirty commands in one list are read by nobody."""
    shown = frazil("--help").out
    groups = re.findall(r"^╭─ (\w+)", shown, re.MULTILINE)

    assert groups == ["Options", "Build", "Run", "Watch", "Repair", "Maintain"]
    assert all(re.search(rf"^│ {command} ", shown, re.MULTILINE) for command in (*COMMANDS, "dead-letters"))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("frazil pe", ["peek"]),
        ("frazil run pizz", ["pizzas"]),
        ("frazil status shop", ["shop_events"]),
        ("frazil run none", []),
    ],
)
def test_shell_completes_commands_and_pipelines(
    frazil: Frazil, monkeypatch: pytest.MonkeyPatch, words: str, offered: list[str]
) -> None:
    """As the script asks that `frazil --install-completion` lays down."""
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    assert frazil().out.split() == offered


def test_completion_of_a_broken_project_is_silent(frazil: Frazil, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message in the middle of a line that somebody types helps nobody."""
    (place / "settings.yaml").write_text("clusters: [", encoding="utf-8")
    monkeypatch.setenv("_FRAZIL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "frazil run p")
    monkeypatch.setenv("COMP_CWORD", "2")

    ended = frazil()

    assert (ended.code, ended.out.strip(), ended.err) == (0, "", "")


def test_help_loads_nothing_heavy() -> None:
    """`frazil --help` answers at once; Kafka, Arrow and Iceberg clients take seconds to load, the parts of the stack a tenth."""
    listed = "import sys, frazil.cli.app as a; a.invoke(['--help']); print('MODULES', *sys.modules)"
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}
    done = subprocess.run([sys.executable, "-c", listed], env=env, capture_output=True, text=True, check=True)

    loaded = set(done.stdout.partition("MODULES")[2].split())
    assert "frazil.cli.app" in loaded
    assert loaded & HEAVY == set()
    assert not {module for module in loaded if module.startswith("frazil.devstack.")}


def test_the_version_is_the_packages(frazil: Frazil) -> None:
    """Bug reports carry it."""
    from frazil import __version__

    assert frazil("--version").out == f"frazil {__version__}\n"


def test_a_mistyped_command_gets_the_nearest(frazil: Frazil) -> None:
    """`frazil histroy` says what was probably meant."""
    ended = frazil("histroy", "pizzas")

    assert ended.code == 2
    assert "history" in ended.err


def test_command_ends_after_the_exit_handlers_with_its_code() -> None:
    """What a library does at exit is done, what was printed arrives, and Python's modules are not taken apart."""
    program = (
        "import atexit, sys, weakref\n"
        "from frazil.cli.app import app, main\n"
        "@app.command('odd')\n"
        "def odd():\n"
        "    atexit.register(print, 'handled')\n"
        "    weakref.finalize(app, print, 'finalized')\n"
        "    print('said')\n"
        "    raise SystemExit(75)\n"
        "class Late:\n"
        "    def __del__(self): print('taken apart', flush=True)\n"
        "late, sys.argv = Late(), ['frazil', 'odd']\n"
        "sys.exit(main())"
    )
    env = os.environ | {"PYTHONPATH": str(project_root() / "include")}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (75, ["said", "finalized", "handled"]), done.stderr


def test_help_before_a_command_lists_all(frazil: Frazil) -> None:
    """It is the help of all commands, whatever follows."""
    assert frazil("--help", "run").out == frazil("--help").out
