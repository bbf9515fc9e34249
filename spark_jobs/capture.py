"""Job of one capture of a database: sends the rows that are new. See `frazil.spark.capture_job`."""

from __future__ import annotations

from frazil.spark.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.capture_job import main
    from frazil.spark.driver import run_job

    run_job(main)
