"""How a load process takes records from a consumer: as soon as there are any.

`Consumer.consume(n, timeout)` waits until it has n records or the time is over, so with a timeout
above zero it adds its own wait to every latency and to the end of every read. Here only `poll`
waits, which returns with the first record; what else is there is taken without waiting.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from confluent_kafka import Message

from ops.bench.load.channel import LoadFailed

_AT_ONCE: Final = 10_000


class Source(Protocol):
    """What is used of a `confluent_kafka.Consumer`."""

    def poll(self, timeout: float) -> Message | None:
        """Wait for one record."""

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        """Take several."""


def arrived(consumer: Source, timeout_s: float) -> list[Message]:
    """Return what is there, waiting only for the first; empty after `timeout_s`.

    Raises LoadFailed when the consumer reports an error.
    """
    first = consumer.poll(timeout_s)
    if first is None:
        return []
    messages: list[Message] = [first, *consumer.consume(_AT_ONCE, 0)]
    for message in messages:
        if message.error() is not None:
            raise LoadFailed(f"a reader got {message.error()}")
    return messages
