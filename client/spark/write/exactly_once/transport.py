"""Carry out the steps of the protocol over connections, and be the transaction of a task.

A step that gets no answer, or one that may pass, is asked again until
`kafka.delivery.timeout.ms`; all of them may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from client.pubsub.core.verdicts import Refused, Verdict, in_words, worst
from client.spark.brokers.kafka_cluster import KafkaCluster
from client.spark.brokers.kafka_link import KafkaLink
from client.spark.brokers.retries import Transient
from client.spark.errors import RequestRefused
from client.spark.splits import TopicPartition
from client.spark.write.exactly_once.decision import TaskTransaction
from client.spark.write.exactly_once.protocol import (
    EVERY_BROKER,
    Ask,
    Sink,
    Steps,
    abandon,
    enrol,
    open_transaction,
)

T = TypeVar("T")


def run(steps: Steps[T], cluster: KafkaCluster) -> T:
    """Carry out all steps and return their result.

    Raises what they raise, BrokersUnreachable, and RequestRefused for an answer that they do not
    expect.
    """
    links: dict[tuple[str, int], KafkaLink] = {}
    try:
        ask = next(steps)
        while True:
            try:
                answer = cluster.retry(_what(ask), partial(_asked, ask, cluster, links))
            except Refused as refused:
                ask = steps.throw(refused)
            else:
                ask = steps.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    except Refused as error:
        raise RequestRefused(f"a request of the exactly-once sink was refused: {error}") from error


class TaskWriting:
    """The transaction of one attempt of a task; begun with the first rows."""

    def __init__(self, sink: Sink, task: int, cluster: KafkaCluster) -> None:
        self._sink = sink
        self._task = task
        self._cluster = cluster
        self._enrolled: set[TopicPartition] = set()
        self.open: TaskTransaction | None = None
        """None: no row was written."""

    @property
    def transactional_id(self) -> str:
        """Its name for the brokers."""
        return self._sink.name(self._begun())

    def identity(self) -> tuple[int, int]:
        """See `ProducerTransaction`."""
        one = self._begun()
        return one.producer_id, one.epoch

    def enrol(self, partitions: Sequence[TopicPartition]) -> None:
        """See `ProducerTransaction`."""
        new = [at for at in partitions if at not in self._enrolled]
        if new:
            run(enrol(self._sink, self._begun(), new), self._cluster)
            self._enrolled.update(new)

    def abandon(self) -> None:
        """Abort, if there is something to abort. Raises SparkSourceError."""
        if self.open is not None:
            run(abandon(self._sink, self.open), self._cluster)

    def _begun(self) -> TaskTransaction:
        if self.open is None:
            self.open = run(open_transaction(self._sink, self._task), self._cluster)
        return self.open


def _asked(ask: Ask, cluster: KafkaCluster, links: dict[tuple[str, int], KafkaLink]) -> Any:
    if ask.kind == EVERY_BROKER:
        asked = [_ask(ask, link, cluster) for link in cluster.every_link()]
        answers = [answer for answer in asked if answer is not None]
        return answers or None
    who = ask.key, ask.kind
    # A failure of any kind may mean that another broker coordinates now.
    link = links.pop(who, None) or cluster.coordinator(*who)
    answer = _ask(ask, link, cluster)
    links[who] = link
    return answer


def _ask(ask: Ask, link: KafkaLink, cluster: KafkaCluster) -> Any:
    """Raises LinkBroken, Transient, Refused."""
    if ask.is_optional and not link.offers(ask.api):
        return None
    version = link.version(ask.api, ask.version_max)
    answer = link.ask(ask.api, ask.fields, cluster.ask_timeout_s, version=version)
    code, verdict = worst(ask.codes(answer), ask.judge)
    if verdict is Verdict.DONE:
        return answer
    if verdict in (Verdict.RETRY, Verdict.LOOK_UP):
        raise Transient(f"{_what(ask)}: {in_words(code)}")
    raise Refused(verdict, code, in_words(code))


def _what(ask: Ask) -> str:
    about = f" of {ask.key}" if ask.key else ""
    return f"asking for {ask.api.name}{about}"
