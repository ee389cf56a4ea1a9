"""A producer process of the crash test: publishes numbers and notes every acknowledgement.

    python -m tests.integration.crash_producer KIND BOOTSTRAP_SERVERS TOPIC NAME NOTES PER_S

KIND is `librdkafka` or `quire` (client.pubsub). Record n of the producer NAME has the key NAME and
the value `NAME:n`. For each acknowledgement a line `n partition offset` is appended to the file
NOTES at once, so that it outlives this process. At most PER_S records are published a second.
SIGTERM ends it after the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from client.pubsub import Address, Publisher, PubSubError

IN_FLIGHT_MAX = 2_000
_RETRY_FOR_MS = 300_000


class Pace:
    """Says when the next record is due."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._began_s = time.monotonic()

    def allows(self, number: int) -> bool:
        return number <= (time.monotonic() - self._began_s) * self._per_s


def publish_with_librdkafka(
    bootstrap_servers: str, topic: str, name: str, notes: int, pace: Pace
) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "message.timeout.ms": _RETRY_FOR_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"{name}: not acknowledged: {error}")
        number = message.value().decode().partition(":")[2]
        os.write(notes, f"{number} {message.partition()} {message.offset()}\n".encode())

    number = 0
    while not stop.is_set():
        if len(producer) < IN_FLIGHT_MAX and pace.allows(number):
            producer.produce(topic, f"{name}:{number}", name, on_delivery=on_delivery)
            number += 1
            producer.poll(0)
        else:
            producer.poll(0.01)
    if producer.flush(_RETRY_FOR_MS / 1000):
        sys.exit(f"{name}: {len(producer)} records were not acknowledged")


async def publish_with_quire(
    bootstrap_servers: str, topic: str, name: str, notes: int, pace: Pace
) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def note(number: int, outcome: Address | PubSubError) -> None:
        if not isinstance(outcome, Address):
            sys.exit(f"{name}: not acknowledged: {outcome}")
        os.write(notes, f"{number} {outcome.partition} {outcome.offset}\n".encode())

    async with Publisher(bootstrap_servers) as publisher:
        number = 0
        while not stop.is_set():
            if publisher.unacknowledged < IN_FLIGHT_MAX and pace.allows(number):
                await publisher.enqueue(
                    topic,
                    f"{name}:{number}".encode(),
                    key=name.encode(),
                    on_done=lambda outcome, number=number: note(number, outcome),
                )
                number += 1
            else:
                await asyncio.sleep(0.005)


def main() -> None:
    kind, bootstrap_servers, topic, name, path, per_s = sys.argv[1:]
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    if kind == "librdkafka":
        publish_with_librdkafka(bootstrap_servers, topic, name, notes, Pace(float(per_s)))
    else:
        pace = Pace(float(per_s))
        asyncio.run(publish_with_quire(bootstrap_servers, topic, name, notes, pace))


if __name__ == "__main__":
    main()
