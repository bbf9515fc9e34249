"""One project as commands use it: its folders, settings and pipelines, and connections to Kafka and the catalogs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from frazil.error_codes import BAD_SETTING, STACK_FAILED
from frazil.pipeline.files.files import References, connection_fields, connection_variable
from frazil.pipeline.files.folder import CAPTURES, Captures, Pipelines, load_captures
from frazil.pipeline.files.load import load_settings
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, Pipeline
from frazil.pipeline.settings.capture import Capture, Flow
from frazil.pipeline.settings.catalogs import CatalogSettings, DatabaseSettings
from frazil.pipeline.settings.settings import EngineSettings, Settings
from frazil.pipeline.syntax.strict import Model
from frazil.runtime.home import Home, bootstrap_servers

if TYPE_CHECKING:
    from frazil.iceberg.catalog.catalog import Lake
    from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
    from frazil.kafka.client.cluster import Cluster
    from frazil.registry.registry import Registry

T = TypeVar("T", bound=Model)

SETTINGS_VARIABLE = "FRAZIL_SETTINGS"
PIPELINES_VARIABLE = "FRAZIL_PIPELINES"
SHIPPED = "frazil-references.json"
"""File beside settings that were sent to a cluster: the values of their references on the sending machine."""
SHIPPED_VARIABLE = "FRAZIL_SHIPPED"
"""Set in a driver whose project Frazil sent. Elsewhere the file's author is unknown: it must not set references of the settings."""


@dataclass(frozen=True)
class Places:
    """Paths of settings and pipelines, and the values of their references."""

    home: Home
    settings_file: Path
    pipelines_folder: Path
    references: References

    @classmethod
    def resolve(cls, env: Mapping[str, str]) -> Places:
        """Find the paths. FRAZIL_HOME, FRAZIL_SETTINGS and FRAZIL_PIPELINES replace the project's own; a home in the production
        profile has settings of its own.
        """
        home = Home.resolve(env)
        include = home.project / "include"
        local_names = {"home": str(home.root), "kafka": bootstrap_servers(home)}
        settings = include / "settings.yaml"
        if home.profile == "production":
            local_names |= _stack_references(home)
            settings = home.production / "settings.yaml"
        return cls(
            home,
            Path(env.get(SETTINGS_VARIABLE) or settings).absolute(),
            Path(env.get(PIPELINES_VARIABLE) or include / "pipelines").absolute(),
            References(env, local_names, shipped=_shipped(include / SHIPPED) if env.get(SHIPPED_VARIABLE) else {}),
        )

    @property
    def captures_folder(self) -> Path:
        """Folder of the capture files; it may be missing."""
        return self.pipelines_folder.parent / CAPTURES


def _shipped(file: Path) -> dict[str, str]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]  # Frazil wrote it
    except FileNotFoundError:
        return {}


def _stack_references(home: Home) -> dict[str, str]:
    """Values of `${local:NAME}` in the settings of the production profile, which `frazil up` wrote."""
    file = home.production / "references.json"
    try:
        return {name: str(value) for name, value in json.loads(file.read_text(encoding="utf-8")).items()}
    except FileNotFoundError as error:
        raise STACK_FAILED.terminal(
            f"{file} does not exist", next_step="`frazil up --profile production --only postgres` makes it"
        ) from error
    except (ValueError, AttributeError) as error:
        raise STACK_FAILED.terminal(
            f"{file} can't be read", next_step="`frazil up --profile production --only postgres` writes it again"
        ) from error


@dataclass(frozen=True)
class Project:
    """Settings and pipelines in force. Each look-up by name raises Terminal where there is no such name, or its file is broken.

    Attributes:
        root: The folder that contains include/, and dags/ if Airflow takes them from there.
        home: State of the embedded stack.
        settings_file: The file that `settings` were read from.
        pipelines: The pipeline files, the broken ones apart. Each file is read when it is needed.
        captures: The capture files, the broken ones apart.
    """

    root: Path
    home: Home
    settings: Settings
    settings_file: Path
    pipelines_folder: Path
    pipelines: Pipelines
    captures: Captures
    _lakes: dict[str, Lake] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def load(cls, env: Mapping[str, str] | None = None) -> Project:
        """Read settings; pipelines are read on demand. FRAZIL_HOME, FRAZIL_SETTINGS and FRAZIL_PIPELINES choose other paths.

        Raises:
            ConfigError: The settings file is broken. Broken pipeline files are kept in `pipelines.broken`.
        """
        env = os.environ if env is None else env
        places = Places.resolve(env)
        settings = load_settings(places.settings_file, places.references)
        references = places.references.allowing(settings.references.allow)
        pipelines = Pipelines(places.pipelines_folder, references)
        home = places.home
        captures = load_captures(places.captures_folder, references)
        return cls(home.project, home, settings, places.settings_file, places.pipelines_folder, pipelines, captures)

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name."""
        return self.pipelines.get(name)

    def pipeline_on_disk(self, name: str) -> Pipeline:
        """Reload the pipeline of that name from its file, which a deployment may have changed."""
        return self.pipelines.reloaded().get(name)

    def capture(self, name: str) -> Capture:
        """The capture of that name."""
        return self.captures.get(name)

    def flows(self) -> dict[str, Flow]:
        """All pipelines and captures whose files can be used, by unique name."""
        return {**self.pipelines.usable, **{capture.unique_name: capture for capture in self.captures.usable.values()}}

    def find_flow(self, unique_name: str) -> Flow | None:
        """The pipeline or the capture with a unique name; None if there is none, or its file can't be used."""
        return self.flows().get(unique_name) if "." in unique_name else self.pipelines.find(unique_name)

    def database(self, name: str) -> DatabaseSettings:
        """The database of that name in the settings file."""
        return _complete_entry(self.settings.databases, name, "databases", self.settings_file)

    def cluster(self, name: str) -> Cluster:
        """The Kafka cluster of that name in the settings file."""
        from frazil.kafka.client.cluster import Cluster

        entry_of_cluster = _complete_entry(self.settings.clusters, name, "clusters", self.settings_file)
        return Cluster(name, entry_of_cluster.client_properties)

    def lake(self, name: str) -> Lake:
        """The Iceberg catalog of that name in the settings file. One per name: it opens its connections once."""
        if name in self._lakes:
            return self._lakes[name]
        lake = catalog_of(name, _complete_entry(self.settings.catalogs, name, "catalogs", self.settings_file))
        return self._lakes.setdefault(name, lake)  # another thread may have been faster

    def close(self) -> None:
        """Close the catalogs' connections. A catalog that is used again reopens them."""
        for lake in tuple(self._lakes.values()):
            lake.close()

    def lake_of(self, pipeline: Pipeline) -> PipelineCatalog:
        """The tables of a pipeline: each in its catalog, on its branch."""
        from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog, TablePlace

        lakes = {name: self.lake(name) for name in pipeline.catalogs}
        places = {
            destination.table: TablePlace(lakes[destination.catalog or pipeline.catalog], destination.branch)
            for destination in pipeline.destinations
        }
        # Catalogs that may hold the ledger if an edit moved the first destination. They are read only when a table is missing.
        ledger_catalogs = sorted(self.settings.catalogs)
        return PipelineCatalog(pipeline.name, lakes[pipeline.home_catalog], places, self.lake, ledger_catalogs)

    def auto_created_tables(self, pipeline: Pipeline) -> tuple[str, ...]:
        """Names of the pipeline's auto-created tables, from its ledger.

        Raises:
            Terminal: The settings have no such catalog, or the ledger is not readable.
            Retryable: The catalog can't be reached.
        """
        from frazil.iceberg.commit.summary_state import made_tables

        if pipeline.create is None:
            return ()
        ledger = self.lake(pipeline.home_catalog).find_table(pipeline.ledger_table)
        return () if ledger is None else made_tables(ledger.metadata, pipeline.name, pipeline.ledger_table)

    def with_auto_created(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with its auto-created tables, which its file does not list. Every command begins with it.

        Raises:
            Terminal, Retryable: As `auto_created_tables`.
        """
        return (
            pipeline.with_auto_created(self.auto_created_tables(pipeline)) if pipeline.create is not None else pipeline
        )

    def registry(self, name: str) -> Registry:
        """The Schema Registry of that name in the settings file."""
        from frazil.registry.registry import Registry

        entry_of_registry = _complete_entry(self.settings.registries, name, "registries", self.settings_file)
        return Registry(name, entry_of_registry.url, entry_of_registry.client_properties, entry_of_registry.framing)

    def engine(self, name: str) -> EngineSettings:
        """The engine of that name in the settings file; `auto` is the one that takes large runs.

        Raises:
            Terminal: It does not exist, or refers to an Airflow connection that is unknown here.
        """
        return _complete(self.engine_entry(name), "engines", self._engine_name(name), self.settings_file)

    def engine_entry(self, name: str) -> EngineSettings:
        """The engine's entry, whether or not `${airflow:...}` in it is resolved, which it is not while a DAG is parsed."""
        return _entry(self.settings.engines, self._engine_name(name), "engines", self.settings_file)

    def _engine_name(self, name: str) -> str:
        return self.settings.auto.engine if name == AUTO_ENGINE else name

    def environment(self) -> dict[str, str]:
        """Variables that make a child process see this very project."""
        return {
            **self.home.environment,
            SETTINGS_VARIABLE: str(self.settings_file),
            PIPELINES_VARIABLE: str(self.pipelines_folder),
        }


def catalog_of(name: str, settings: CatalogSettings) -> Lake:
    """The Iceberg catalog that an entry of the settings describes, without connections yet."""
    from frazil.iceberg.catalog.catalog import Lake

    return Lake(
        name,
        settings.address,
        settings.warehouse,
        settings.properties,
        kind=settings.type,
        table_properties=settings.table_properties,
    )


def _complete_entry(entries: Mapping[str, T], name: str, kind: str, file: Path) -> T:
    return _complete(_entry(entries, name, kind, file), kind, name, file)


def _entry(entries: Mapping[str, T], name: str, kind: str, file: Path) -> T:
    if name not in entries:
        raise BAD_SETTING.terminal(
            f"{file}: {kind}.{name} is missing", next_step=f"defined under {kind}: {', '.join(sorted(entries))}"
        )
    return entries[name]


def _complete(settings: T, kind: str, name: str, file: Path) -> T:
    reference = next(connection_fields(settings.model_dump()), None)
    if reference is not None:
        raise BAD_SETTING.terminal(
            f"{file}: {kind}.{name} refers to field {reference[1]!r} of the Airflow connection {reference[0]!r}, which is not known here",
            next_step="in Airflow, add the field to the connection; elsewhere, set the variable"
            f" {connection_variable(*reference)}",
        )
    return settings
