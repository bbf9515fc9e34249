"""Maintenance job of one pipeline: runs the due steps on its tables. See `frazil.spark.jobs.maintenance`."""

from __future__ import annotations

from frazil.spark.jobs.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.jobs.driver import run_job
    from frazil.spark.jobs.maintenance import main

    run_job(main)
