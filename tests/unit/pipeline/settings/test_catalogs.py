"""Destinations in several catalogs, in a pipeline file."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import Settings, unfit_catalogs, unknown_names

SETTINGS = Settings.model_validate(
    {
        "clusters": {"local": {"bootstrap_servers": "x:1"}},
        "catalogs": {of: {"uri": "sqlite:///x", "warehouse": "file:///x"} for of in ("cloud", "mirror")},
    }
)


def pipeline(*catalogs: str | None, **of: Any) -> Pipeline:
    destinations = [{"table": f"shop.t{n}", "columns": {"id": "long"}} for n in range(len(catalogs))]
    for number, catalog in enumerate(catalogs):
        destinations[number] |= {"catalog": catalog} if catalog else {}
    return Pipeline.model_validate({"name": "p", "source": {"topics": ["t"]}, "destinations": destinations} | of)


def test_ledger_is_in_the_catalog_of_the_first_destination() -> None:
    """It is where the first destination is; the pipeline's catalog is for those that name none."""
    found = pipeline("cloud", None, "mirror", "cloud")
    assert (found.home_catalog, found.catalogs) == ("cloud", ("cloud", "lake", "mirror"))
    assert (pipeline(None).home_catalog, pipeline(None).catalogs) == ("lake", ("lake",))


def test_unknown_catalog_is_refused_by_its_key() -> None:
    """Each by its key; the pipeline's own only where a destination is in it."""
    assert list(unknown_names(pipeline("cloud", "miror"), SETTINGS)) == [
        "destinations.1.catalog: the settings have no 'miror' under catalogs, did you mean 'mirror'?"
    ]
    assert [of.partition(":")[0] for of in unknown_names(pipeline("cloud", None), SETTINGS)] == ["catalog"]


def test_one_table_name_in_two_catalogs_is_refused() -> None:
    """The ledger knows tables by their names, so two of one name would be taken for each other."""
    same = [{"table": "shop.t", "columns": {"id": "long"}, "catalog": of} for of in ("cloud", "mirror")]
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
    to = {"table": "shop.t", "columns": {"id": "long"}, "evolve": evolve, "properties": {"format-version": version}}
    found = list(unfit_catalogs(pipeline(destinations=[to]), settings))
    assert [of.partition(":")[0] for of in found] == (["destinations.0.evolve"] if is_refused else [])
