"""The settings file: secrets stay where they are."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import ConfigError, load_settings
from frazil.pipeline.settings.settings import Settings

SETTINGS = """\
clusters:
  local:
    bootstrap_servers: ${local:kafka}
    properties: {sasl.username: me, sasl.password: hunter2}
catalogs:
  lake:
    uri: postgresql://me:hunter2@db/lake
    warehouse: s3://lake
    properties: {s3.secret-access-key: hunter2}
engines:
  spark:
    conf: {spark.hadoop.fs.s3a.secret.key: hunter2}
"""


def load_settings_text(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return load_settings(path, References(env={}, local={"kafka": "127.0.0.1:9092"}))


def test_secret_is_not_in_the_repr_of_settings(tmp_path: Path) -> None:
    """Passwords, keys and database addresses are in the settings, and in no text made of them."""
    settings = load_settings_text(tmp_path, SETTINGS)

    assert settings.clusters["local"].properties["sasl.password"] == "hunter2"
    assert settings.clusters["local"].bootstrap_servers == "127.0.0.1:9092"
    for text in (repr(settings), str(settings), f"{settings.catalogs}", f"{settings.engines['spark']!r}"):
        assert "hunter2" not in text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            SETTINGS.replace("sasl.password: hunter2", "sasl.password: 314159"),
            "clusters.local.properties.sasl.password",
        ),
        (
            SETTINGS.replace("s3.secret-access-key: hunter2", "s3.secret-access-key: 314159"),
            "catalogs.lake.properties.s3",
        ),
        (SETTINGS.replace("secret.key: hunter2", "secret.key: 314159"), "engines.spark.conf.spark"),
        (SETTINGS.replace("postgresql://me:hunter2@db/lake", "314159"), "catalogs.lake.uri"),
        (SETTINGS.replace("{sasl.username: me, sasl.password: hunter2}", "314159"), "clusters.local.properties"),
    ],
)
def test_secret_is_not_in_an_error_about_settings(tmp_path: Path, text: str, place: str) -> None:
    """A password of digits only is a number to YAML: neither the complaint nor its traceback shows it."""
    with pytest.raises(ConfigError) as caught:
        load_settings_text(tmp_path, text)

    (problem,) = caught.value.problems
    assert problem.startswith(f"{place}")
    assert "314159" not in "".join(traceback.format_exception(caught.value))


def test_settings_without_a_cluster_are_refused(tmp_path: Path) -> None:
    """A file without clusters or catalogs, or with an unknown key, is refused with its key paths."""
    with pytest.raises(ConfigError) as caught:
        load_settings_text(tmp_path, "clusters: {}\ncatalogs: {lake: {uri: x, warehouse: y, tpye: jdbc}}\n")

    assert caught.value.problems == [
        "clusters: Dictionary should have at least 1 item after validation, not 0",
        "catalogs.lake.tpye: unknown key, did you mean 'type'?",
    ]


def test_engines_are_optional(tmp_path: Path) -> None:
    """Engines may be left out: there is always one called `spark`."""
    settings = load_settings_text(tmp_path, SETTINGS[: SETTINGS.index("engines:")])

    assert settings.engines["spark"].master == "local[2]"


def test_rest_catalog_needs_no_warehouse(tmp_path: Path) -> None:
    """A server may know where data is stored, a SQL database does not: then the key is missed by its path."""
    rest = "type: rest\n    uri: https://me:hunter2@catalog.example.org"
    text = SETTINGS.replace("uri: postgresql://me:hunter2@db/lake\n    warehouse: s3://lake", rest)
    settings = load_settings_text(tmp_path, text)

    assert (settings.catalogs["lake"].type, settings.catalogs["lake"].warehouse) == ("rest", None)
    assert "hunter2" not in repr(settings)
    with pytest.raises(ConfigError) as caught:
        load_settings_text(tmp_path, text.replace("type: rest", "type: jdbc"))
    assert caught.value.problems == [
        "catalogs.lake: warehouse is required by type jdbc: where table data is stored",
    ]


CATALOG = "uri: postgresql://me:hunter2@db/lake\n    warehouse: s3://lake"


@pytest.mark.parametrize("kind", ["hadoop", "Dynamodb", "bigquery", "nessie", "polaris", "s3tables", "sql"])
def test_unsupported_catalog_is_refused(tmp_path: Path, kind: str) -> None:
    """Refused by its key, with the reason and what to use in its place; the page says more."""
    with pytest.raises(ConfigError) as caught:
        load_settings_text(tmp_path, SETTINGS.replace(CATALOG, f"type: {kind}\n    {CATALOG}"))

    (problem,) = caught.value.problems
    assert problem.startswith(f"catalogs.lake.type: {kind} is not taken: ")
    assert "type: " in problem or "type jdbc" in problem
    assert problem.endswith("(docs/catalogs.md)")


@pytest.mark.parametrize(
    "uri", ["mysql://me:hunter2@db/lake", "jdbc:postgresql://db/lake", "postgres://me:hunter2@db/lake"]
)
def test_unsupported_database_is_refused_without_its_address(tmp_path: Path, uri: str) -> None:
    """Refused without the address, which has a password; and so is Spark's own spelling."""
    with pytest.raises(ConfigError, match="must begin with sqlite:/// or postgresql://") as caught:
        load_settings_text(tmp_path, SETTINGS.replace("postgresql://me:hunter2@db/lake", uri))

    assert "hunter2" not in f"{caught.value} {caught.value.problems}"
