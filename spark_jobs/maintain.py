"""Maintenance job of one pipeline: does what its tables need. See `frazil.spark.maintenance_job`."""

from __future__ import annotations

from frazil.spark.driver import run_job
from frazil.spark.maintenance_job import main

if __name__ == "__main__":
    run_job(main)
