"""Which Java is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime.java import find_java, parse_major


def install(folder: Path, version: str) -> Path:
    """Lay out a runtime as the JDK packages do, as far as the search looks at it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('JAVA_VERSION="17.0.15"', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
        ("no version here", None),
    ],
)
def test_every_version_scheme_is_read(text: str, major: int | None) -> None:
    """A version read wrongly starts Spark on a Java that it fails on."""
    assert parse_major(text) == major


def test_a_java_too_new_for_spark_is_passed_over(tmp_path: Path) -> None:
    """Spark 4.1 fails on Java 25, also when JAVA_HOME asks for it."""
    newest = install(tmp_path / "jdk-25", "25.0.1")
    fitting = install(tmp_path / "jdk-21", "21.0.4")

    java = find_java({"JAVA_HOME": str(newest)}, tmp_path)

    assert java is not None
    assert (java.home, java.major) == (fitting, 21)


def test_java_home_is_asked_first(tmp_path: Path) -> None:
    """Who sets JAVA_HOME means it."""
    install(tmp_path / "system" / "jdk-17", "17.0.15")
    named = install(tmp_path / "named", "21.0.4")

    java = find_java({"JAVA_HOME": str(named)}, tmp_path / "system")

    assert java is not None
    assert java.command == named / "bin" / "java"


def test_the_oldest_fitting_java_of_the_system_is_taken(tmp_path: Path) -> None:
    """17 is what Spark and Iceberg are tested on most."""
    for version in ("21.0.4", "17.0.15", "11.0.2"):
        install(tmp_path / f"jdk-{version}", version)

    java = find_java({}, tmp_path)

    assert java is not None
    assert java.major == 17


def test_no_fitting_java_is_no_java(tmp_path: Path) -> None:
    """An unfit runtime must not be taken for want of a better one."""
    install(tmp_path / "jdk-11", "11.0.2")

    assert find_java({}, tmp_path) is None
