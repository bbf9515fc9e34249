"""The Kafka edge: facts of a cluster, ranged reads, producing. Only this room imports confluent_kafka.

`frazil.kafka.record` and `frazil.kafka.cluster` are plain data and import nothing of it, so that pure code and
command-line start-up stay cheap.
"""
