"""A client of the exactly-once run, as a process of its own: a source, a copier or an appender.

    python -m tests.chaos.exactly_once_load ROLE SERVERS NAME NOTES PER_S

    source     publishes numbered records, idempotently; notes `acked N` for each
    copier     reads committed records of the source's topic as a member of a group, and copies them
               with its offsets in one transaction; notes `copied N` for each transaction
    appender   reads and appends to lists in transactions; notes what `judges/appends.py` needs

A copier or appender ends when its client says that a transaction cannot go on: it is started
again, as a supervisor would, and its next life fences what is left of this one. Its notes begin
with a line that is on the disk before the transaction is.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.judges.hangs import DEBUG

SOURCE, COPY, LISTS = "source", "copy", "lists"
PARTITIONS = 3
GROUP = "copiers"
_TIMEOUT_S = 30.0
_GIVE_UP_S = 50.0
_HUNG_S = 60.0
"""A call that has not returned after this long, twice its own timeout, ends the process. Otherwise
one such call keeps the whole group waiting, for a member that sends heartbeats and does not rejoin:
for librdkafka's `max.poll.interval.ms`, five minutes."""
_HUNG_S_OF = {"send_offsets_to_transaction": 40.0}
"""Its own timeout is that of the transaction, 10 s; the last request that it begins by then may
take as long as a connection may be silent, 10 s more; and the process may be paused for 14 s. So
40 s say that it hangs, and are less than what a run gives the copiers to get on."""
_TRANSACTION_TIMEOUT_MS = 10_000
_SESSION_TIMEOUT_MS = 6_000
_SOCKET_TIMEOUT_MS = 10_000
"""How long librdkafka waits on a connection that has gone silent. With its own 60 s, of which there
may be two in one transaction, that is longer than a run gives anybody."""
_SILENT_S = 15.0
"""A copier that is given nothing for so long says what its consumer waits for."""
_BATCH_MAX = 50
_ABORTS = 0.15


class Load:
    """What every role has: settings, notes, and the wish to go on."""

    def __init__(self, servers: str, name: str, notes: Path, per_s: float) -> None:
        self.name = name
        self._servers = servers
        self._notes = notes.open("a", buffering=1)
        self._per_s = per_s
        self._goes_on = True
        self._figures = "{}"
        """Of the consumer, as librdkafka last told them."""
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self._goes_on = False

    def note(self, text: str) -> None:
        """Write a line that stays, whatever becomes of this process."""
        self._notes.write(text + "\n")

    def producer(self, **settings: Any) -> Producer:
        """Return a producer."""
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "socket.timeout.ms": _SOCKET_TIMEOUT_MS,
                **settings,
            }
        )

    def transactional(self) -> Producer:
        """Return a producer whose transactional id is this process's, for all its lives."""
        producer = self.producer(
            **{
                "transactional.id": self.name,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "debug": DEBUG,
            }
        )
        _until_it_works(producer.init_transactions)
        return producer

    def consumer(self, group: str, **settings: Any) -> Consumer:
        """Return a reader of committed data."""
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": _SESSION_TIMEOUT_MS,
                "statistics.interval.ms": 5_000,
                "stats_cb": self._keep_figures,
                **settings,
            }
        )

    def _keep_figures(self, figures: str) -> None:
        self._figures = figures


_OF_THE_GROUP = ("state", "join_state", "assignment_size")
_OF_A_PARTITION = ("broker", "fetch_state", "fetchq_cnt", "next_offset", "hi_offset", "ls_offset")
_OF_A_BROKER = ("state", "stateage", "waitresp_cnt", "rxidle", "txidle")


def waits_for(figures: str, topic: str) -> str:
    """Return what librdkafka's statistics say about a consumer that is given nothing."""
    known = json.loads(figures)

    def some(of: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        return {name: of[name] for name in names if name in of}

    partitions = known.get("topics", {}).get(topic, {}).get("partitions", {})
    parts = {
        "group": some(known.get("cgrp", {}), _OF_THE_GROUP),
        "partitions": {
            number: some(one, _OF_A_PARTITION)
            for number, one in partitions.items()
            if one.get("desired")
        },
        "brokers": {
            name: some(one, _OF_A_BROKER) for name, one in known.get("brokers", {}).items()
        },
    }
    return json.dumps(parts)


def _until_it_works(step: Any, *arguments: Any) -> None:
    """Take a step of a transaction; again while librdkafka says that it may, for a minute.

    Raises KafkaException when the transaction has to be aborted, or the producer given up. Ends the
    process if a step does not return, and says where it was.
    """
    give_up_s = time.monotonic() + _GIVE_UP_S
    hung_s = _HUNG_S_OF.get(step.__name__, _HUNG_S)
    while True:
        try:
            faulthandler.dump_traceback_later(hung_s, exit=True)
            try:
                step(*arguments, _TIMEOUT_S)
            finally:
                faulthandler.cancel_dump_traceback_later()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > give_up_s:
                raise
        else:
            return


class Source(Load):
    """Publishes numbered records."""

    def run(self) -> None:
        producer = self.producer(**{"enable.idempotence": True, "linger.ms": 5})
        number = 0
        while self._goes_on:
            producer.produce(SOURCE, f"{self.name}:{number}", on_delivery=self._delivered)
            number += 1
            producer.poll(1 / self._per_s)
        assert producer.flush(_TIMEOUT_S * 4) == 0, "not all was delivered"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.note(f"acked {message.value().decode()}")


class Copier(Load):
    """Copies what is committed, each record once."""

    def run(self) -> None:
        producer = self.transactional()
        consumer = self.consumer(GROUP)
        consumer.subscribe([SOURCE])
        count = 0
        given_s = time.monotonic()
        try:
            while self._goes_on:
                messages = [m for m in consumer.consume(_BATCH_MAX, 0.2) if m.error() is None]
                if not messages and time.monotonic() > given_s + _SILENT_S:
                    about = waits_for(self._figures, SOURCE)
                    print(f"{time.time():.1f} {self.name} is given nothing: {about}", flush=True)
                    given_s = time.monotonic()
                if messages:
                    given_s = time.monotonic()
                    self._copy(producer, consumer, messages)
                    count += 1
                    self.note(f"copied {count}")
        finally:
            consumer.close()

    def _copy(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            text = f"{partition}:{offset}={message.value().decode()}"
            producer.produce(COPY, text, partition=partition)
            ends[partition] = offset + 1
        offsets = [TopicPartition(SOURCE, p, offset) for p, offset in ends.items()]
        metadata = consumer.consumer_group_metadata()
        _until_it_works(producer.send_offsets_to_transaction, offsets, metadata)
        _until_it_works(producer.commit_transaction)


class Appender(Load):
    """Reads and appends to lists."""

    def run(self) -> None:
        reader = f"{self.name}-{time.time_ns()}"
        rng = random.Random(reader)
        consumer = self.consumer(reader)
        consumer.assign([TopicPartition(LISTS, p, 0) for p in range(PARTITIONS)])
        producer = self.transactional()
        number = self._last_number()
        while self._goes_on:
            number += 1
            self._append(producer, consumer, reader, number, rng)
            time.sleep(rng.expovariate(self._per_s))
        consumer.close()

    def _append(
        self, producer: Producer, consumer: Consumer, reader: str, number: int, rng: random.Random
    ) -> None:
        commit = rng.random() >= _ABORTS
        places = sorted(rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)))
        values = {p: [f"{self.name}:{number}:{p}{i}" for i in range(1, 3)] for p in places}
        about = {"id": self.name, "n": number}
        appends = {str(p): values[p] for p in places}
        self.note(json.dumps({"f": "begin", **about, "commit": commit, "appends": appends}))
        producer.begin_transaction()
        rows = [
            (m.partition(), m.offset(), m.value().decode())
            for m in consumer.consume(1_000, 0.05)
            if m.error() is None
        ]
        self.note(json.dumps({"f": "read", **about, "reader": reader, "rows": rows}))
        for place, texts in values.items():
            for text in texts:
                producer.produce(LISTS, text, partition=place)
        if commit:
            _until_it_works(producer.commit_transaction)
        else:
            producer.flush(_TIMEOUT_S)
            _until_it_works(producer.abort_transaction)
        self.note(json.dumps({"f": "end", **about}))

    def _last_number(self) -> int:
        """Return the number of the last transaction of earlier lives."""
        lines = Path(self._notes.name).read_text().splitlines()
        return max((json.loads(line)["n"] for line in lines if line.endswith("}")), default=0)


ROLES = {"source": Source, "copier": Copier, "appender": Appender}


def main() -> int:
    """Run a role until SIGTERM, or until its transaction cannot go on."""
    faulthandler.register(signal.SIGQUIT)
    role, servers, name, notes, per_s = sys.argv[1:]
    try:
        ROLES[role](servers, name, Path(notes), float(per_s)).run()
    except KafkaException as error:
        print(f"{name} ends: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
