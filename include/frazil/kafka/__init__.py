"""The Kafka edge: facts of a cluster, ranged reads, producing. Only this room and `registry/` import confluent_kafka.

`client/` connects to brokers, `admin/` requests facts and changes, `read/` reads exact ranges, `write/` sends records.
`frazil.kafka.client.cluster` is plain data and does not import confluent_kafka, so that pure code and command-line start-up stay
cheap.

Each request to a cluster raises Retryable where no broker answers, and Terminal where properties, credentials or permissions
don't fit; docstrings don't say so again.
"""
