"""Job of one capture of a database: sends new rows to Kafka. See `frazil.spark.jobs.capture`."""

from __future__ import annotations

from frazil.spark.jobs.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.jobs.capture import main
    from frazil.spark.jobs.driver import run_job

    run_job(main)
