"""Everything that runs in Spark, and the only room that imports pyspark. Spark Connect-safe APIs only in the batch path.

Begin with `submit/submission.py`, which starts a job, then `jobs/ingest.py`, which is one.

These errors are not repeated in docstrings. A function that starts a job raises Terminal where the settings have no such engine, or
jars or a Java are missing. A function that waits for a job raises the job's error, with the end of its log, and Stopped after a
signal to this process: then what the job decided is finished. A function that computes with Spark raises one of `SPARK_FAILED`
where Spark fails, and Retryable where its answer is cut off.
"""
