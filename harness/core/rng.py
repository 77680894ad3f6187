"""The only file that knows chance: a draw depends on `(seed, name...)` alone.

A stateful generator would let an arm that retries more shift the dice of the other, and the pair would be no pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def bits(seed: int, *name: object) -> int:
    """64 uniform bits for this name."""
    text = "\x1f".join([str(seed), *map(str, name)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def draw(seed: int, *name: object) -> float:
    """A uniform number in [0, 1) for this name (53 bits)."""
    return (bits(seed, *name) >> 11) / (1 << 53)


def integer(seed: int, low: int, high: int, *name: object) -> int:
    """A uniform integer in [low, high], both included."""
    return low + int(draw(seed, *name) * (high - low + 1))


def choice(seed: int, options: Sequence[T], *name: object) -> T:
    """One of `options`, each equally likely."""
    return options[int(draw(seed, *name) * len(options))]


def weighted(seed: int, weights: dict[str, float], *name: object) -> str:
    """A key of `weights`, with probability proportional to its value; order of insertion matters, so keep it fixed."""
    point = draw(seed, *name) * sum(weights.values())
    for key, weight in weights.items():
        point -= weight
        if point < 0:
            return key
    return next(reversed(weights))


def shuffled(seed: int, items: Sequence[T], *name: object) -> list[T]:
    """The items in an order that depends on the name alone."""
    return [item for _, item in sorted(enumerate(items), key=lambda pair: bits(seed, *name, pair[0]))]


def token(seed: int, *name: object) -> str:
    """16 hexadecimal digits for this name."""
    return f"{bits(seed, *name):016x}"


def uuid(seed: int, *name: object) -> str:
    """A string of the shape of a version 4 UUID for this name."""
    text = f"{bits(seed, 'high', *name):016x}{bits(seed, 'low', *name):016x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
