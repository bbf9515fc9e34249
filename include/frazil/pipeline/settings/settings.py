"""The settings file as a model: Kafka clusters, catalogs, Schema Registries, engines and others, which pipelines refer to by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.models.alerts import AlertSettings, unknown_channels
from frazil.pipeline.models.maintenance import Age
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, AutoEngine, Pipeline
from frazil.pipeline.settings.catalogs import CaptureSettings, CatalogSettings, DatabaseSettings, refused_properties
from frazil.pipeline.syntax.strict import Model, nearest
from frazil.records.model.format import Framing


class ClusterSettings(Model):
    """A Kafka cluster, with the properties of its librdkafka clients."""

    bootstrap_servers: str = Field(description="host:port; several with commas between them.")
    properties: dict[str, str] = Field(
        default_factory=dict, description="Further librdkafka properties, such as security.protocol.", repr=False
    )
    token_provider: str | None = Field(
        None,
        description="Provider of the tokens for `sasl.mechanism: OAUTHBEARER`: `msk-iam`, or the name of an entry point of the group"
        " `frazil.kafka_tokens`. Each process with a client calls it, including executors, with the value of"
        " `sasl.oauthbearer.config`.",
    )
    rack_variable: str | None = Field(
        None,
        description="Environment variable with the rack (in a cloud: the zone) of the machine, read by each process with a client,"
        " including executors. It becomes `client.rack`, so that records are read from a replica in that rack; if it is unset,"
        " from leaders.",
    )

    @property
    def client_properties(self) -> dict[str, str]:
        """Properties of a client as texts; `frazil.kafka_properties` completes them in the process that makes the client."""
        names = {name: getattr(self, key) for key, name in _COMPLETED.items()}
        properties = {"bootstrap.servers": self.bootstrap_servers, **self.properties}
        return properties | {name: value for name, value in names.items() if value is not None}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        properties = self.properties
        for key, name in _COMPLETED.items():
            if name in properties:
                raise ValueError(f"properties: {name} is set by {key}")
        if self.rack_variable is not None and "client.rack" in properties:
            raise ValueError("rack_variable and properties: client.rack exclude each other")
        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", ""))
        if self.token_provider is not None and not (
            properties.get("security.protocol", "").upper().startswith("SASL_")
            and mechanism.upper() == "OAUTHBEARER"
            and properties.get("sasl.oauthbearer.method", "default").lower() == "default"
        ):
            raise ValueError(
                "token_provider needs properties with security.protocol: SASL_SSL and sasl.mechanism: OAUTHBEARER, and without"
                " sasl.oauthbearer.method"
            )
        return self


_COMPLETED: Final = {"token_provider": "oauth_cb", "rack_variable": "client.rack.variable"}
"""Key -> property that carries its value to the process that makes a client."""


class RegistrySettings(Model):
    """A Schema Registry, and how records name its schemas."""

    framing: Framing = Field(
        "confluent",
        description="How records name a schema. `confluent`: magic byte and id, as the serializers of Confluent, Karapace, Redpanda"
        " and Apicurio 3 write them. `apicurio-content-id`, `apicurio-global-id`: Apicurio's own ids of 8 bytes, before the value or in"
        " headers, by the serializers' option `use-id`. `glue`: the 18 bytes of AWS Glue, whose own API is used.",
    )
    url: str = Field(
        "",
        description="Root of the API, such as https://registry.example.org or https://apicurio.example.org/apis/ccompat/v7;"
        " several, with commas between them, are tried in turn. For `glue`: an endpoint other than Amazon's for the region.",
        repr=False,
    )
    user_info: str | None = Field(None, description="Basic authentication: `user:password`.", repr=False)
    ca_file: str | None = Field(None, description="CA certificates to trust (PEM), instead of the system's.")
    certificate_file: str | None = Field(None, description="The client's own certificate (PEM).")
    key_file: str | None = Field(None, description="Key of that certificate (PEM), if it is in a file of its own.")
    key_password: str | None = Field(None, description="Password of that key.", repr=False)
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Further properties of the client, such as bearer.auth.credentials.source, proxy or timeout (seconds). For"
        " `glue`: glue.region, glue.profile-name, glue.access-key-id, glue.secret-access-key and glue.session-token; boto3 takes"
        " missing ones from its environment.",
        repr=False,
    )

    @property
    def client_properties(self) -> dict[str, str | float]:
        """All properties but the address, with the client's names and types."""
        options = {name: getattr(self, key) for key, name in _REGISTRY_CLIENT.items()}
        further = {key: float(value) if key in _NUMBERS else value for key, value in self.properties.items()}
        return {**further, **{name: value for name, value in options.items() if value is not None}}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.user_info is not None and ":" not in self.user_info:
            raise ValueError("user_info must be `user:password`")
        if self.certificate_file is None and (self.key_file or self.key_password) is not None:
            raise ValueError("key_file and key_password belong to a certificate_file, which is missing")
        for key, name in _REGISTRY_CLIENT.items():
            if name in self.properties:
                raise ValueError(f"properties: {name} is set by {key}")
        for name in _NUMBERS & self.properties.keys():
            try:
                float(self.properties[name])
            except ValueError:
                raise ValueError(f"properties: {name}: expected a number, found {self.properties[name]!r}") from None
        return self

    @model_validator(mode="after")
    def _fits_its_framing(self) -> Self:
        urls = [url.strip() for url in self.url.split(",") if self.url]
        if not all(url.startswith(("http://", "https://")) for url in urls):
            raise ValueError("url must begin with http:// or https://")
        if self.framing == "apicurio-global-id" and not all(_COMPATIBLE_API.search(url) for url in urls):
            raise ValueError("url must be Apicurio's API of Confluent's kind, https://HOST/apis/ccompat/v7")
        if self.framing != "glue" and not urls:
            raise ValueError("url is missing: the root of the registry's API")
        foreign = [key for key in _REGISTRY_CLIENT if getattr(self, key) is not None]
        foreign += [f"properties.{name}" for name in self.properties if name not in _GLUE_PROPERTIES]
        if self.framing == "glue" and foreign:
            keys = ", ".join(_GLUE_PROPERTIES)
            raise ValueError(f"{', '.join(foreign)}: framing glue has no such key; its properties are {keys}")
        return self


_COMPATIBLE_API: Final = re.compile(r"/apis/ccompat/v\d+/?$")
"""An address of Apicurio below which its own API, which maps versions to contents, can be found as well."""

_GLUE_PROPERTIES: Final = (
    *("glue.region", "glue.profile-name", "glue.access-key-id", "glue.secret-access-key", "glue.session-token"),
)

_NUMBERS: Final = frozenset(
    {"max.retries", "retries.wait.ms", "retries.max.wait.ms", "timeout", "cache.capacity", "cache.latest.ttl.sec"}
)
"""Properties that the client needs as numbers; in the settings file they are texts."""

_REGISTRY_CLIENT: Final = {
    "user_info": "basic.auth.user.info",
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
    "key_password": "ssl.key.password",
}


class EngineSettings(Model):
    """How batches use Spark: started for each run, or running already and shared."""

    type: Literal["submit", "connect", "operator"] = Field(
        "submit",
        description="`submit`: each run starts Spark with spark-submit. `connect`: runs use a Spark Connect server that is running"
        " already. `operator`: an Airflow operator, which the DAG file defines, starts the job elsewhere: see"
        " docs/spark-by-operators.md.",
    )
    url: str | None = Field(
        None,
        description="`connect`: address of the server, `sc://host:port`. Further parameters of the client may follow, with"
        " percent-encoded values, as in `sc://host:port/;use_ssl=true`. Unknown parameters become headers of its calls.",
        repr=False,
    )
    managed: bool = Field(
        False,
        description="`connect`: in place of `url`, Frazil runs the server itself, on this machine's loopback interface. `frazil up`"
        " starts it, `frazil down` stops it, and without it runs start a Spark of their own, like `submit`.",
    )
    token: str | None = Field(
        None,
        description="`connect`: token that the server requires (its `spark.connect.authenticate.token`). A managed server has a"
        " token of its own. The client sends it only over TLS, or to `localhost`.",
        repr=False,
    )
    master: str = Field(
        "local[2]",
        description="Spark master of `frazil run` and of a managed server; under Airflow, the connection's host is used for"
        " `submit`.",
    )
    connection: str = Field("frazil_spark", description="`submit`: Airflow connection of the Spark master.")
    deploy_mode: Literal["client", "cluster"] = Field(
        "client",
        description="`submit`: where the driver runs. `client`: with the run that starts it. `cluster`: in the cluster, which only"
        " works with YARN; then `master` is used under Airflow, too, and no connection is needed.",
    )
    driver_memory: str = Field("1g", description="Heap of the driver, or of the managed server.")
    py_files: Literal["shared", "zip", "preinstalled"] = Field(
        "shared",
        description="`submit`: how executors get Frazil's code. `shared`: it has the same path there, on this machine or in the same"
        " image. `zip`: it is sent with each job. `preinstalled`: it is installed in their Python.",
    )
    archives: tuple[str, ...] = Field(
        (),
        description="`submit`: packed Python environments that Spark unpacks for each executor, such as"
        " s3a://bucket/frazil-env.tar.gz#environment. Executors then use `bin/python` of the first one.",
    )
    pool: str = Field("frazil_spark", description="Airflow pool that bounds how many ingest tasks run at once.")
    maintenance_pool: str = Field(
        "frazil_maintenance",
        description="Airflow pool that bounds how many maintenance tasks run at once. It differs from `pool`, so that ingestion"
        " never waits for maintenance.",
    )
    ui: bool = Field(
        False,
        description="`submit` and managed servers: whether Spark serves its pages while it runs, from port 4040 on, or from"
        " `spark.ui.port` in `conf`. The pages have no login.",
    )
    event_log: str | None = Field(
        None,
        pattern=r"^(/|[a-z][a-z0-9+.-]*://)",
        description="`submit` and managed servers: folder for event logs, from which Spark's history server shows the pages of finished"
        " jobs: a path, or an address that Spark's Hadoop can write, such as hdfs:///spark-logs. Frazil never deletes event logs.",
    )
    conf: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark configuration. For a server that Frazil does not manage, only options that can be set per"
        " session.",
        repr=False,
    )

    @property
    def has_connection(self) -> bool:
        """Whether Airflow's Spark provider submits jobs, to the master of a connection. Otherwise Frazil itself submits them."""
        return self.type == "submit" and self.deploy_mode == "client"

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        engine_type = "a managed server" if self.type == "connect" and self.managed else f"type {self.type}"
        foreign = [key for key in _FOREIGN_KEYS[engine_type] if key in self.model_fields_set and getattr(self, key)]
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: {engine_type} has no such key")
        if _DEPLOY_MODE in self.conf:
            raise ValueError(f"conf.{_DEPLOY_MODE}: use the engine's key deploy_mode")
        if self.deploy_mode == "cluster" and self.master != "yarn":
            raise ValueError(f"deploy_mode: cluster, and master: {self.master}; {_CLUSTER_MODE}")
        if self.type == "connect" and not self.managed:
            if self.url is None:
                raise ValueError("type connect needs url: sc://host:port, or managed: true")
            if not _SERVER_ADDRESS.fullmatch(self.url):
                raise ValueError(
                    "url must be sc://host:port, with further parameters behind /;, their values percent-encoded"
                )
            if any(f";{key}=" in self.url for key in ("token", "session_id")):
                raise ValueError("url: use the engine's key `token` for the token; sessions get their own ids")
        return self


_DEPLOY_MODE: Final = "spark.submit.deployMode"
_CLUSTER_MODE: Final = (
    "only YARN starts a driver that Frazil can end and whose files it brings. A standalone cluster runs no Python driver at all; on"
    " Kubernetes let Airflow run its task there, as its KubernetesExecutor does"
)

_SERVER_ADDRESS: Final = re.compile(r"sc://[^/;:\s]+:\d{1,5}(/(;[^;=/?#\s]+=[^;=/?#\s]*)*)?")
"""Form of an address. A stricter check than that of Spark's client, whose error would quote the values of parameters."""

_FOREIGN_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "type submit": ("url", "managed", "token"),
    "type connect": (
        *("master", "connection", "deploy_mode", "driver_memory", "py_files", "archives", "ui", "event_log"),
    ),
    "a managed server": ("url", "token", "connection", "deploy_mode", "py_files", "archives"),
    "type operator": (
        *("url", "managed", "token", "master", "connection", "driver_memory", "py_files", "archives", "conf"),
        *("deploy_mode", "maintenance_pool", "ui", "event_log"),
    ),
}
"""Type of an engine -> keys that have no effect on it, and are therefore refused."""


class ReportSettings(Model):
    """Where reports on dead letters are stored, and for how long."""

    folder: str | None = Field(
        None,
        description="A folder, or a prefix in an object store such as s3://bucket/frazil/reports, which is opened with the"
        " file-io properties of the pipeline's catalog. Workers and the web server need access to the same one. Default: `reports`"
        " in the state folder.",
    )
    older_than: Age = Field("90d", description="Age at which a report may be deleted.")
    keep: int = Field(20, ge=1, description="Number of reports of each pipeline that stay at any age.")


class RestApiSettings(Model):
    """What the REST API in the form of Kafka Connect's may do."""

    changes: Literal["refused", "file", "commit"] = Field(
        "refused",
        description="What to do with a request over HTTP to create, change or delete a pipeline. `refused`: refuse it. `file`: write"
        " or delete the pipeline's file. `commit`: also commit the file to the Git working tree that it is in.",
    )


_ALLOWABLE: Final = re.compile(r"(env|file|local):[^${}\s]+")


class ReferenceSettings(Model):
    """Which references pipelines and captures, which many people may write, may use."""

    allow: tuple[str, ...] = Field(
        (),
        description="References that pipeline and capture files may use, such as `env:REGION`. Their values are no secrets any more,"
        " because they may land in a table. The settings file itself may use every reference.",
    )

    @field_validator("allow")
    @classmethod
    def _are_references(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _ALLOWABLE.fullmatch(name):
                raise ValueError(
                    f"{name!r}: expected env:NAME, file:/path:key or local:NAME; fields of Airflow connections are for settings"
                )
        return names


class Settings(Model):
    """The settings file."""

    environment: str | None = Field(
        None,
        pattern=r"^[a-z0-9_]+$",
        description="Name of this environment, for two environments that use the same Kafka: it becomes part of the transactional"
        " ids and positions of captures, `frazil.capture.ENVIRONMENT.NAME`, so that these don't disturb each other. Captures that ran"
        " without it, or under another name, are refused.",
    )
    clusters: dict[str, ClusterSettings] = Field(min_length=1)
    catalogs: dict[str, CatalogSettings] = Field(min_length=1)
    registries: dict[str, RegistrySettings] = Field(
        {}, description="Schema Registries, for values and keys that name their schema."
    )
    engines: dict[str, EngineSettings] = Field(default_factory=lambda: {"spark": EngineSettings()})
    auto: AutoEngine = Field(
        default_factory=AutoEngine, description="The engines that `engine: auto` in a pipeline file chooses from."
    )
    alerts: AlertSettings | None = Field(
        None, description="Where alerts are sent. Without: nowhere, and Airflow has no DAG `monitor`."
    )
    reports: ReportSettings = Field(default_factory=ReportSettings)
    databases: dict[str, DatabaseSettings] = Field({}, description="Databases that captures read.")
    captures: CaptureSettings = Field(default_factory=CaptureSettings)
    references: ReferenceSettings = Field(default_factory=ReferenceSettings)
    rest_api: RestApiSettings = Field(default_factory=RestApiSettings)

    @model_validator(mode="after")
    def _has_one_managed_server(self) -> Self:
        managed = [name for name, engine in self.engines.items() if engine.managed]
        if len(managed) > 1:
            raise ValueError(f"engines: {', '.join(managed)} are managed, but only one engine can be")
        return self


def unknown_names(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """One line per key of a pipeline that names something which the settings don't have, or which does not fit them."""
    yield from missing_setting("source.cluster", pipeline.source.cluster, settings.clusters, "clusters")
    if pipeline.value.registry is not None:
        yield from missing_setting("value.registry", pipeline.value.registry, settings.registries, "registries")
    if pipeline.key is not None and pipeline.key.registry is not None:
        yield from missing_setting("key.registry", pipeline.key.registry, settings.registries, "registries")
    yield from _unread_frames(pipeline, settings)
    if pipeline.home_catalog == pipeline.catalog or any(
        template.catalog is None for template in pipeline.declared.values()
    ):
        yield from missing_setting("catalog", pipeline.catalog, settings.catalogs, "catalogs")
    for key, template in pipeline.declared.items():
        if template.catalog is not None:
            yield from missing_setting(f"{key}.catalog", template.catalog, settings.catalogs, "catalogs")
    yield from _refused_properties(pipeline, settings)
    yield from missing_setting("engine", pipeline.engine, [*settings.engines, INLINE_ENGINE, AUTO_ENGINE], "engines")
    if pipeline.engine == AUTO_ENGINE:
        yield from missing_setting(
            "engine: auto, which the settings say under auto.engine", settings.auto.engine, settings.engines, "engines"
        )
    if pipeline.maintenance.engine is not None:
        yield from missing_setting("maintenance.engine", pipeline.maintenance.engine, settings.engines, "engines")
    yield from _unfit_operators(pipeline, settings)
    yield from unknown_channels(pipeline.alerts, settings.alerts)


def _unread_frames(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """Refuse Protobuf with other framings than Confluent's, which write the message type after the schema id in another form."""
    for key, half in (("value", pipeline.value), ("key", pipeline.key)):
        registry = None if half is None or half.registry is None else settings.registries.get(half.registry)
        if half is not None and registry is not None and half.format == "protobuf" and registry.framing != "confluent":
            yield (
                f"{key}.format: protobuf is read behind Confluent's frame only, and registries.{half.registry} has framing:"
                f" {registry.framing}"
            )


def _unfit_operators(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """Refuse engines of type operator where Frazil itself must start the engine."""
    by_operator = {name for name, engine in settings.engines.items() if engine.type == "operator"}
    if pipeline.session is not None and pipeline.engine in by_operator:
        yield (
            f"session_for: {pipeline.engine} is of type operator, and no task waits for its jobs, as a session needs: leave session_for"
            " out, or name an engine of type submit or connect"
        )
    if pipeline.engine == AUTO_ENGINE and settings.auto.engine in by_operator:
        yield f"engine: auto stands for {settings.auto.engine}, which is of type operator: name it as the engine itself"
    elif pipeline.maintenance.schedule and pipeline.maintenance_engine in by_operator:
        yield (
            f"maintenance.engine: {pipeline.maintenance_engine} is of type operator, which runs batches only: name an engine of type"
            " submit or connect, or say maintenance: {schedule: false}"
        )


def _refused_properties(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    for key, template in pipeline.declared.items():
        name = template.catalog or pipeline.catalog
        allowed = settings.catalogs[name].table_properties if name in settings.catalogs else ()
        for refused in refused_properties(template.properties, allowed):
            yield (
                f"{key}.properties.{refused}: is refused, since it may run code or change the storage for all who open the table;"
                f" the settings can allow it: catalogs.{name}.table_properties"
            )


def unfit_catalogs(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """One line per key of a pipeline that needs a feature which its catalog does not have.

    Only a REST server can change the schema of a table of format version 3: for other catalogs the client writes the metadata, which
    PyIceberg 0.12 does not support for that version (`TableMetadataV3.model_dump_json` raises).
    """
    for number, destination in enumerate(pipeline.destinations):
        name = destination.catalog or pipeline.catalog
        catalog = settings.catalogs.get(name)
        evolves = destination.format_version == "3" and destination.evolves != "none"
        if evolves and catalog is not None and catalog.type != "rest":
            yield (
                f"destinations.{number}.evolve: {destination.evolves}, but {destination.table} is of format version 3, and in"
                f" catalog {name} (type: {catalog.type}) such a table can't follow its records: declare its columns and evolve:"
                " none, use version 2, or a REST catalog"
            )
    yield from _unfit_metastores(pipeline, settings)


def _unfit_metastores(pipeline: Pipeline, settings: Settings) -> Iterator[str]:
    """Refuse names that a Hive Metastore and Glue can't store, which have one level of namespaces and lower-case names."""
    metastores = {
        name: f"catalog {name} (type: {catalog.type})"
        for name, catalog in settings.catalogs.items()
        if catalog.type in ("hive", "glue")
    }
    home, default = pipeline.home_catalog, pipeline.catalog
    tables = [
        (f"destinations.{n}", table.table, table.catalog or default) for n, table in enumerate(pipeline.destinations)
    ]
    tables += [("dead_letters.table", pipeline.dead_letters_table, home), ("name", pipeline.ledger_table, home)]
    for key, table, name in tables:
        if name in metastores and (table.count(".") > 1 or table != table.lower()):
            yield (
                f"{key}: {table}: {metastores[name]} has one level of namespaces, and names in small letters: write"
                " namespace.table in small letters"
            )
    for number, destination in enumerate(pipeline.destinations):
        if destination.format_version == "3" and (destination.catalog or default) in metastores:
            yield (
                f"destinations.{number}: {destination.table} is of format version 3, which was not tested in"
                f" {metastores[destination.catalog or default]}: use version 2, or a catalog of type rest or jdbc"
            )
    if pipeline.create is not None and (pipeline.create.catalog or default) in metastores:
        yield (
            f"route.create: records can't name tables of {metastores[pipeline.create.catalog or default]}, where two names that"
            " differ in capitals are one table: list them under destinations"
        )


def missing_setting(key: str, name: str, entries: Collection[str], kind: str) -> Iterator[str]:
    """A line about a name that the settings don't have among these entries, with a hint at valid names; nothing if they have it."""
    if name not in entries:
        yield f"{key}: the settings have no {name!r} under {kind}, {nearest(name, entries)}"
