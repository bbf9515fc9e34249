"""Code that runs in Spark jobs: the driver of each kind of job, staging in Python workers, and their start-up."""
