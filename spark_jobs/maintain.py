"""Maintenance job of one pipeline: does what its tables need. See `frazil.spark.maintenance_job`."""

from __future__ import annotations

import sys

from frazil.spark.maintenance_job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
