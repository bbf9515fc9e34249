"""Makes rows of tables, dead letters and counts of a batch of Kafka records. Begin with `decode`."""
