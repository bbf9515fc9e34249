"""Loads the classes that Spark's archive is made of. See `frazil.spark.submit.class_archive`."""

from __future__ import annotations

import sys

from frazil.spark.jobs.training import main

if __name__ == "__main__":
    sys.exit(main())
