"""One process of the rolling restart's load: an idempotent producer or a member of a group.

    python -m tests.integration.rolling_load produce KIND BOOTSTRAP_SERVERS TOPIC NAME NOTES PER_S
    python -m tests.integration.rolling_load consume KIND BOOTSTRAP_SERVERS TOPIC NAME NOTES GROUP

KIND is `confluent`, `kafka-python` or `aiokafka`. Record n of the producer NAME has the key
`NAME-k`, k = n mod KEY_COUNT, and the value `NAME:n`. A producer appends a line to NOTES for each
acknowledgement, `n partition offset sent_ms waited_ms`; a consumer one for each record, `partition
offset value`, before it commits. Clients have their default settings but for idempotence and the
time for which they go on trying, and for what keeps librdkafka's consumer out of a deadlock of its
own (`consume_confluent`). Where brokers want TLS and a login, QUIRE_LOAD_PROPERTIES in the
environment names a file of properties, as librdkafka has them. SIGTERM ends the process after the
last acknowledgement, SIGUSR1 makes it write to stderr where all its threads are.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiokafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors

from client.kafka_security import read_properties, security_of

KEY_COUNT = 16
UNKNOWN = -1
"""Offset of a record that the broker knows to be there, and not where."""

IN_FLIGHT_MAX = 5_000
_TRY_FOR_S = 120
_PAUSE_S = 0.004


def secured(kind: str) -> dict[str, Any]:
    """Return the settings of TLS and login that a kind of client needs."""
    file = os.environ.get("QUIRE_LOAD_PROPERTIES")
    if not file:
        return {}
    properties = read_properties(Path(file))
    if kind == "confluent":
        return properties
    found = security_of(properties)
    return {
        "security_protocol": found.protocol,
        "sasl_mechanism": found.mechanism,
        "sasl_plain_username": found.username,
        "sasl_plain_password": found.password,
        "ssl_context": found.context(),
    }


class Notes:
    """The file of notes, and the clock of their times."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.unacknowledged = 0

    def acknowledged(self, number: int, partition: int, offset: int, sent_s: float) -> None:
        self.unacknowledged -= 1
        waited_ms = (time.time() - sent_s) * 1000
        line = f"{number} {partition} {offset} {sent_s * 1000:.0f} {waited_ms:.1f}\n"
        os.write(self._file, line.encode())

    def read(self, partition: int, offset: int, value: bytes) -> None:
        os.write(self._file, f"{partition} {offset} {value.decode()}\n".encode())


class Pace:
    """Says how many records are due."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._began_s = time.monotonic()

    def allows(self, number: int) -> bool:
        return number <= (time.monotonic() - self._began_s) * self._per_s


def record(name: str, number: int) -> tuple[bytes, bytes]:
    return f"{name}-{number % KEY_COUNT}".encode(), f"{name}:{number}".encode()


def told_to_stop() -> threading.Event:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def produce_confluent(servers: str, topic: str, name: str, notes: Notes, pace: Pace) -> None:
    stop = told_to_stop()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            **secured("confluent"),
            "enable.idempotence": True,
            "message.timeout.ms": _TRY_FOR_S * 1000,
            "log_level": 0,
        }
    )

    def on_delivery(number: int, sent_s: float, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            print(f"{name}: {number} was not acknowledged: {error}", file=sys.stderr)
            os._exit(1)
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        # No offset: it was stored long ago, under a leader whose memory of it is gone.
        notes.acknowledged(number, partition, UNKNOWN if offset is None else offset, sent_s)

    number = 0
    while not stop.is_set():
        if notes.unacknowledged < IN_FLIGHT_MAX and pace.allows(number):
            key, value = record(name, number)
            sent_s = time.time()
            producer.produce(
                topic, value, key,
                on_delivery=lambda e, m, n=number, s=sent_s: on_delivery(n, s, e, m),
            )  # fmt: skip
            notes.unacknowledged += 1
            number += 1
            producer.poll(0)
        else:
            producer.poll(_PAUSE_S)
    if producer.flush(_TRY_FOR_S):
        sys.exit(f"{name}: {len(producer)} records were not acknowledged")


def produce_kafka_python(servers: str, topic: str, name: str, notes: Notes, pace: Pace) -> None:
    stop = told_to_stop()
    producer = KafkaProducer(
        bootstrap_servers=servers.split(","),
        enable_idempotence=True,
        delivery_timeout_ms=_TRY_FOR_S * 1000,
        **secured("kafka-python"),
    )
    failures: list[BaseException] = []
    number = 0
    while not stop.is_set() and not failures:
        if notes.unacknowledged < IN_FLIGHT_MAX and pace.allows(number):
            key, value = record(name, number)
            sent_s = time.time()
            try:
                future = producer.send(topic, value, key)
            except kafka_errors.KafkaTimeoutError:
                continue  # no room, so it was not taken: nothing has happened to it
            notes.unacknowledged += 1
            future.add_callback(
                lambda about, n=number, s=sent_s: notes.acknowledged(
                    n, about.partition, about.offset, s
                )
            )
            future.add_errback(failures.append)
            number += 1
        else:
            time.sleep(_PAUSE_S)
    producer.flush(_TRY_FOR_S)
    if failures:
        sys.exit(f"{name}: not acknowledged: {failures[0]!r}")


async def produce_aiokafka(servers: str, topic: str, name: str, notes: Notes, pace: Pace) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, **secured("aiokafka")
    )
    await producer.start()

    def on_done(number: int, sent_s: float, future: asyncio.Future) -> None:
        error = future.exception()
        if error is not None:
            print(f"{name}: not acknowledged: {error!r}", file=sys.stderr)
            os._exit(1)
        about = future.result()
        notes.acknowledged(number, about.partition, about.offset, sent_s)

    number = 0
    while not stop.is_set():
        if notes.unacknowledged < IN_FLIGHT_MAX and pace.allows(number):
            key, value = record(name, number)
            sent_s = time.time()
            try:
                future = await producer.send(topic, value, key)
            except aiokafka.errors.KafkaTimeoutError:
                continue  # no room, so it was not taken: nothing has happened to it
            notes.unacknowledged += 1
            future.add_done_callback(lambda f, n=number, s=sent_s: on_done(n, s, f))
            number += 1
        else:
            await asyncio.sleep(_PAUSE_S)
    await producer.stop()


def consume_confluent(servers: str, topic: str, group: str, notes: Notes) -> None:
    stop = told_to_stop()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            **secured("confluent"),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # When all connections are broken at once, as they may be for a client that waits
            # before it tries the restarted broker again, librdkafka forgets all brokers and asks
            # its bootstrap servers anew. An OffsetForLeaderEpoch request that was meant for one of
            # the forgotten brokers then makes its main thread and that broker's thread wait for
            # each other: it neither heartbeats nor commits any more, and no call of ours returns
            # (seen with 2.16.0; https://github.com/confluentinc/librdkafka/issues/5476).
            "metadata.recovery.strategy": "none",
            # For the case that something hangs all the same: what it does is in our log.
            "debug": "cgrp,broker,protocol",
        }
    )
    consumer.subscribe([topic])
    while not stop.is_set():
        messages = consumer.consume(500, timeout=0.2)
        for message in messages:
            if message.error() is None:
                notes.read(message.partition(), message.offset(), message.value())
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:
                # The next one says more; what is read again meanwhile, the notes show.
                print(f"commit: {error}", file=sys.stderr)
    consumer.close()


def consume_kafka_python(servers: str, topic: str, group: str, notes: Notes) -> None:
    stop = told_to_stop()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **secured("kafka-python"),
    )
    while not stop.is_set():
        found = consumer.poll(200, max_records=500)
        for records in found.values():
            for one in records:
                notes.read(one.partition, one.offset, one.value)
        if found:
            try:
                consumer.commit()
            except kafka_errors.CommitFailedError as error:
                print(f"commit: {error!r}", file=sys.stderr)
    consumer.close()


async def consume_aiokafka(servers: str, topic: str, group: str, notes: Notes) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **secured("aiokafka"),
    )
    await consumer.start()
    while not stop.is_set():
        found = await consumer.getmany(timeout_ms=200, max_records=500)
        for records in found.values():
            for one in records:
                notes.read(one.partition, one.offset, one.value)
        if found:
            try:
                await consumer.commit()
            except aiokafka.errors.KafkaError as error:
                print(f"commit: {error!r}", file=sys.stderr)
    await consumer.stop()


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    role, kind, servers, topic, name, path, last = sys.argv[1:]
    for library in ("aiokafka", "kafka"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    notes = Notes(path)
    if role == "produce":
        pace = Pace(float(last))
        if kind == "confluent":
            produce_confluent(servers, topic, name, notes, pace)
        elif kind == "kafka-python":
            produce_kafka_python(servers, topic, name, notes, pace)
        else:
            asyncio.run(produce_aiokafka(servers, topic, name, notes, pace))
    elif kind == "confluent":
        consume_confluent(servers, topic, last, notes)
    elif kind == "kafka-python":
        consume_kafka_python(servers, topic, last, notes)
    else:
        asyncio.run(consume_aiokafka(servers, topic, last, notes))


if __name__ == "__main__":
    main()
