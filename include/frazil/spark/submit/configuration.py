"""Spark's configuration, built without pyspark: catalogs and their storage, secrets, pages, executors, and the archive of Frazil's
code that executors get.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import frazil
from frazil.error_codes import BAD_SETTING, STACK_FAILED
from frazil.pipeline.files import files
from frazil.pipeline.settings.catalogs import SIGNING, CatalogSettings
from frazil.pipeline.settings.settings import EngineSettings, Settings
from frazil.runtime.home import LOOPBACK, PRIVATE_FOLDER, Home, checkout, exclusive, private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SUBMITTER_VARIABLE: Final = "FRAZIL_SUBMITTER"
"""Process id of the submitter. A killed submitter can't stop its job, so the job checks whether the submitter lives."""

ENGINE_VARIABLE: Final = "FRAZIL_SPARK_ENGINE"
"""Name of the engine on whose Spark Connect server the job has its session; unset if the job starts a Spark of its own."""

LOCAL_VARIABLE: Final = "FRAZIL_SPARK_LOCAL"
"""Set if the job's Spark is only its own JVM, without a cluster: it may be started early, and abandoned at the end."""

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")

_STANDALONE: Final = "spark://"
"""Prefix of the address of a standalone cluster's master."""


def is_local(master: str) -> bool:
    """Return whether Spark is one JVM with its Python workers, without a cluster."""
    return _LOCAL.fullmatch(master) is not None


def cores(setting: Callable[[str], str]) -> int:
    """Cores of all executors, as far as the configuration says: Spark Connect shows nothing else.

    `setting` reads a key of Spark's configuration; empty if it is not set.
    """
    master = setting("spark.master")
    if (local := _LOCAL.fullmatch(master)) is not None:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    each = int(setting("spark.executor.cores") or 1)
    instances = _executors(setting)
    if master.startswith(_STANDALONE) and (most := setting("spark.cores.max")):
        # The cluster starts executors of one size until it has so many cores; their number is not configured.
        return max(int(most) // each, 1) * each
    return instances * each


def _executors(setting: Callable[[str], str]) -> int:
    """The largest number of executors: the maximum of dynamic allocation, if it is used."""
    if setting("spark.dynamicAllocation.enabled") == "true" and (
        most := setting("spark.dynamicAllocation.maxExecutors")
    ):
        return int(most)
    return int(setting("spark.executor.instances") or 1)


_SECRET_KEYS: Final = (
    "(?i)secret|passw|passphrase|token|credential|jaas|user[._-]?info|(access|account|api|private)[._-]?key"  # noqa: S105 - names
)

REDACTION: Final[Mapping[str, str]] = {
    # Spark's own default knows secret, password, token and access.key.
    "spark.redaction.regex": _SECRET_KEYS,
    "spark.sql.redaction.options.regex": f"{_SECRET_KEYS}|url",
}
"""Settings that hide secrets in Spark's pages, its event log and its plans."""

_MOST_UIS: Final = "100"
"""Ports that Spark tries for its pages, and so the most jobs at once on one machine: without a port it does not start, and its
default is 16."""


def ui_settings(engine: EngineSettings) -> dict[str, str]:
    """Configuration of Spark's pages and its event log, with secrets hidden. The log's folder is created: Spark does not start
    without it.

    Raises:
        Terminal: The folder can't be created.
    """
    conf = {**REDACTION, "spark.ui.enabled": "false"}
    if engine.ui:  # by default anybody who sees the pages could kill a batch there
        conf |= {"spark.ui.enabled": "true", "spark.ui.killEnabled": "false", "spark.port.maxRetries": _MOST_UIS}
    if engine.event_log is None:
        return conf
    if not scheme_of(engine.event_log):
        try:
            Path(engine.event_log).mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        except OSError as error:
            raise BAD_SETTING.terminal(
                f"event_log of the engine: the folder {engine.event_log} can't be created: {error.strerror}",
                next_step="name a folder that the user of the jobs may write, or create this one for that user",
            ) from error
    return conf | {"spark.eventLog.enabled": "true", "spark.eventLog.dir": engine.event_log}


_DEFAULTS: Final = "spark-defaults.conf"


def properties_text(conf: Mapping[str, str]) -> str:
    """The text of a file for `--properties-file`. It begins with the text of Spark's file of defaults, which it replaces."""
    return _defaults() + files.write(conf)


def _defaults() -> str:
    """The text of the file that spark-submit reads by default. As there, bytes that are no UTF-8 become U+FFFD."""
    folder = os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf"
    try:
        return (Path(folder) / _DEFAULTS).read_text(encoding="utf-8", errors="replace") + "\n"
    except OSError:
        return ""


def _spark_home() -> Path:
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()


_ALIKE: Final = {
    "s3.region": "client.region",
    "adls.account-name": "adls.auth.shared-key.account.name",
    "adls.account-key": "adls.auth.shared-key.account.key",
}
"""PyIceberg's property -> that of Java's Iceberg, where they differ. All other names that both know are the same."""

_SIGNERS: Final = ("access-key-id", "secret-access-key", "session-token")
"""Names of credentials. PyIceberg's `client.NAME` serves for both catalog and S3; Java has `rest.NAME` and `s3.NAME`."""

_IO: Final = "io-impl"
_RESOLVING: Final = "org.apache.iceberg.io.ResolvingFileIO"
"""A file-io that chooses by an address's scheme. The default of a catalog in a database is Hadoop's, which can't read s3://."""

OBJECT_STORES: Final = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
"""Schemes of addresses in object stores."""


def storage_properties(warehouse: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark properties of a catalog's storage that the settings don't have under Spark's name."""
    properties_of_java = {java: properties[name] for name, java in _ALIKE.items() if name in properties}
    if scheme_of(warehouse) in OBJECT_STORES:
        properties_of_java[_IO] = _RESOLVING
    # With an endpoint, PyArrow puts the bucket into the path by default; Java does so only if a property says so.
    if "s3.endpoint" in properties:
        virtual = properties.get("s3.force-virtual-addressing", "false").lower()
        properties_of_java["s3.path-style-access"] = "false" if virtual in ("true", "1", "yes") else "true"
    if (token := properties.get("adls.sas-token")) is not None and (account := properties.get("adls.account-name")):
        properties_of_java[f"adls.sas-token.{account}.dfs.core.windows.net"] = token
    return {name: setting for name, setting in properties_of_java.items() if name not in properties}


def scheme_of(warehouse: str | None) -> str:
    """Scheme of an address; empty for a path or a name."""
    scheme, separator, _ = (warehouse or "").partition("://")
    return scheme if separator else ""


EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Spark's extension for branches and procedures. It is a static setting, which no session can change."""

_S3: Final = "s3."
"""Prefix of properties that show that a catalog's tables lie in S3."""


def jar_sets(settings: Settings) -> tuple[str, ...]:
    """Sets of jars that Spark needs for the catalogs of the settings. Those for S3 have 69 MB, so only catalogs in S3 get them."""
    catalogs = settings.catalogs.values()
    needed = {
        "s3": any(map(_is_in_s3, catalogs)),
        "postgres": any(c.type == "jdbc" and c.uri.startswith("postgresql") for c in catalogs),
    }
    return ("spark", *(name for name, is_needed in needed.items() if is_needed))


def _is_in_s3(catalog: CatalogSettings) -> bool:
    return (
        catalog.type == "glue"
        or catalog.properties.get(SIGNING, "").lower() == "true"
        or scheme_of(catalog.warehouse).startswith("s3")
        or any(name.startswith(_S3) for name in catalog.properties)
    )


def catalog_properties(settings: CatalogSettings) -> dict[str, str]:
    """Properties of Iceberg's Spark catalog. Some are secrets, so they are set in the session, never in an argument."""
    storage = storage_properties(settings.warehouse, settings.properties)
    common = {"type": settings.type, "cache-enabled": "false", **storage, **settings.properties}
    if settings.warehouse is not None:
        common["warehouse"] = settings.warehouse
    match settings.type:
        case "jdbc":
            return common | _database(settings.uri)
        case "glue":
            region = {"client.region": common["glue.region"]} if "glue.region" in common else {}
            return region | common | ({"glue.endpoint": settings.uri} if settings.uri else {})
        case _:
            keys = {f"{user}.{name}": common.get(f"client.{name}") for user in ("rest", "s3") for name in _SIGNERS}
            return {name: key for name, key in keys.items() if key is not None} | common | {"uri": settings.uri}


def _database(uri: str) -> dict[str, str]:
    """Properties of a catalog in a database, from its SQLAlchemy address; user, password and options become properties.

    The important options of PostgreSQL's two drivers have the same names (`sslmode`, `sslrootcert`).
    """
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    kind = url.get_backend_name()
    if kind == "sqlite":
        return {"uri": f"jdbc:sqlite:{url.database}", "jdbc.schema-version": "V1"}
    port = f":{url.port}" if url.port else ""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    properties: dict[str, str | None] = {
        **{f"jdbc.{name}": str(value) for name, value in url.query.items()},
        "uri": f"jdbc:{kind}://{host}{port}/{quote(url.database or '')}",
        "jdbc.schema-version": "V1",
        "jdbc.user": url.username,
        "jdbc.password": str(url.password) if url.password is not None else None,
    }
    return {name: value for name, value in properties.items() if value is not None}


def conf_arguments(conf: Mapping[str, str]) -> list[str]:
    """Configuration as arguments of spark-submit."""
    return [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]


def with_extensions(conf: Mapping[str, str]) -> str:
    """Spark's extensions: those of an engine, and Iceberg's."""
    return ",".join(filter(None, [conf.get("spark.sql.extensions"), EXTENSIONS]))


def job_conf(*, writes: bool) -> dict[str, str]:
    """Configuration that every job needs. `writes` adds Iceberg's extensions, for tables that Spark writes."""
    needed = {"spark.sql.session.timeZone": "UTC", **REDACTION}
    return needed | ({"spark.sql.extensions": EXTENSIONS} if writes else {})


def open_catalog(spark: SparkSession, name: str, settings: CatalogSettings) -> None:
    """Open a catalog of the settings in a session."""
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in catalog_properties(settings).items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)


WORKERS: Final = "frazil.spark.jobs.workers"
"""The module of the process from which Spark forks its Python workers."""

_PYTHON: Final = "spark.pyspark.python"

_ELSEWHERE: Final = ("yarn", "k8s://")
"""Prefixes of masters whose executors run on other machines, where they can't reach a driver on the loopback interface."""

_KEPT: Final = 3
"""Archives that are kept: jobs with older code may still run while Frazil is edited."""


def executor_python(home: Home, engine: EngineSettings, python: str, sources: str) -> dict[str, str]:
    """Configuration by which executors find their Python and Frazil's code; the engine's `conf` overrides it.

    Executors on this machine, or in the same image, use the driver's Python.
    """
    conf = {_PYTHON: python, "spark.pyspark.driver.python": python}
    if engine.archives:
        conf["spark.archives"] = ",".join(engine.archives)
        conf[_PYTHON] = f"./{_unpacked(engine.archives[0])}/bin/python"
    if engine.py_files == "shared":
        return conf | {"spark.python.daemon.module": WORKERS, "spark.executorEnv.PYTHONPATH": sources}
    if engine.py_files == "preinstalled":
        return conf | {"spark.python.daemon.module": WORKERS}
    # With Spark's own daemon, which starts before Spark adds the archive to the path of its workers.
    return conf | {"spark.submit.pyFiles": str(code_archive(home))}


def driver_place(master: str) -> dict[str, str]:
    """Configuration of the address at which executors reach the driver: loopback, unless they run on other machines."""
    if master.startswith(_ELSEWHERE):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def code_archive(home: Home) -> Path:
    """A zip of Frazil's present code, created once per content."""
    folder = private_folder(home.root / "py-files")
    archive = folder / f"frazil-{digest()}.zip"
    with exclusive(folder / ".lock"):
        if not archive.is_file():
            _pack(archive)
            for old in sorted(folder.glob("frazil-*.zip"), key=lambda archive: archive.stat().st_mtime)[:-_KEPT]:
                old.unlink()
    return archive


def _pack(archive: Path) -> None:
    package = Path(frazil.__file__).parent
    unfinished = archive.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as written:
        for file in sorted(package.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                written.write(file, file.relative_to(package.parent))
    unfinished.rename(archive)


def _unpacked(archive: str) -> str:
    """Name of the folder into which Spark unpacks an archive: the part behind `#`, else the file's name."""
    path, _, name = archive.partition("#")
    return name or path.rpartition("/")[2]


def digest() -> str:
    """A digest of the present code: the version would not change with an edit, or in a process that outlives an upgrade."""
    code_hash = hashlib.sha256()
    for name, content in sorted(_modules(_package())):
        code_hash.update(f"{name}\n".encode())
        code_hash.update(content)
    return code_hash.hexdigest()[:16]


def job_file(name: str) -> Path:
    """The program of a job, in the checkout, or inside the package of a wheel.

    Raises:
        Terminal: It does not exist.
    """
    file = (checkout() or Path(frazil.__file__).parent) / "spark_jobs" / name
    if not file.is_file():
        raise STACK_FAILED.terminal(f"{file} does not exist", next_step="reinstall Frazil: a part of it is missing")
    return file


def _package() -> Path | zipfile.Path:
    """The package's folder, also inside a zip from which it is imported."""
    folder = Path(frazil.__file__).parent
    return folder if folder.is_dir() else zipfile.Path(folder.parent, f"{folder.name}/")


def _modules(folder: Path | zipfile.Path, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _modules(path, f"{prefix}{path.name}/")
        elif path.name.endswith(".py"):
            yield f"{prefix}{path.name}", path.read_bytes()
