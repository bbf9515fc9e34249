"""What can happen to bytes on their way: bits flip, parts go missing, come twice, or come from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.fuzz.subjects import Subject

Mutation = Callable[[Random, bytes, Subject], bytes]

LONGEST = 1 << 16
"""Bytes of an input, so that a million of them take minutes."""


STRUCTURED = 0.5
"""Up to here of 1 the inputs are well formed, so that they reach what lies behind parsing."""


def _part(rng: Random, value: bytes) -> tuple[int, int]:
    start = rng.randrange(len(value) + 1)
    return start, min(len(value), start + int(rng.expovariate(1 / 8)) + 1)


def _flip(rng: Random, value: bytes, _: Subject) -> bytes:
    mutated = bytearray(value)
    for _bit in range(rng.randint(1, 8) if value else 0):
        mutated[rng.randrange(len(mutated))] ^= 1 << rng.randrange(8)
    return bytes(mutated)


def _truncate(rng: Random, value: bytes, _: Subject) -> bytes:
    return value[: rng.randrange(len(value) + 1)]


def _behead(rng: Random, value: bytes, _: Subject) -> bytes:
    return value[rng.randrange(len(value) + 1) :]


def _remove(rng: Random, value: bytes, _: Subject) -> bytes:
    start, end = _part(rng, value)
    return value[:start] + value[end:]


def _double(rng: Random, value: bytes, _: Subject) -> bytes:
    start, end = _part(rng, value)
    return value[:end] + value[start:end] * rng.choice((1, 1, 2, 50)) + value[end:]


def _splice(rng: Random, value: bytes, subject: Subject) -> bytes:
    second_value = subject.good(rng.randrange(1 << 20))
    return value[: rng.randrange(len(value) + 1)] + second_value[rng.randrange(len(second_value) + 1) :]


def _insert(rng: Random, value: bytes, subject: Subject) -> bytes:
    start, end = _part(rng, value)
    return value[:start] + rng.choice(subject.tokens) + value[end if rng.random() < 0.5 else start :]


def _noise(rng: Random, value: bytes, _: Subject) -> bytes:
    start, end = _part(rng, value)
    return value[:start] + rng.randbytes(end - start) + value[end:]


def _huge(rng: Random, value: bytes, _: Subject) -> bytes:
    """Put a large number where a length may be: a varint, or an integer of fixed width."""
    position, size = rng.randrange(len(value) + 1), rng.getrandbits(rng.choice((8, 14, 16, 31, 32, 63, 64)))
    varint = bytes(((size >> shift) & 0x7F) | 0x80 for shift in range(0, 63, 7) if size >> shift + 7) + b"\1"
    number = rng.choice((varint, size.to_bytes(8, "big"), size.to_bytes(8, "little"), b"%d" % size))
    return value[:position] + number + value[position + len(number) :]


def _nest(rng: Random, value: bytes, _: Subject) -> bytes:
    """Wrap a part of the value often."""
    start, end = _part(rng, value)
    opening, closing = rng.choice(
        ((b"[", b"]"), (b'{"place":', b"}"), (b'"', b'"'), (b"\x5b", b"\x5c"), (b"\2", b"\0"))
    )
    times = rng.choice((1, 2, 20, 64, 101, 600))
    return value[:start] + opening * times + value[start:end] + closing * times + value[end:]


MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _truncate, _behead, _remove, _double, _splice, _insert, _insert, _noise, _huge, _nest),
)


def mutated(rng: Random, subject: Subject) -> bytes | None:
    """Return an input: a good value that one to four things happened to, a well-formed one with odd
    values, or noise; seldom no value.
    """
    chance = rng.random()
    if chance < 0.01:
        return None if chance < 0.005 else b""
    if chance < 0.08:
        return _random(rng, subject)
    if chance < STRUCTURED and subject.structure is not None:
        return subject.structure(rng)[:LONGEST]
    value = subject.good(rng.randrange(1 << 20))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        value = rng.choice(MUTATIONS)(rng, value, subject)
    return value[:LONGEST]


def _random(rng: Random, subject: Subject) -> bytes:
    """Return noise, or a random row of the format's parts, often behind a good beginning."""
    head = subject.head if rng.random() < 0.7 else b""
    if rng.random() < 0.5:
        return head + rng.randbytes(int(rng.expovariate(1 / 30)))
    return head + b"".join(rng.choices(subject.tokens, k=rng.randint(1, 12)))
