"""Job of `frazil doctor --spark`: checks an engine's executors. See `frazil.spark.jobs.probe`."""

from __future__ import annotations

from frazil.spark.jobs.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.jobs.driver import run_job
    from frazil.spark.jobs.probe import main

    run_job(main)
