"""Destinations in several catalogs, in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.pipeline.settings.settings import Settings, unfit_catalogs, unknown_names

SETTINGS = Settings.model_validate(
    {
        "clusters": {"local": {"bootstrap_servers": "x:1"}},
        "catalogs": {catalog: {"uri": "sqlite:///x", "warehouse": "file:///x"} for catalog in ("cloud", "mirror")},
    }
)


def pipeline(*catalogs: str | None, **options: Any) -> Pipeline:
    destinations = [{"table": f"shop.t{n}", "columns": {"id": "long"}} for n in range(len(catalogs))]
    for number, catalog in enumerate(catalogs):
        destinations[number] |= {"catalog": catalog} if catalog else {}
    return Pipeline.model_validate({"name": "p", "source": {"topics": ["t"]}, "destinations": destinations} | options)


def test_ledger_is_in_the_catalog_of_the_first_destination() -> None:
    """It is where the first destination is; the pipeline's catalog is for those that name none."""
    catalog_pipeline = pipeline("cloud", None, "mirror", "cloud")
    assert (catalog_pipeline.home_catalog, catalog_pipeline.catalogs) == ("cloud", ("cloud", "lake", "mirror"))
    assert (pipeline(None).home_catalog, pipeline(None).catalogs) == ("lake", ("lake",))


def test_unknown_catalog_is_refused_by_its_key() -> None:
    """Each by its key; the pipeline's own only where a destination is in it."""
    assert list(unknown_names(pipeline("cloud", "miror"), SETTINGS)) == [
        "destinations.1.catalog: the settings have no 'miror' under catalogs, did you mean 'mirror'?"
    ]
    assert [problem.partition(":")[0] for problem in unknown_names(pipeline("cloud", None), SETTINGS)] == ["catalog"]


def test_one_table_name_in_two_catalogs_is_refused() -> None:
    """The ledger knows tables by their names, so two of one name would be taken for each other."""
    same = [{"table": "shop.t", "columns": {"id": "long"}, "catalog": catalog} for catalog in ("cloud", "mirror")]
    with pytest.raises(ValidationError, match="must be 4 tables"):
        pipeline("cloud", destinations=same)


@pytest.mark.parametrize(
    ("kind", "version", "evolve", "is_refused"),
    [
        ("jdbc", "3", "add", True),
        ("jdbc", "2", "add", False),
        ("jdbc", "3", "none", False),
        ("rest", "3", "add", False),
    ],
)
def test_table_that_cannot_evolve_is_refused(kind: str, version: str, evolve: str, is_refused: bool) -> None:
    """Without a server nobody here can change a table of version 3: told before the first run, by its key."""
    settings = Settings.model_validate(
        {
            "clusters": {"local": {"bootstrap_servers": "x:1"}},
            "catalogs": {
                "lake": {"type": kind, "uri": "http://x" if kind == "rest" else "sqlite:///x", "warehouse": "file:///x"}
            },
        }
    )
    destination = {
        "table": "shop.t",
        "columns": {"id": "long"},
        "evolve": evolve,
        "properties": {"format-version": version},
    }
    problems = list(unfit_catalogs(pipeline(destinations=[destination]), settings))
    assert [problem.partition(":")[0] for problem in problems] == (["destinations.0.evolve"] if is_refused else [])


METASTORE = {"type": "hive", "uri": "thrift://a:9083, thrift://b:9083", "warehouse": "s3://lake"}


@pytest.mark.parametrize(
    "entry",
    [METASTORE, METASTORE | {"uri": "${env:METASTORE}"}, {"type": "glue", "warehouse": "s3://lake"}],
)
def test_entry_of_a_metastore_loads(entry: dict[str, Any]) -> None:
    """Several servers, one that a variable names, and Amazon's own."""
    assert CatalogSettings.model_validate(entry).warehouse == "s3://lake"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (METASTORE | {"uri": "http://a:9083"}, "uri of type hive must be thrift://host:port"),
        (METASTORE | {"uri": ""}, "uri is required by type hive"),
        ({"type": "hive", "uri": "thrift://a:9083"}, "warehouse is required by type hive"),
        ({"type": "glue"}, "warehouse is required by type glue"),
        ({"type": "rest"}, "uri is required by type rest"),
    ],
)
def test_entry_names_what_its_type_needs(entry: dict[str, Any], problem: str) -> None:
    """Glue alone has an address of its own; both metastores need to be told where new tables go."""
    with pytest.raises(ValidationError, match=problem):
        CatalogSettings.model_validate(entry)


@pytest.mark.parametrize("kind", ["hive", "glue"])
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"table": "shop.t"}, None),
        ({"table": "shop.eu.t"}, "destinations.0"),
        ({"table": "shop.T"}, "destinations.0"),
        ({"table": "shop.t", "properties": {"format-version": "3"}}, "destinations.0"),
    ],
)
def test_metastore_refuses_what_it_has_no_place_for(kind: str, changes: dict[str, Any], key: str | None) -> None:
    """Told before the first run: two names that differ in capitals would be one table."""
    settings = Settings.model_validate(
        {"clusters": {"local": {"bootstrap_servers": "x:1"}}, "catalogs": {"lake": METASTORE | {"type": kind}}}
    )
    destination = {"columns": {"id": "long"}, "evolve": "none", **changes}

    keys = [problem.partition(":")[0] for problem in unfit_catalogs(pipeline(destinations=[destination]), settings)]

    assert keys[:1] == ([] if key is None else [key])
