"""A batch of Kafka records becomes rows of tables, dead letters and counts. Begin with `decode`."""
