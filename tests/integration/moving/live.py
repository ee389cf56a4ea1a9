"""A live application: a producer and a consumer that move from one cluster to another.

Record n has the key `key-<n % KEYS>` and the value n; the producer never waits for anything but
its own acknowledgments, and the consumer commits what it has processed.
"""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer

KEYS: Final = 20
_PAUSE_S: Final = 0.01
_TIMEOUT_S: Final = 60


class Writer:
    """Publishes 0, 1, 2 and so on, some hundred a second."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.failed: list[str] = []
        self._next = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread()

    def start(self, brokers: str, topic: str) -> None:
        """Go on at a cluster with the number after the last one."""
        settings = {"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 1}
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, args=[Producer(settings), topic])
        self._thread.start()

    def stop(self) -> None:
        """Stop, with everything acknowledged."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self, producer: Producer, topic: str) -> None:
        while not self._is_over.wait(_PAUSE_S):
            for _ in range(3):
                number, self._next = self._next, self._next + 1
                producer.produce(
                    topic, str(number), f"key-{number % KEYS}", on_delivery=self._on_delivery
                )
            producer.poll(0)
        producer.flush(_TIMEOUT_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.stored.append(int(message.value() or b""))
        else:
            self.failed.append(str(error))


class Reader:
    """A member of a consumer group, which commits after it has processed."""

    def __init__(self, group: str) -> None:
        self.processed: list[int] = []
        self.begun: dict[int, int] = {}
        """The first offset processed of each partition since the last start."""
        self._group = group
        self._is_over = threading.Event()
        self._thread = threading.Thread()

    def start(self, brokers: str, topic: str) -> None:
        """Go on at a cluster where the group's committed offsets say."""
        consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        self.begun = {}
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run, args=[consumer])
        self._thread.start()

    def stop(self) -> None:
        """Commit, and leave the group."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self, consumer: Consumer) -> None:
        while not self._is_over.is_set():
            messages = consumer.consume(100, 0.2)
            for one in messages:
                if one.error() is None:
                    self.begun.setdefault(one.partition(), one.offset())
                    self.processed.append(int(one.value()))
            if messages:
                consumer.commit(asynchronous=False)
        consumer.close()
