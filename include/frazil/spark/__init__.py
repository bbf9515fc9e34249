"""Everything that runs in Spark, and the only room that imports pyspark. Spark Connect-safe APIs only in the batch path.

Begin with `submit/submission.py`, which starts a job, then `jobs/ingest.py`, which is one.

Whatever starts a job raises Terminal where the settings have no such engine, or jars or a Java are missing. Whatever waits for one
raises what it ended with, quoting the end of its log, and Stopped where a signal asked this process to stop: what the job decided is
finished. Whatever Spark computes raises `SPARK_FAILED`, Retryable, where Spark fails or its answer is cut off. Docstrings don't say so
again.
"""
