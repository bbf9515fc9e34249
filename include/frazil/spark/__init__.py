"""Everything that runs in Spark, and the only room that imports pyspark. Spark Connect-safe APIs only in the batch path.

Begin with `submit/submission.py`, which starts a job, then `jobs/ingest.py`, which is one.
"""
