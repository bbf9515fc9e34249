"""Code of Spark jobs: the driver of each kind of job, staging in Python workers, and the start-up of both."""
