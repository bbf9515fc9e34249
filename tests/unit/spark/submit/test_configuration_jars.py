"""Which jars Spark gets for the catalogs of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.pipeline.settings.settings import Settings
from frazil.spark.submit.configuration import jar_sets


@pytest.mark.parametrize(
    ("catalog", "needs"),
    [
        ({"uri": "sqlite:////x.db", "warehouse": "file:///lake"}, False),
        ({"uri": "sqlite:////x.db", "warehouse": "s3://lake"}, True),
        ({"type": "rest", "uri": "https://catalog.example.org"}, False),
        ({"type": "rest", "uri": "https://catalog.example.org", "properties": {"s3.region": "eu-central-1"}}, True),
    ],
)
def test_spark_gets_s3_jars_only_where_needed(catalog: dict[str, Any], needs: bool) -> None:
    """They are as large as all others together, and without them a merge fails after everything was read."""
    settings = Settings.model_validate(
        {"clusters": {"local": {"bootstrap_servers": "b:9092"}}, "catalogs": {"lake": catalog}}
    )

    assert jar_sets(settings) == (("spark", "s3") if needs else ("spark",))
