"""Ingest job of one pipeline: lands the planned offset ranges in batches. See `frazil.spark.jobs.ingest`."""

from __future__ import annotations

from frazil.spark.jobs.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.jobs.driver import run_job
    from frazil.spark.jobs.ingest import main

    run_job(main)
