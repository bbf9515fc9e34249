"""What is fetched, and what counts as fetched."""

from __future__ import annotations

import hashlib
import tarfile
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.runtime.home import Home
from frazil.runtime.jars import (
    SETS,
    Artifact,
    Lock,
    fetch,
    jar_paths,
    missing,
    parse_lock,
    publish,
    read_lock,
    render_lock,
)
from frazil.runtime.java import Request, ivy_module


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.resolve({"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_JARS": str(tmp_path / "jars")})


def lay_out(home: Home, name: str) -> None:
    """Make a set look fetched: files of the locked sizes, without their content."""
    folder = home.jars / name
    folder.mkdir(parents=True)
    for artifact in read_lock().artifacts(name):
        with (folder / artifact.file).open("wb") as file:
            file.truncate(artifact.size)
    (folder / ".complete").write_text(read_lock().digest(name))


def staged_jar(folder: Path, content: bytes) -> Artifact:
    """Write one retrieved jar and return its pin."""
    place = folder / "org.example" / "thing" / "1.0"
    place.mkdir(parents=True)
    (place / "thing-1.0.jar").write_bytes(content)
    checksum = hashlib.sha256(content).hexdigest()
    return Artifact("org.example:thing:1.0", "thing-1.0.jar", len(content), checksum)


def test_the_lock_pins_everything_that_is_declared() -> None:
    """A version changed in the declaration but not in the lock would never be fetched."""
    lock = read_lock()

    assert set(lock.sets) == set(SETS)
    for name, declared in SETS.items():
        pinned = {artifact.coordinates for artifact in lock.artifacts(name)}
        assert set(declared.coordinates) <= pinned
        assert declared.transitive or set(declared.coordinates) == pinned


def test_the_two_kafka_clients_stay_apart() -> None:
    """Spark's Kafka source and the broker need different clients; resolved together one evicts the other."""
    lock = read_lock()

    files = {name: {artifact.file for artifact in lock.artifacts(name)} for name in SETS}

    assert "kafka-clients-4.1.1.jar" in files["broker"]
    assert "kafka-clients-3.9.1.jar" in files["spark-kafka"]


def test_engines_get_no_kafka_client_for_measurements_only(home: Home) -> None:
    """Workers read Kafka themselves: whoever runs Spark fetches no Kafka client for it, and nobody does unasked."""
    assert not [artifact.file for artifact in read_lock().artifacts("spark") if "kafka" in artifact.file]
    assert "spark-kafka" not in missing(home)


def test_the_lock_survives_writing_and_reading() -> None:
    """A lock that is written otherwise than read would never be complete."""
    assert parse_lock(render_lock(read_lock())) == read_lock()


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 2, "sets": {}}'])
def test_a_lock_of_another_format_is_refused(text: str) -> None:
    """Reading half of an unknown format would fetch half of the jars."""
    with pytest.raises(Terminal, match=r"jars\.lock\.json"):
        parse_lock(text)


def test_a_complete_set_is_not_fetched_again(home: Home) -> None:
    """Every command checks the jars: the check must not start Ivy."""
    lay_out(home, "spark")
    lines: list[str] = []

    fetch(home, "spark", report=lines.append)

    assert lines == []


def test_a_truncated_jar_makes_the_set_incomplete(home: Home) -> None:
    """A full disk leaves short files, on which a JVM fails much later and unreadably."""
    lay_out(home, "spark")
    jar_paths(home, "spark")[0].write_bytes(b"")

    assert missing(home, "spark") == ("spark",)


def test_a_new_lock_makes_the_old_set_incomplete(home: Home) -> None:
    """After an upgrade the jars of the version before must not be used."""
    lay_out(home, "spark")
    (home.jars / "spark" / ".complete").write_text("digest of another lock")

    assert missing(home, "spark") == ("spark",)


def test_a_change_of_one_set_leaves_the_other_complete() -> None:
    """A new broker version must not download Spark's jars again."""
    lock = read_lock()
    changed = Lock({**lock.sets, "broker": lock.artifacts("broker")[1:]})

    assert changed.digest("spark") == lock.digest("spark")
    assert changed.digest("broker") != lock.digest("broker")


def test_a_jar_that_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    """What a registry serves is run with the user's rights: file, expected and found are named."""
    artifact = staged_jar(tmp_path / "staged", b"served")
    lock = Lock({"tiny": (replace(artifact, sha256="0" * 64),)})

    with pytest.raises(Terminal, match=f"thing-1.0.jar.*{'0' * 64}.*{artifact.sha256}"):
        publish(tmp_path / "staged", tmp_path / "tiny", lock, "tiny")

    assert not (tmp_path / "tiny").exists()


def test_a_jar_that_was_not_served_is_named(tmp_path: Path) -> None:
    """A set short of one jar must not become complete."""
    artifact = staged_jar(tmp_path / "staged", b"served")
    absent = replace(artifact, file="other-1.0.jar")

    with pytest.raises(Terminal, match=r"other-1\.0\.jar.*no such file"):
        publish(tmp_path / "staged", tmp_path / "tiny", Lock({"tiny": (artifact, absent)}), "tiny")


def test_a_published_set_replaces_the_one_before(tmp_path: Path) -> None:
    """Jars of two versions in one folder would share a class path."""
    lock = Lock({"tiny": (staged_jar(tmp_path / "staged", b"served"),)})
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "thing-0.9.jar").touch()

    publish(tmp_path / "staged", tmp_path / "tiny", lock, "tiny")

    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == [
        ".complete",
        "thing-1.0.jar",
    ]


def test_ivy_requests_locked_jars_without_dependencies() -> None:
    """`master` is the jar alone; `default` would bring whatever its metadata asks for today."""
    requests = [
        Request("spark", ("a:b:1",), transitive=False),
        Request("broker", ("c:d:2",), transitive=True),
    ]

    elements = ET.fromstring(ivy_module(requests)).iter("dependency")  # noqa: S314, our own text

    assert [tuple(dependency.attrib.values()) for dependency in elements] == [
        ("a", "b", "1", "spark->master"),
        ("c", "d", "2", "broker->default"),
    ]


def test_a_classifier_takes_the_place_of_the_plain_jar() -> None:
    """Asked twice for one module, Ivy keeps one of the jars: both are named in one request."""
    request = Request("rest", ("a:b:1", "a:b:1:tests"), transitive=True)

    [elements] = ET.fromstring(ivy_module([request])).iter("dependency")  # noqa: S314, our own text

    assert tuple(elements.attrib.values()) == ("a", "b", "1", "rest->default")
    classifier = "{http://ant.apache.org/ivy/maven}classifier"
    assert [(jar.get("name"), jar.get(classifier)) for jar in elements] == [("b", None), ("b", "tests")]


def test_archive_is_requested_by_its_type() -> None:
    """Asked for as a jar, an archive is not found."""
    request = Request("registry", ("a:b:1:all@tar.gz",), transitive=False)

    [elements] = ET.fromstring(ivy_module([request])).iter("artifact")  # noqa: S314, our own text

    assert sorted(elements.attrib.values()) == ["all", "b", "tar.gz", "tar.gz"]


def test_an_archive_is_unpacked_before_its_set_is_complete(tmp_path: Path) -> None:
    """A server started from a half unpacked folder fails unreadably."""
    place = tmp_path / "staged" / "org.example" / "server" / "1.0"
    place.mkdir(parents=True)
    (tmp_path / "run.jar").write_bytes(b"main")
    with tarfile.open(place / "server-1.0-all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "run.jar", "run.jar")
    content = (place / "server-1.0-all.tar.gz").read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    pinned = Artifact("org.example:server:1.0:all@tar.gz", "server-1.0-all.tar.gz", len(content), checksum)

    publish(tmp_path / "staged", tmp_path / "server", Lock({"server": (pinned,)}), "server")

    assert (tmp_path / "server" / "run.jar").read_bytes() == b"main"


def test_an_unknown_set_names_those_that_exist() -> None:
    """A typing error in a set's name must not look like an empty class path."""
    with pytest.raises(
        Terminal, match="broker, flink, kafka-connect, kafka-connect-avro, postgres, registry, rest, s3, spark"
    ):
        read_lock().artifacts("sparks")
