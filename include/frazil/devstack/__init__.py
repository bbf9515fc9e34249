"""The embedded stack: a Kafka broker, Airflow, a Schema Registry, a catalog, storage and Spark, all in one folder."""
