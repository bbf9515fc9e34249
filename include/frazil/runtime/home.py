"""The home of a stack: its folders, its ports, and the environment variables that choose them. With helpers for state files,
which are written whole, and for probes of ports.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Literal, get_args

from frazil.error_codes import BAD_SETTING, STACK_FAILED

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def write_atomically(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file in one step, and create its folder. The permissions hold before any content is in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path, text, mode) as file:
        file.replace(path)


def write_new(path: Path, text: str) -> None:
    """Write a new file in one step: a kill leaves all of it or nothing.

    Raises:
        FileExistsError: The file exists already, and stays as it is.
    """
    with _temporary(path, text, 0o644) as file:
        os.link(file, path)  # unlike a rename it replaces nothing


@contextmanager
def _temporary(path: Path, text: str, mode: int) -> Iterator[Path]:
    """A file with a text beside a path, while the block runs: nothing of the text, which may be a secret, stays after an error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter: its files may contain secrets."""
    path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    path.chmod(PRIVATE_FOLDER)
    return path


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock between processes while the block runs; the death of a holder releases it.

    The file stays, because removing it would let two holders in. `on_wait` is called once if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


LOOPBACK = "127.0.0.1"
"""Address of every port of the stack, never an outside interface."""

PROJECT_VARIABLE = "FRAZIL_PROJECT"
HOME_VARIABLE = "FRAZIL_HOME"
JARS_VARIABLE = "FRAZIL_JARS"
USER_VARIABLE = "FRAZIL_AIRFLOW_USER"
DATABASE_VARIABLE = "FRAZIL_AIRFLOW_DATABASE"
DEFAULT_USER = "admin"
LAST_PORT = 65535
PORT_VARIABLES: Mapping[str, str] = {
    "kafka": "FRAZIL_KAFKA_PORT",
    "controller": "FRAZIL_KAFKA_CONTROLLER_PORT",
    "airflow": "FRAZIL_AIRFLOW_PORT",
    "spark_connect": "FRAZIL_SPARK_CONNECT_PORT",
    "kafka_sasl": "FRAZIL_KAFKA_SASL_PORT",
    "kafka_ssl": "FRAZIL_KAFKA_SSL_PORT",
    "postgres": "FRAZIL_POSTGRES_PORT",
    "s3": "FRAZIL_S3_PORT",
    "catalog": "FRAZIL_CATALOG_PORT",
    "registry": "FRAZIL_REGISTRY_PORT",
    "spark_master": "FRAZIL_SPARK_MASTER_PORT",
}
"""Field of `Ports` -> the environment variable that chooses the port."""

Profile = Literal["embedded", "production"]
"""What `frazil up` starts: the small stack, or the parts of a production setup."""


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on the loopback interface. The defaults lie next to, not on, the usual ones.

    The ports after `spark_connect` are those of the production profile.
    """

    kafka: int = 19092
    controller: int = 19093
    airflow: int = 18080
    spark_connect: int = 15102
    kafka_sasl: int = 19094
    kafka_ssl: int = 19095
    postgres: int = 15432
    s3: int = 17070
    catalog: int = 18181
    registry: int = 18081
    spark_master: int = 17077


@dataclass(frozen=True, slots=True)
class Home:
    """One stack: its state folder, the project whose DAGs it runs, its jars, its ports.

    Attributes:
        root: State folder, absolute. To remove it while the stack is down is to forget everything.
        project: Folder that contains dags/ and include/.
        jars: Folder of the artifact sets. Several homes may share it.
        airflow_database: Address of a PostgreSQL database for Airflow's metadata, a secret that is not recorded. None means
            SQLite, or the stack's own database in the production profile.
    """

    root: Path
    project: Path
    jars: Path
    ports: Ports = Ports()
    airflow_user: str = DEFAULT_USER
    airflow_database: str | None = field(default=None, repr=False)
    profile: Profile = "embedded"

    @classmethod
    def resolve(cls, environ: Mapping[str, str] | None = None) -> Home:
        """Find the home: by environment variables, else as the last `up` recorded it, else by defaults.

        Raises:
            Terminal: There is no project, or a port variable or the recorded state can't be used.
        """
        env = os.environ if environ is None else environ
        project = project_root(env)
        root = Path(env.get(HOME_VARIABLE) or project / ".frazil").expanduser().absolute()
        jars = Path(env.get(JARS_VARIABLE) or project / ".frazil" / "jars").expanduser().absolute()
        recorded = _read_state(root / "stack.json")
        user = env.get(USER_VARIABLE) or recorded.get("airflow_user") or DEFAULT_USER
        ports = _ports(env, recorded.get("ports", {}), root / "stack.json")
        profile = _profile(recorded.get("profile", "embedded"), root / "stack.json")
        return cls(root, project, jars, ports, user, env.get(DATABASE_VARIABLE) or None, profile)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make a child process see this home."""
        return {PROJECT_VARIABLE: str(self.project), HOME_VARIABLE: str(self.root), JARS_VARIABLE: str(self.jars)}

    @property
    def logs(self) -> Path:
        """Folder with a log per process of the stack."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Folder of process records, and of the lock that `up` and `down` hold."""
        return self.root / "run"

    @property
    def kafka(self) -> Path:
        """Broker configuration and data."""
        return self.root / "kafka"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME: metadata database, task logs, secrets."""
        return self.root / "airflow"

    @property
    def airflow_passwords(self) -> Path:
        """File with the password of the only login, mode 600."""
        return self.airflow / "passwords.json"

    @property
    def warehouse(self) -> Path:
        """Data and metadata files of the Iceberg tables."""
        return self.root / "warehouse"

    @property
    def catalog(self) -> Path:
        """SQLite file of the Iceberg catalog."""
        return self.root / "catalog.db"

    @property
    def production(self) -> Path:
        """Settings, passwords and certificates of the production profile."""
        return self.root / "production"

    @property
    def stack(self) -> Path:
        """File with the profile and ports of the last `up`, for commands in other shells."""
        return self.root / "stack.json"

    @property
    def airflow_url(self) -> str:
        """Address of Airflow's UI and REST API."""
        return f"http://{LOOPBACK}:{self.ports.airflow}"

    def record(self) -> None:
        """Write profile and ports to `stack`, where commands in other shells find them."""
        state = {"profile": self.profile, "ports": asdict(self.ports), "airflow_user": self.airflow_user}
        write_atomically(self.stack, json.dumps(state, indent=2) + "\n")


def bootstrap_servers(home: Home) -> str:
    """Kafka's `bootstrap.servers` of the stack's broker; in the production profile the listener with passwords."""
    return f"{LOOPBACK}:{home.ports.kafka_sasl if home.profile == 'production' else home.ports.kafka}"


def checkout() -> Path | None:
    """Return the checkout that this package lies in; None if it was installed from a wheel."""
    sources = Path(__file__).resolve().parents[2]
    return sources.parent if sources.name == "include" and (sources.parent / "pyproject.toml").is_file() else None


def project_root(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder that contains include/: FRAZIL_PROJECT, else the checkout. Never the current folder: in an Airflow task
    that is arbitrary.

    Raises:
        Terminal: Frazil was installed from a wheel, and the variable is not set.
    """
    env = os.environ if environ is None else environ
    root = Path(env[PROJECT_VARIABLE]).expanduser().absolute() if env.get(PROJECT_VARIABLE) else checkout()
    if root is None:
        raise BAD_SETTING.terminal(
            f"{PROJECT_VARIABLE} is not set",
            next_step="set it to the folder that holds include/settings.yaml; `frazil init` makes one",
        )
    return root


def inherited_environment() -> dict[str, str]:
    """Return the environment for a child process, without settings of another Airflow.

    `AIRFLOW__*` variables, such as the metadata database of a production Airflow, must not reach the embedded one. Connections
    and Airflow variables (`AIRFLOW_CONN_*`, `AIRFLOW_VAR_*`) stay, since users pass them so. The address of the embedded one's
    database goes too: its components get it by Airflow's own variable, and tasks must not inherit it.
    """
    variables = os.environ.items()
    return {key: setting for key, setting in variables if not key.startswith("AIRFLOW__") and key != DATABASE_VARIABLE}


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise STACK_FAILED.terminal(
            f"{path}: not JSON: {error}", next_step=f"remove {path}, then `frazil up`"
        ) from error
    if not isinstance(state, dict):
        raise STACK_FAILED.terminal(f"{path}: expected an object", next_step=f"remove {path}, then `frazil up`")
    return state


def _profile(recorded: object, source: Path) -> Profile:
    for profile in get_args(Profile):
        if recorded == profile:
            return profile  # type: ignore[no-any-return]  # get_args returns no types
    raise STACK_FAILED.terminal(
        f"{source}: profile {recorded!r}, known: {', '.join(get_args(Profile))}",
        next_step=f"`frazil down` with the Frazil that wrote it, remove {source}, then `frazil up`",
    )


def _ports(env: Mapping[str, str], recorded: object, source: Path) -> Ports:
    if not isinstance(recorded, dict) or not all(isinstance(port, int) for port in recorded.values()):
        raise STACK_FAILED.terminal(
            f"{source}: expected numbers under ports", next_step=f"remove {source}, then `frazil up`"
        )
    chosen = {name: _port(env.get(variable), variable) for name, variable in PORT_VARIABLES.items()}
    overrides = {name: port for name, port in chosen.items() if port is not None}
    earlier = {name: port for name, port in recorded.items() if name in PORT_VARIABLES}
    return Ports(**{**earlier, **overrides})


def _port(text: str | None, variable: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= LAST_PORT:
        raise BAD_SETTING.terminal(
            f"{variable}={text!r} is not a TCP port",
            next_step=f"set {variable} to 1..{LAST_PORT} or unset it",
        )
    return int(text)


def interpreter_bin() -> Path:
    """Return the folder of this interpreter's commands, such as `airflow` and `spark-submit`."""
    # Without resolving links: the python of a virtual environment is a link to another folder.
    return Path(sys.executable).absolute().parent


_CONNECT_SECONDS = 1.0
"""Bounds one connect on the loopback interface, where an answer takes microseconds."""

_ANSWER_SECONDS = 5.0
"""Bounds one answer to a request that costs a server nothing."""


def require_free(port: int, variable: str, component: str) -> None:
    """Check that `component` could listen on a port, which the environment `variable` chooses.

    Raises:
        Terminal: Another process listens there.
    """
    if not is_free(port):
        raise STACK_FAILED.terminal(
            f"port {port} of {LOOPBACK}, which {component} needs, is used by another process",
            next_step=f"stop that process, or choose another port with {variable}=PORT",
        )


def is_free(port: int) -> bool:
    """Return whether a server could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: without it, connections of an ended server that wait for late packets would block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Return whether a server accepts connections on the port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def basic_login(user: str, password: str) -> str:
    """Return the header `Authorization` of a user."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def serves(port: int, path: str, authorization: str = "") -> bool:
    """Return whether an HTTP server on the port answers a GET of this path with 200."""
    connection = HTTPConnection(LOOPBACK, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
