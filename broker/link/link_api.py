"""One kind of request that brokers send each other: its number, and how both sides are encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkApi(Generic[Q, A]):
    """Decoders raise RemoteProtocolError. A broker that asks itself encodes nothing."""

    kind: int
    """What the frame says; above 0, which is the hello."""
    name: str
    """For logs."""
    encode_request: Callable[[Q], bytes]
    decode_request: Callable[[memoryview], Q]
    encode_answer: Callable[[A], bytes]
    decode_answer: Callable[[memoryview], A]
