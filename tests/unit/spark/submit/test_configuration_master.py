"""What the address of Spark's master tells."""

from __future__ import annotations

import os

import pytest

from frazil.spark.submit.configuration import cores, is_local


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[4,2]"}, 4),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "spark://a:7077,b:7077", "spark.cores.max": "8", "spark.executor.cores": "2"}, 8),
        ({"spark.master": "spark://a:7077", "spark.cores.max": "8", "spark.executor.cores": "3"}, 6),
        ({"spark.master": "spark://a:7077", "spark.cores.max": "5"}, 5),
        ({"spark.master": "spark://a:7077", "spark.executor.instances": "2", "spark.executor.cores": "3"}, 6),
        ({"spark.master": "yarn", "spark.cores.max": "8", "spark.executor.instances": "5"}, 5),
        ({"spark.master": "k8s://a:443", "spark.executor.instances": "4", "spark.executor.cores": "2"}, 8),
        (
            {
                "spark.master": "yarn",
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": "6",
            },
            6,
        ),
        ({"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "2"}, 2),
        ({"spark.master": "yarn", "spark.dynamicAllocation.maxExecutors": "6"}, 1),
        ({}, 1),
    ],
)
def test_batch_uses_every_core(configured: dict[str, str], expected: int) -> None:
    """A task for each core that the configuration promises, on each kind of master by its own keys."""
    assert cores(lambda key: configured.get(key, "")) == expected


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://a:7077", False),
    ],
)
def test_cluster_is_recognised_by_its_master(master: str, expected: bool) -> None:
    """Only what ends with the job's own JVM is taken for local: executors of their own are a cluster."""
    assert is_local(master) is expected
