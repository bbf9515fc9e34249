"""The import contracts of pyproject.toml stand, and hold."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[2]
RULES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]


def test_every_library_with_a_room_of_its_own_is_fenced() -> None:
    """Taking a fence down by mistake must not go unnoticed."""
    fenced = {module for rule in RULES["contracts"] for module in rule.get("forbidden_modules", [])}

    assert {"airflow", "confluent_kafka", "pyiceberg", "pyspark"} <= fenced


def test_every_room_has_a_floor() -> None:
    """A contract that leaves rooms out would let a new one import anything."""
    layers = next(rule for rule in RULES["contracts"] if rule["type"] == "layers")

    assert layers["exhaustive"]
    assert layers["containers"] == ["frazil"]


def test_rooms_import_only_what_they_may() -> None:
    """One import against the arrows, and a library creeps into every process that starts."""
    assert (
        lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == EXIT_STATUS_SUCCESS
    )


def test_imports_of_programs_in_tests_exist() -> None:
    """Benchmarks, fuzz and storm run by hand and at night: a name that moved must not be noticed there first."""
    programs = [
        path for path in (ROOT / "tests").rglob("*.py") if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    ]
    modules = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in programs)
    assert "tests.chaos.random_schedule" in modules

    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *modules], cwd=ROOT, check=True)
