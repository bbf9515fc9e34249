"""Drives a batch: plan, stage, audit, decide, finish. Decisions are in `frazil.batch`; this package carries them out.

`batches/` is what commands and tasks call: begin with `plan.py` and `session.py`. `state/` reads a pipeline's state from its tables,
`staging/` writes files, `commit/` decides and finishes a batch, `repair/` is what a person asks for.

Whatever needs Kafka, a catalog, a storage or an engine raises Retryable if that is not available now. Docstrings don't repeat
this.
"""
