"""What a wheel has: both packages, with the jobs and the editors' schemas of a checkout inside. All else is in pyproject.toml."""

from __future__ import annotations

from setuptools import find_packages, setup

FOLDERS = {
    "frazil": "include/frazil",
    "frazil.schemas": "include/schemas",
    "frazil.spark_jobs": "spark_jobs",
    "frazil_airflow": "plugins/frazil_airflow",
}
FOUND = {*find_packages("include", include=["frazil*"]), *find_packages("plugins", include=["frazil*"])}

setup(packages=sorted({*FOLDERS, *FOUND}), package_dir=FOLDERS)
