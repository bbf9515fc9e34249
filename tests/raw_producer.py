"""Sends records that no Python client makes: librdkafka itself takes any bytes as the name of a header."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER, _COPY = 0, 2
_END, _TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADER = 0, 1, 3, 4, 7, 9
"""`rd_kafka_vtype_t` of rdkafka.h."""


def send_with_header(bootstrap_servers: str, topic: str, value: bytes, name: bytes) -> None:
    """Send a record to partition 0 with one header."""
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    message = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap_servers.encode(), message, len(message))
    client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, message, len(message)))
    assert client.value, message.value
    parts = (
        *(_TOPIC, ctypes.c_char_p(topic.encode())),
        *(_PARTITION, ctypes.c_int32(0)),
        *(_VALUE, ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(_FLAGS, _COPY),
        *(_HEADER, ctypes.c_char_p(name), ctypes.c_char_p(b"x"), ctypes.c_ssize_t(1)),
    )
    assert library.rd_kafka_producev(client, *parts, _END) == 0
    assert library.rd_kafka_flush(client, 30_000) == 0
    library.rd_kafka_destroy(client)
