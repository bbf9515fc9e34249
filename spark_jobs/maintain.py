"""Maintenance job of one pipeline: does what its tables need. See `frazil.spark.maintenance_job`."""

from __future__ import annotations

from frazil.spark.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.driver import run_job
    from frazil.spark.maintenance_job import main

    run_job(main)
