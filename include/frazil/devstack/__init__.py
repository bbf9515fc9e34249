"""The embedded stack: a Kafka broker, Airflow, a registry, catalogs, storage and Spark, all under one folder."""
