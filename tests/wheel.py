"""The wheel, built from a copy of the checkout, and projects and people that know nothing else of Frazil."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from frazil.runtime.home import Home

ROOT = Path(__file__).resolve().parents[1]

SETTINGS = """
clusters: {local: {bootstrap_servers: "KAFKA"}}
catalogs: {lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}}
engines: {spark: {master: "local[1]", connection: frazil_spark}}
alerts: {channels: {desk: {type: slack, connection: desk}}}
"""
ORDERS = """
name: orders
engine: ENGINE
start: earliest
source: {topics: [TOPIC]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""


@dataclass(frozen=True)
class Installed:
    """Where the wheel was unpacked, and a project that knows no checkout.

    Attributes:
        site: A folder of packages, as pip makes it.
        project: Settings, one pipeline and a DAG file.
        interpreter: Whose other packages there are.
    """

    site: Path
    project: Path
    interpreter: str = sys.executable

    def python(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the interpreter in a folder where nothing lies, with the wheel before everything else."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("FRAZIL_", "AIRFLOW"))}
        own = {
            "PYTHONPATH": str(self.site),
            "FRAZIL_PROJECT": str(self.project),
            "FRAZIL_JARS": str(Home.resolve().jars),
            "AIRFLOW_HOME": str(self.project / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
        empty = self.project / "empty"
        empty.mkdir(exist_ok=True)
        return subprocess.run(
            [self.interpreter, *arguments],
            cwd=empty,
            env=inherited | own | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    def pipeline(self, engine: str, kafka: str, topic: str) -> None:
        """Let the project have a pipeline over a topic."""
        (self.project / "include" / "pipelines").mkdir(parents=True, exist_ok=True)
        (self.project / "include" / "settings.yaml").write_text(SETTINGS.replace("KAFKA", kafka))
        orders = ORDERS.replace("ENGINE", engine).replace("TOPIC", topic)
        (self.project / "include" / "pipelines" / "orders.yaml").write_text(orders)

    def frazil(self, *arguments: str, **env: str) -> str:
        """Run a command that must succeed; returns what it wrote."""
        done = self.python("-m", "frazil.cli", *arguments, **env)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def first_hour(self, kafka: int, controller: int) -> None:
        """From nothing to two landed topics, by the commands that each command names next."""
        steps = [
            (("produce", "completed-pizzas", "--generate", "pizzas", "--count", "100", "--seed", "1"), "100 records"),
            (("run", "pizzas"), "100 read = 100 written"),
            (("peek", "completed-pizzas", "--count", "1"), "json"),
            (("new", "orders", "--topic", "completed-pizzas", "--table", "shop.orders"), "100 rows, 0 dead letters"),
            (("validate",), "3 files, all usable"),
            (("run", "orders"), "100 read = 100 written"),
            (("verify", "orders"), "orders: clean, 100 records"),
            (("status",), "2 Idle"),
        ]
        init = self.frazil("init", str(self.project), FRAZIL_PROJECT="")
        assert f"export FRAZIL_PROJECT={self.project}" in init, init
        self.frazil("up", "--only", "kafka", FRAZIL_KAFKA_PORT=str(kafka), FRAZIL_KAFKA_CONTROLLER_PORT=str(controller))
        try:
            for arguments, expected in steps:
                written = self.frazil(*arguments)
                assert expected in written, f"{arguments}: {written}"
        finally:
            self.frazil("down")


CHECKOUT_FILES = f"find '{ROOT}' -xdev -type f"
"""Command that lists the files of the checkout, less those of other file systems that are mounted in it."""


class NewUser:
    """Somebody in a terminal, without Frazil's sources.

    Where the kernel lets the tests mount, an empty folder lies over the checkout for their commands and for servers that these
    start: root reads files of any mode. Of folders in it they have the environment's and the jars.

    Attributes:
        folder: Where they work, and their home.
        env: Variables of the terminal.
        mount_error: Why the checkout stays readable; empty where it does not.
    """

    def __init__(self, folder: Path, environment: Path, **env: str) -> None:
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
        self.folder = folder
        self.env = {"HOME": str(folder), "PATH": path, **java, **env}
        self._hide = _hide_checkout(environment, Home.resolve().jars)
        tried = subprocess.run([*_PRIVATE, self._hide], capture_output=True, text=True, check=False)
        self.mount_error = tried.stderr if tried.returncode else ""

    def types(self, block: str) -> str:
        """Run a block of commands in the same terminal; returns what it printed. A command that fails, fails."""
        shell, hide = (_SHELL, "") if self.mount_error else (_PRIVATE, self._hide)
        script = f"{hide}\n{block}\nenv -0 > {self.folder}/.terminal\n"
        done = subprocess.run(
            [*shell, script], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        variables = (self.folder / ".terminal").read_text().split("\0")
        self.env = dict(line.split("=", 1) for line in variables if "=" in line)
        return done.stdout

    @property
    def home(self) -> Home:
        """Where their project `lake` keeps its stack."""
        return Home.resolve(self.env | {"FRAZIL_PROJECT": str(self.folder / "lake")})


_SHELL = ("/bin/bash", "-euo", "pipefail", "-c")
_PRIVATE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)), *_SHELL)
"""A shell whose mounts nobody else has."""


def _hide_checkout(*visible: Path) -> str:
    """Commands that lay an empty folder over the checkout, with those of these folders that lie in it."""
    places = {path: Path("/mnt") / path.relative_to(ROOT) for path in visible if path.is_relative_to(ROOT)}
    binds = [f"mkdir -p '{place}' && mount --bind '{path}' '{place}'" for path, place in places.items()]
    return "\n".join(["mount -t tmpfs none /mnt", *binds, f"mount --rbind /mnt '{ROOT}'"])


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder. From a copy: a build leaves files beside its sources."""
    copy = folder / "copy"
    for name in ("include", "plugins", "spark_jobs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("frazil-*.whl"))
