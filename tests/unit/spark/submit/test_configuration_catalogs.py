"""A catalog of the settings in Spark's words: one entry serves both sides, and no secret is in an address."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.pipeline.settings.settings import Settings
from frazil.spark.submit.configuration import catalog_properties, jar_sets

RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"


def entry(**options: Any) -> CatalogSettings:
    return CatalogSettings.model_validate({"uri": "sqlite:////x/catalog.db", "warehouse": "file:///x"} | options)


def test_password_is_not_in_the_address_of_a_database() -> None:
    """PostgreSQL: user, password and options are properties, the driver is Java's, odd characters stay what they are."""
    spark_properties = catalog_properties(
        entry(uri="postgresql+psycopg2://ann%40x:s3%3Fcr%25t@db.example.org:5433/lake%20one?sslmode=require")
    )

    assert spark_properties["uri"] == "jdbc:postgresql://db.example.org:5433/lake%20one"
    assert (spark_properties["jdbc.user"], spark_properties["jdbc.password"], spark_properties["jdbc.sslmode"]) == (
        "ann@x",
        "s3?cr%t",
        "require",
    )
    assert (spark_properties["type"], spark_properties["jdbc.schema-version"]) == ("jdbc", "V1")


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("postgresql://me:x@db/lake", "postgresql+psycopg2://me:x@db/lake"),
        ("postgresql+psycopg://me:x@db/lake", "postgresql+psycopg://me:x@db/lake"),
        ("sqlite:////x/catalog.db", "sqlite:////x/catalog.db"),
    ],
)
def test_postgres_is_opened_with_the_installed_driver(uri: str, address: str) -> None:
    """The one that comes with `frazil[postgres]`, unless the address names one."""
    assert entry(uri=uri).address == address


STORES: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "a server of S3's protocol": (
        "s3://lake/warehouse",
        {"s3.endpoint": "http://s3:7070", "s3.region": "here", "s3.access-key-id": "a", "s3.secret-access-key": "b"},
        {"s3.path-style-access": "true", "client.region": "here", "io-impl": RESOLVING},
    ),
    "one with the bucket in the host": (
        "s3://lake/warehouse",
        {"s3.endpoint": "https://s3.example.org", "s3.force-virtual-addressing": "true"},
        {"s3.path-style-access": "false", "io-impl": RESOLVING},
    ),
    "AWS": ("s3://lake/warehouse", {"client.region": "eu-west-1"}, {"io-impl": RESOLVING}),
    "GCS": ("gs://lake/warehouse", {"gcs.oauth2.token": "t"}, {"io-impl": RESOLVING}),
    "Azure, by key": (
        "abfss://lake@acme.dfs.core.windows.net/warehouse",
        {"adls.account-name": "acme", "adls.account-key": "k"},
        {
            "adls.auth.shared-key.account.name": "acme",
            "adls.auth.shared-key.account.key": "k",
            "io-impl": RESOLVING,
        },
    ),
    "Azure, by token": (
        "abfss://lake@acme.dfs.core.windows.net/warehouse",
        {"adls.account-name": "acme", "adls.sas-token": "t"},
        {
            "adls.auth.shared-key.account.name": "acme",
            "adls.sas-token.acme.dfs.core.windows.net": "t",
            "io-impl": RESOLVING,
        },
    ),
    "what a person knows better": ("s3://lake/w", {"io-impl": "own.FileIO"}, {}),
    "a folder": ("file:///x", {}, {}),
}


@pytest.mark.parametrize("store", STORES)
def test_spark_finds_tables_where_pyiceberg_does(store: str) -> None:
    """PyIceberg's properties, and what Java calls otherwise; what the settings say themselves stays."""
    warehouse, properties, added = STORES[store]

    spark_properties = catalog_properties(entry(warehouse=warehouse, properties=properties))

    own = {"type": "jdbc", "cache-enabled": "false", "warehouse": warehouse}
    assert spark_properties == own | properties | added | {
        "uri": "jdbc:sqlite:/x/catalog.db",
        "jdbc.schema-version": "V1",
    }


def test_spark_opens_the_same_metastore() -> None:
    """Hive by its address; Glue by its region, and by an endpoint where there is one."""
    hive = catalog_properties(entry(type="hive", uri="thrift://a:9083"))
    glue = catalog_properties(entry(type="glue", uri="", properties={"glue.region": "here"}))
    own = catalog_properties(entry(type="glue", uri="http://own:5000"))

    assert hive == {"type": "hive", "uri": "thrift://a:9083", "warehouse": "file:///x", "cache-enabled": "false"}
    assert (glue["type"], glue["client.region"], "uri" in glue, "glue.endpoint" in glue) == (
        "glue",
        "here",
        False,
        False,
    )
    assert own["glue.endpoint"] == "http://own:5000"


def test_keys_of_signed_requests_serve_catalog_and_store() -> None:
    """One pair, by PyIceberg's names; what the settings say by Java's stays."""
    keys = {"client.access-key-id": "a", "client.secret-access-key": "b", "s3.access-key-id": "of the store"}

    properties = catalog_properties(entry(type="rest", uri="https://x", properties=keys))

    assert (properties["rest.access-key-id"], properties["rest.secret-access-key"]) == ("a", "b")
    assert (properties["s3.access-key-id"], properties["s3.secret-access-key"]) == ("of the store", "b")
    assert "rest.session-token" not in properties


def test_spark_gets_the_jars_that_its_catalogs_need() -> None:
    """Those of S3 and PostgreSQL come where a catalog of the settings needs them, and nowhere else."""

    def sets(*catalogs: CatalogSettings) -> tuple[str, ...]:
        named = {f"c{n}": catalog for n, catalog in enumerate(catalogs)}
        clusters = {"local": {"bootstrap_servers": "x:1"}}
        return jar_sets(Settings.model_validate({"clusters": clusters, "catalogs": named}))

    rest = entry(type="rest", uri="https://x", warehouse="analytics", properties={"s3.region": "here"})
    signed = entry(type="rest", uri="https://x", warehouse="analytics", properties={"rest.sigv4-enabled": "true"})
    assert sets(entry()) == ("spark",)
    assert sets(signed) == ("spark", "s3")
    assert sets(entry(type="glue", uri="", warehouse="s3://lake")) == ("spark", "s3")
    assert sets(entry(), entry(uri="postgresql://me@db/lake")) == ("spark", "postgres")
    assert sets(rest, entry(warehouse="s3://lake")) == ("spark", "s3")
    assert sets(entry(uri="postgresql://me@db/lake", warehouse="s3a://lake")) == ("spark", "s3", "postgres")
