"""How a job is started, from a process without pyspark: configuration, secrets, the code that executors get, the watch over the job."""
