"""Names of datasets, as OpenLineage's specification has them."""

from __future__ import annotations

import pytest

from frazil.report.lineage import Name, cluster_namespace, database_name, location_name, without_secrets


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("kafka:9092", "kafka://kafka:9092"),
        ("b1.example.org:9093, b2.example.org:9093", "kafka://b1.example.org:9093"),
        ("SASL_SSL://b1.example.org:9094", "kafka://b1.example.org:9094"),
        ("kafka", "kafka://kafka:9092"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_topic_has_its_openlineage_name(servers: str, namespace: str):
    """The first bootstrap server stands for the cluster, without the listener's protocol and with its port."""
    assert cluster_namespace(servers) == namespace


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///lake/rpc/pizzas", Name("file", "/lake/rpc/pizzas")),
        ("file:/lake/rpc/pizzas/", Name("file", "/lake/rpc/pizzas")),
        ("/lake/rpc/pizzas", Name("file", "/lake/rpc/pizzas")),
        ("s3a://bucket/lake/rpc/pizzas", Name("s3://bucket", "lake/rpc/pizzas")),
        ("gs://bucket/lake/rpc/pizzas", Name("gs://bucket", "lake/rpc/pizzas")),
        ("hdfs://name:8020/lake/rpc/pizzas", Name("hdfs://name:8020", "/lake/rpc/pizzas")),
    ],
)
def test_table_has_its_openlineage_name(location: str, name: Name):
    """It is known by where its data lies: one that Spark reads by s3a is the one that is landed by s3."""
    assert location_name(location) == name


@pytest.mark.parametrize(
    ("url", "table", "name"),
    [
        (
            "jdbc:postgresql://db:5432/shop?user=u&password=p",
            "public.orders",
            Name("postgres://db:5432", "shop.public.orders"),
        ),
        ("jdbc:mysql://db.example.org/shop", None, Name("mysql://db.example.org", "shop")),
        ("jdbc:postgresql://u:p@db:5432/shop", "orders", Name("jdbc", "sales.orders")),
        ("jdbc:sqlserver://db:1433;databaseName=shop;password=p", "orders", Name("jdbc", "sales.orders")),
        ("jdbc:sqlserver://db:1433/shop;password=p", "orders", Name("jdbc", "sales.orders")),
        ("jdbc:oracle:thin:u/p@//db:1521/shop", "orders", Name("jdbc", "sales.orders")),
    ],
)
def test_captured_table_has_its_openlineage_name_without_secrets(url: str, table: str | None, name: Name):
    """An address that may hold a password anywhere is not told: the name of the database in the settings stands for it."""
    assert database_name(url, "sales", table) == name


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (
            "postgresql://ana:secret@db.example.org:5432/catalog?sslpassword=x",
            "postgresql://db.example.org:5432/catalog",
        ),
        ("https://catalog.example.org/api?token=secret", "https://catalog.example.org/api"),
        ("sqlite:////var/lib/frazil/catalog.db", "sqlite:////var/lib/frazil/catalog.db"),
    ],
)
def test_password_of_the_catalog_stays_out_of_lineage(uri: str, shown: str):
    """Events leave for other systems: they name the catalog, without user, password and options."""
    assert without_secrets(uri) == shown
