"""Starts jobs, from a process without pyspark: configuration, secrets, the code for executors, and the watch over the job."""
