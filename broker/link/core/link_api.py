"""One kind of request between brokers: its number, and the encodings of request and answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkApi(Generic[Q, A]):
    """Decoders raise RemoteProtocolError. Requests of a broker to itself are not encoded."""

    kind: int
    """Number in the frame; above 0, which is the hello."""
    name: str
    """For logs."""
    encode_request: Callable[[Q], bytes]
    decode_request: Callable[[memoryview], Q]
    encode_answer: Callable[[A], bytes]
    decode_answer: Callable[[memoryview], A]
