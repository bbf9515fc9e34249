"""Spark's configuration, built without pyspark: catalogs and their storage, secrets, the master, the job's
environment, and Frazil's code as it is shipped to executors.
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
"""Process id of the process that waits for the job. If it is killed it can't stop the job, so the job checks whether it lives."""

ENGINE_VARIABLE: Final = "FRAZIL_SPARK_ENGINE"
"""Name of the engine whose spark connect server the job's session is on. Without: the job's own Spark."""

LOCAL_VARIABLE: Final = "FRAZIL_SPARK_LOCAL"
"""Set where the job's own Spark is this process's JVM and nothing else: it may be started early, and dropped, at no cost."""


_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")

_STANDALONE: Final = "spark://"
"""Begin of the address of a standalone cluster's master."""


def is_local(master: str) -> bool:
    """Return whether Spark is one JVM and its Python workers: no cluster, and no executors of their own."""
    return _LOCAL.fullmatch(master) is not None


def cores(setting: Callable[[str], str]) -> int:
    """Cores of the executors, if the configuration says so. Reads only the configuration, since Spark Connect offers no more.

    `setting` reads a key of Spark's configuration; empty if it is not set.
    """
    master = setting("spark.master")
    if (local := _LOCAL.fullmatch(master)) is not None:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    each = int(setting("spark.executor.cores") or 1)
    instances = _executors(setting)
    if master.startswith(_STANDALONE) and (most := setting("spark.cores.max")):
        # As many executors as that takes, all of one size: there is no number of them to configure.
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
"""Names of settings whose values Spark shows nowhere: not in its pages, its event log or its plans."""

_MOST_UIS: Final = "100"
"""Ports that a Spark tries for its pages: jobs on one machine at once. It does not start without one, and Spark's own 16 are few."""


def ui_settings(engine: EngineSettings) -> dict[str, str]:
    """Configuration of Spark's pages, its event log, and what neither shows. The log's folder is made: without it Spark does
    not start.

    Raises:
        Terminal: The folder can't be made.
    """
    conf = {**REDACTION, "spark.ui.enabled": "false"}
    if engine.ui:  # whoever sees the pages could end a batch there, unless told otherwise
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
    """The text of a file for `--properties-file`. It replaces Spark's file of defaults, so it begins with that file's text."""
    return _defaults() + files.write(conf)


def _defaults() -> str:
    """The text of the file that spark-submit reads if it is given none; as there, what is no UTF-8 becomes U+FFFD."""
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
"""PyIceberg's name -> Java's, where they differ; all others of `s3.`, `gcs.` and `adls.` are the same or PyIceberg's own."""

_SIGNERS: Final = ("access-key-id", "secret-access-key", "session-token")
"""Names of the keys: PyIceberg's begin with `client.` and serve for the catalog and for S3, Java's with `rest.` and `s3.`."""

_IO: Final = "io-impl"
_RESOLVING: Final = "org.apache.iceberg.io.ResolvingFileIO"
"""Takes the file-io that an address's scheme asks for. Without it a catalog in a database takes Hadoop's, which knows no s3://."""

OBJECT_STORES: Final = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
"""Schemes of addresses in object stores."""


def storage_properties(warehouse: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Spark properties of a catalog's storage. Properties in the settings take precedence over them."""
    properties_of_java = {java: properties[name] for name, java in _ALIKE.items() if name in properties}
    if scheme_of(warehouse) in OBJECT_STORES:
        properties_of_java[_IO] = _RESOLVING
    # PyArrow puts the bucket into the path wherever an endpoint is given, unless told otherwise; Java wherever it is told to.
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
"""Needed for branches. A static setting: it must be there when the session is made."""


_S3: Final = "s3."
"""Begins the properties of a catalog whose tables lie in S3, where no more than its address tells."""


def jar_sets(settings: Settings) -> tuple[str, ...]:
    """Sets of jars that Spark needs for the catalogs of the settings; what reaches S3 is 69 MB, so only where one needs it."""
    catalogs = settings.catalogs.values()
    needed = {"s3": any(map(_is_in_s3, catalogs)), "postgres": any(map(_is_in_postgres, catalogs))}
    return ("spark", *(name for name, is_needed in needed.items() if is_needed))


def _is_in_s3(catalog: CatalogSettings) -> bool:
    return (
        catalog.type == "glue"
        or catalog.properties.get(SIGNING, "").lower() == "true"
        or scheme_of(catalog.warehouse).startswith("s3")
        or any(name.startswith(_S3) for name in catalog.properties)
    )


def _is_in_postgres(catalog: CatalogSettings) -> bool:
    return catalog.type == "jdbc" and catalog.uri.startswith("postgresql")


def catalog_properties(settings: CatalogSettings) -> dict[str, str]:
    """Properties of Iceberg's Spark catalog. Some are secrets: they go into the session, never into an argument."""
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
    """A SQLAlchemy address in JDBC's form: user, password and all options become properties.

    The options of PostgreSQL's two drivers that matter have the same names (`sslmode`, `sslrootcert`).
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
    """Make a catalog of the settings known to a session."""
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in catalog_properties(settings).items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)


WORKERS: Final = "frazil.spark.jobs.workers"
"""The module that Spark's Python workers are forked from."""

_PYTHON: Final = "spark.pyspark.python"

_ELSEWHERE: Final = ("yarn", "k8s://")
"""Begin of masters whose executors are on other machines for sure: none of them finds a driver on the loopback interface."""

_KEPT: Final = 3
"""Archives that stay: of jobs that run while Frazil is edited."""


def executor_python(home: Home, engine: EngineSettings, python: str, sources: str) -> dict[str, str]:
    """Configuration by which executors find their Python and Frazil's code.

    Executors on this machine, or in the same image, use the driver's Python. The engine's `conf` takes precedence, which the
    caller ensures.
    """
    conf = {_PYTHON: python, "spark.pyspark.driver.python": python}
    if engine.archives:
        conf["spark.archives"] = ",".join(engine.archives)
        conf[_PYTHON] = f"./{_unpacked(engine.archives[0])}/bin/python"
    if engine.py_files == "shared":
        return conf | {"spark.python.daemon.module": WORKERS, "spark.executorEnv.PYTHONPATH": sources}
    if engine.py_files == "preinstalled":
        return conf | {"spark.python.daemon.module": WORKERS}
    # Spark's own daemon: it begins before Spark adds the archive to the path of its workers.
    return conf | {"spark.submit.pyFiles": str(code_archive(home))}


def driver_place(master: str) -> dict[str, str]:
    """Address at which executors reach the driver, unless the engine sets it: this machine. Cluster managers leave it to
    Spark.
    """
    if master.startswith(_ELSEWHERE):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def code_archive(home: Home) -> Path:
    """A zip of Frazil's present package, created once per content."""
    folder = private_folder(home.root / "py-files")
    archive = folder / f"frazil-{digest()}.zip"
    with exclusive(folder / ".lock", lambda: None):
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
    """Name of the folder that Spark unpacks an archive into: what stands behind `#`, else the file's name."""
    path, _, name = archive.partition("#")
    return name or path.rpartition("/")[2]


def digest() -> str:
    """A digest of the package's present code: a long-running process may outlive an upgrade, and a checkout's version does
    not change with every edit.
    """
    code_hash = hashlib.sha256()
    for name, content in sorted(_modules(_package())):
        code_hash.update(f"{name}\n".encode())
        code_hash.update(content)
    return code_hash.hexdigest()[:16]


def job_file(name: str) -> Path:
    """The program that Spark runs for a job: of the checkout; a wheel has it in the package.

    Raises:
        Terminal: It does not exist, and no other try will find it.
    """
    file = (checkout() or Path(frazil.__file__).parent) / "spark_jobs" / name
    if not file.is_file():
        raise STACK_FAILED.terminal(f"{file} does not exist", next_step="reinstall Frazil: a part of it is missing")
    return file


def _package() -> Path | zipfile.Path:
    """The package's folder, or that in the archive that it is imported from."""
    folder = Path(frazil.__file__).parent
    return folder if folder.is_dir() else zipfile.Path(folder.parent, f"{folder.name}/")


def _modules(folder: Path | zipfile.Path, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _modules(path, f"{prefix}{path.name}/")
        elif path.name.endswith(".py"):
            yield f"{prefix}{path.name}", path.read_bytes()
