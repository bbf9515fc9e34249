"""The Kafka edge: facts of a cluster, ranged reads, producing. Only this room imports confluent_kafka.

`client/` reaches a broker, `admin/` asks it, `read/` reads exact ranges, `write/` sends. `frazil.kafka.client.cluster` and
`frazil.kafka.client.cluster` are plain data and import nothing of it, so that pure code and command-line start-up stay cheap.

Whatever asks a cluster raises Retryable where no broker answers, and Terminal where properties, credentials or permissions don't
fit; docstrings don't say so again.
"""
