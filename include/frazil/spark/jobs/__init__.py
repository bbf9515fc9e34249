"""What runs as a job: the driver of each kind of job, the stage in Python workers, and what starts before both."""
