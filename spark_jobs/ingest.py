"""Ingest job of one pipeline: reads the planned ranges, lands them in batches. See `frazil.spark.job`."""

from __future__ import annotations

import sys

from frazil.spark.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
