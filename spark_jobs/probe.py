"""Job of `frazil doctor --spark`: what an engine's executors have and reach. See `frazil.spark.probe`."""

from __future__ import annotations

from frazil.spark.start import start

if __name__ == "__main__":
    start()
    from frazil.spark.driver import run_job
    from frazil.spark.probe import main

    run_job(main)
