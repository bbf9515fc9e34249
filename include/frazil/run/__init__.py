"""Drives a batch: plan, stage, audit, decide, finish. Decisions are in `frazil.batch`; this package carries them out.

`batches/` is what commands and tasks call: begin with `plan.py` and `ingest.py`. `state/` reads what a pipeline is, `staging/` makes
files, `commit/` decides and finishes a batch, `repair/` is what a person asks for.

Whatever needs Kafka, a catalog, a storage or an engine raises Retryable where that is not available now; docstrings don't say so
again.
"""
