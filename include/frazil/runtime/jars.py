"""Fetch the pinned jars with Ivy and check every one against the lock file.

`python -m frazil.runtime.jars lock [SET]...` resolves these sets anew (without names all) and rewrites the lock file: maintainers
run it after a version changed here. `python -m frazil.runtime.jars fetch [SET]...` fetches sets into the home (without names
all but those on demand).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from frazil.error_codes import PROGRAM_MISSING
from frazil.errors import FrazilError
from frazil.runtime.home import Home, exclusive, write_atomically
from frazil.runtime.java import Request, retrieve

LOCK_FILE = "jars.lock.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, order=True)
class Artifact:
    """One pinned jar or archive.

    Attributes:
        coordinates: `organisation:module:revision`, with `:classifier` if it has one, and `@extension` if it is no jar.
    """

    coordinates: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Lock:
    """The pinned artifact sets by name."""

    sets: Mapping[str, tuple[Artifact, ...]]

    def artifacts(self, name: str) -> tuple[Artifact, ...]:
        """Return the artifacts of a set.

        Raises:
            Terminal: There is no such set.
        """
        if name not in self.sets:
            raise PROGRAM_MISSING.terminal(
                f"no artifact set {name!r} in {LOCK_FILE}; it has {', '.join(sorted(self.sets))}"
            )
        return self.sets[name]

    def digest(self, name: str) -> str:
        """Return the SHA-256 of one set's entries, whatever other sets hold."""
        return hashlib.sha256(
            json.dumps([asdict(artifact) for artifact in self.artifacts(name)], indent=2).encode()
        ).hexdigest()


def read_lock() -> Lock:
    """Read the lock file that ships with this package."""
    return parse_lock(files(__package__).joinpath(LOCK_FILE).read_text(encoding="utf-8"))


def parse_lock(text: str) -> Lock:
    """Read a lock from its JSON text.

    Raises:
        Terminal: The text is not a lock of a known format.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise PROGRAM_MISSING.terminal(f"{LOCK_FILE}: expected format {FORMAT}, found {content['format']!r}")
        sets = {name: tuple(Artifact(**entry) for entry in entries) for name, entries in content["sets"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PROGRAM_MISSING.terminal(
            f"{LOCK_FILE} can't be read: {error!r}", next_step="restore it from version control"
        ) from error
    return Lock(sets)


def render_lock(lock: Lock) -> str:
    """Return the lock's JSON text: sorted, one value per line, for small diffs."""
    sets = {name: [asdict(artifact) for artifact in sorted(artifacts)] for name, artifacts in sorted(lock.sets.items())}
    return json.dumps({"format": FORMAT, "sets": sets}, indent=2) + "\n"


def first_mismatch(folder: Path, artifacts: Iterable[Artifact]) -> str | None:
    """Return how the first file that differs from the lock file does so; None if all match."""
    for artifact in artifacts:
        path = folder / artifact.file
        digest = sha256(path) if path.is_file() else "no such file"
        if digest != artifact.sha256:
            return f"{path} ({artifact.coordinates}): expected sha256 {artifact.sha256}, found {digest}"
    return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """Jars that share one class path.

    Attributes:
        coordinates: The requested artifacts, as in `Artifact`. An archive ends with `ARCHIVE`, and is unpacked into the folder.
        transitive: Whether their runtime dependencies belong to the set too.
        on_demand: Whether the set is fetched only by name, because it is large and few need it.
    """

    coordinates: tuple[str, ...]
    transitive: bool
    on_demand: bool = False


ARCHIVE = "@tar.gz"
"""Ends the coordinates of an archive."""

SETS = {
    "broker": ArtifactSet(
        (
            "org.apache.kafka:kafka_2.13:4.1.1",
            # The broker logs through SLF4J 1.7 and brings no binding that writes anything.
            "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
        ),
        transitive=True,
    ),
    # PySpark brings what these depend on.
    "spark": ArtifactSet(
        ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.50.3.0"),
        transitive=False,
    ),
    # Spark's own Kafka source, which Frazil is measured against. Listed jar by jar: PySpark brings the rest, and the published
    # metadata of the source asks for a token provider of Spark's own version, which not every registry holds. Kafka's client
    # differs from the broker's.
    "spark-kafka": ArtifactSet(
        (
            "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            "org.apache.kafka:kafka-clients:3.9.1",
            "org.apache.commons:commons-pool2:2.12.1",
        ),
        transitive=False,
        on_demand=True,
    ),
    # The server side of Iceberg's REST protocol: it is published as test code only, of 1.11 at the latest.
    "rest": ArtifactSet(
        (
            "org.apache.iceberg:iceberg-core:1.11.0",
            "org.apache.iceberg:iceberg-core:1.11.0:tests",
            "org.apache.iceberg:iceberg-aws:1.11.0",
            "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.1",
            "org.eclipse.jetty:jetty-xml:12.1.1",
            "org.postgresql:postgresql:42.7.8",
            "org.slf4j:slf4j-simple:2.0.17",
            "org.xerial:sqlite-jdbc:3.50.3.0",
        ),
        transitive=True,
    ),
    # Amazon's clients, by which Spark and the REST server reach S3, if a catalog's tables lie there. The second jar is for the
    # server: its older Iceberg does not fit the Apache client in the first. Both are of one release of the SDK.
    "s3": ArtifactSet(
        ("org.apache.iceberg:iceberg-aws-bundle:1.12.0", "software.amazon.awssdk:url-connection-client:2.54.17"),
        transitive=False,
        on_demand=True,
    ),
    # A YARN in one JVM, for tests. It needs Hadoop's client, which PySpark brings, of the same release.
    "yarn": ArtifactSet(
        (
            "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
            "junit:junit:4.13.2",
            "org.hamcrest:hamcrest-core:1.3",
            "org.bouncycastle:bcprov-jdk18on:1.78.1",
            "org.bouncycastle:bcpkix-jdk18on:1.78.1",
            "org.bouncycastle:bcutil-jdk18on:1.78.1",
            "javax.xml.bind:jaxb-api:2.2.11",
            "com.sun.xml.bind:jaxb-impl:2.2.3-1",
            "javax.activation:activation:1.1.1",
        ),
        transitive=False,
        on_demand=True,
    ),
    # Spark's driver for PostgreSQL: a catalog there, or a captured database. Users bring the drivers of other databases.
    "postgres": ArtifactSet(("org.postgresql:postgresql:42.7.8",), transitive=False, on_demand=True),
    # A Schema Registry with Confluent's API.
    "registry": ArtifactSet((f"io.apicurio:apicurio-registry-app:3.3.3:all{ARCHIVE}",), transitive=False),
    # Kafka Connect with the Iceberg sink, which Frazil is measured against.
    "kafka-connect": ArtifactSet(
        (
            "org.apache.kafka:connect-runtime:4.1.1",
            "org.apache.kafka:connect-json:4.1.1",
            "org.apache.iceberg:iceberg-kafka-connect:1.12.0",
            "org.apache.iceberg:iceberg-parquet:1.12.0",
            "org.apache.hadoop:hadoop-client-runtime:3.4.2",
            "org.xerial:sqlite-jdbc:3.50.3.0",
        ),
        transitive=True,
        on_demand=True,
    ),
    # Kafka Connect's converter of Avro values with schemas in a registry: a plugin, loaded apart from Kafka Connect's own jars.
    "kafka-connect-avro": ArtifactSet(
        ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",), transitive=True, on_demand=True
    ),
    # Flink's local cluster with its Iceberg sink, which Frazil is measured against as well.
    "flink": ArtifactSet(
        (
            "org.apache.flink:flink-clients:2.0.0",
            "org.apache.flink:flink-connector-files:2.0.0",
            "org.apache.flink:flink-json:2.0.0",
            "org.apache.flink:flink-sql-avro-confluent-registry:2.0.0",
            "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
            "org.apache.flink:flink-table-api-java-bridge:2.0.0",
            "org.apache.flink:flink-table-planner-loader:2.0.0",
            "org.apache.flink:flink-table-runtime:2.0.0",
            "org.apache.hadoop:hadoop-client-runtime:3.4.2",
            "org.apache.iceberg:iceberg-flink-runtime-2.0:1.11.0",
            "org.slf4j:slf4j-simple:1.7.36",
            "org.xerial:sqlite-jdbc:3.50.3.0",
        ),
        transitive=True,
        on_demand=True,
    ),
}

_JAR, _TAR = ".jar", ".tar.gz"

_MARKER = ".complete"
"""File with the digest of the lock's entries. It is written into a set's folder before the folder gets its name."""


def fetch(home: Home, *names: str, report: Callable[[str], None] = lambda _: None) -> None:
    """Download artifact sets, without names all but those on demand, into `home.jars/<set>/`; some milliseconds if they exist.

    Killed half-way it leaves no set that looks complete, and the next call continues with the downloaded files. `report` gets
    a line before a download.

    Raises:
        Retryable: A download failed.
        Terminal: A jar is not the locked one; the message has file, expected and found checksum. Or there is no suitable Java.
    """
    if not missing(home, *names):
        return
    with exclusive(home.jars / ".lock", lambda: report("jars: waiting for another download")):
        absent = missing(home, *names)  # another process may have fetched them meanwhile
        if absent:
            report(f"jars: fetching {', '.join(absent)}")
            _download(home, read_lock(), absent)


def jar_paths(home: Home, name: str) -> list[Path]:
    """Return the paths of a set's files, sorted by name, whether or not they were fetched."""
    return sorted(home.jars / name / artifact.file for artifact in read_lock().artifacts(name))


def write_lock(home: Home, path: Path, *names: str) -> Lock:
    """Resolve declared sets anew, without names all, and write their files and checksums to `path`.

    Raises:
        Retryable: A download failed.
    """
    selected = names or tuple(SETS)
    staging = _emptied(home.jars / ".staging")
    requests = [Request(name, SETS[name].coordinates, SETS[name].transitive) for name in selected]
    retrieve(requests, staging, home.jars / ".ivy", home.logs / "ivy.log")
    locked_sets = read_lock().sets if names else {}
    new_sets = {
        name: tuple(sorted(_artifact(file, file.relative_to(staging / name)) for file in _retrieved(staging / name)))
        for name in selected
    }
    lock = Lock({name: new_sets[name] if name in new_sets else locked_sets[name] for name in SETS})
    write_atomically(path, render_lock(lock))
    shutil.rmtree(staging)
    return lock


def missing(home: Home, *names: str) -> tuple[str, ...]:
    """Return which of these sets (without names all but those on demand) are not complete; takes some milliseconds."""
    lock = read_lock()
    selected = names or tuple(name for name, jar_set in SETS.items() if not jar_set.on_demand)
    return tuple(name for name in selected if not _is_complete(home.jars / name, lock, name))


def publish(staged: Path, folder: Path, lock: Lock, name: str) -> None:
    """Check retrieved jars against the lock, and replace the set's folder by them in one step.

    Raises:
        Terminal: A jar is missing or not the locked one; nothing was published.
    """
    flat = _emptied(staged.with_name(f"{name}.flat"))
    for file in _retrieved(staged):
        file.rename(flat / file.name)
    mismatch = first_mismatch(flat, lock.artifacts(name))
    if mismatch is not None:
        hint = f"try again; if it persists, what is served is not what {LOCK_FILE} pins"
        raise PROGRAM_MISSING.terminal(mismatch, next_step=hint)
    for archive in flat.glob(f"*{_TAR}"):
        with tarfile.open(archive) as content:
            content.extractall(flat, filter="data")
    (flat / _MARKER).write_text(lock.digest(name), encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    flat.rename(folder)


def _is_complete(folder: Path, lock: Lock, name: str) -> bool:
    marker = folder / _MARKER
    if not marker.is_file() or marker.read_text(encoding="utf-8") != lock.digest(name):
        return False
    paths = ((folder / artifact.file, artifact.size) for artifact in lock.artifacts(name))
    return all(path.is_file() and path.stat().st_size == size for path, size in paths)


def _download(home: Home, lock: Lock, names: tuple[str, ...]) -> None:
    staging, cache = _emptied(home.jars / ".staging"), home.jars / ".ivy"
    # The locked jars one by one: what their metadata depends on by now does not matter.
    requests = [
        Request(name, tuple(artifact.coordinates for artifact in lock.artifacts(name)), transitive=False)
        for name in names
    ]
    retrieve(requests, staging, cache, home.logs / "ivy.log")
    try:
        for name in names:
            publish(staging / name, home.jars / name, lock, name)
    finally:
        shutil.rmtree(cache)  # also after a mismatch: the next try would find the wrong file there again
    shutil.rmtree(staging)


def _retrieved(folder: Path) -> list[Path]:
    return [*folder.rglob(f"*{_JAR}"), *folder.rglob(f"*{_TAR}")]


def _artifact(file: Path, place: Path) -> Artifact:
    """The artifact of a file: its folders, laid out by Ivy, have the coordinates, and its name the classifier."""
    organisation, module, revision = place.parts[:3]
    kind = ARCHIVE if file.name.endswith(_TAR) else ""
    stem = file.name.removesuffix(_TAR if kind else _JAR)
    classifier = stem.removeprefix(f"{module}-{revision}").replace("-", ":", 1)
    coordinates = f"{organisation}:{module}:{revision}{classifier}{kind}"
    return Artifact(coordinates, file.name, file.stat().st_size, sha256(file))


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _main(arguments: list[str]) -> int:
    home = Home.resolve()
    if arguments[:1] == ["lock"] and set(arguments[1:]) <= set(SETS):
        lock = write_lock(home, Path(__file__).with_name(LOCK_FILE), *arguments[1:])
        _say(f"{LOCK_FILE}: " + ", ".join(f"{name} {len(jars)} jars" for name, jars in lock.sets.items()))
        return 0
    if arguments[:1] == ["fetch"] and set(arguments[1:]) <= set(SETS):
        fetch(home, *arguments[1:], report=_say)
        return 0
    _say(f"usage: python -m frazil.runtime.jars lock|fetch [{'|'.join(SETS)}]...")
    return 2


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201, a command's progress


if __name__ == "__main__":
    try:
        sys.exit(_main(sys.argv[1:]))
    except FrazilError as e:
        _say(f"{e.label}: {e}")
        sys.exit(e.exit_code)
