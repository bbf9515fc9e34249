"""Ingest job of one pipeline: reads the planned ranges, lands them in batches. See `frazil.spark.job`."""

from __future__ import annotations

from frazil.spark.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.driver import run_job
    from frazil.spark.job import main

    run_job(main)
