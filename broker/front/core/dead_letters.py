"""Dead letters of share groups (KIP-1191): how they look, where they go, how repeats are known.

A dead letter is a record of another topic. Its headers say which record it is about; with
`errors.deadletterqueue.copy.record.enable` it has that record's key, value and headers, too, those
first. Names and texts are Kafka's; numbers are written in decimal.

    LETTER-NUMBERED  What a partition writes for a group has a producer id and goes on counting, so
                     what is sent again, because nobody heard what became of it, is stored once.
                     What is sent again is therefore about the very same records.

Source: `ProduceRequestHandler` and `ShareGroupDLQManager` of Kafka 4.4.0's server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.core.topology import TopicInfo
from broker.errors import InvalidTopicName, PolicyViolation, UnknownTopicOrPartition
from broker.partition.core.shares.share_updates import StoredRange
from broker.topics.core.topic_rules import check_name
from client.ids import Offset, ProducerId
from client.wire.kafka.batches.records import Record

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERIES: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
OURS: Final = (TOPIC, PARTITION, OFFSET, GROUP, DELIVERIES, MESSAGE)

REJECTED: Final = "Offset rejected by client."
EXCEEDED: Final = "Offset delivery count exceeded the threshold."

SWITCH: Final = "errors.deadletterqueue.group.enable"
_INTERNAL: Final = "__"
_SEQUENCE_MAX: Final = 1 << 30
_RECORD_BYTES: Final = 64
"""More than the numbers of a record take."""


class Letter(NamedTuple):
    """A record that gets a dead letter."""

    offset: Offset
    deliveries: int
    is_rejected: bool

    @property
    def message(self) -> str:
        """Why it does."""
        return REJECTED if self.is_rejected else EXCEEDED


class Source(NamedTuple):
    """Where the records come from."""

    topic: str
    partition: int
    group_id: str


def letters_of(ranges: Iterable[StoredRange]) -> Iterator[Letter]:
    """Return the letters of ARCHIVING records."""
    for first, last, _, deliveries in ranges:
        for offset in range(first, last + 1):
            yield Letter(Offset(offset), abs(deliveries), deliveries < 0)


def dead_letter(source: Source, letter: Letter, original: Record | None, now_ms: int) -> Record:
    """Return the record of a dead letter. `original`: the record, if it is to be copied."""
    found = (
        (TOPIC, source.topic),
        (PARTITION, str(source.partition)),
        (OFFSET, str(letter.offset)),
        (GROUP, source.group_id),
        (DELIVERIES, str(letter.deliveries)),
        (MESSAGE, letter.message),
    )
    ours = tuple((name, value.encode()) for name, value in found)
    if original is None:
        return Record(None, None, now_ms, ours)
    return Record(original.key, original.value, now_ms, (*original.headers, *ours))


def size_of(record: Record) -> int:
    """Return how many bytes a record takes in a batch, and some more."""
    parts = [record.key, record.value, *(value for _, value in record.headers)]
    names = sum(len(name.encode()) + 10 for name, _ in record.headers)
    return _RECORD_BYTES + names + sum(len(part) for part in parts if part is not None)


def check_target(name: str, prefix: str, topic: TopicInfo | None, *, may_create: bool) -> None:
    """Check that dead letters may go to the topic of a name.

    Raises InvalidTopicName, PolicyViolation, UnknownTopicOrPartition: each says what to do.
    """
    if not name:
        raise PolicyViolation(
            "the group has no topic for dead letters any more: set"
            " errors.deadletterqueue.topic.name, or let the group begin elsewhere"
        )
    if name.startswith(_INTERNAL):
        raise InvalidTopicName(f"{name!r} begins with {_INTERNAL}: dead letters cannot go there")
    if not name.startswith(prefix):
        raise InvalidTopicName(
            f"{name!r} does not begin with {prefix!r}"
            " (errors.deadletterqueue.topic.name.prefix of the brokers)"
        )
    if topic is None:
        check_name(name)
        if not may_create:
            raise UnknownTopicOrPartition(
                f"topic {name!r} does not exist: create it with {SWITCH}=true, or set"
                " errors.deadletterqueue.auto.create.topics.enable=true for the brokers"
            )
    elif not topic.config.takes_dead_letters:
        raise PolicyViolation(f"topic {name!r} takes no dead letters: set its {SWITCH}=true")


class Numbers:
    """The numbers of what one partition writes for one group into one partition (LETTER-NUMBERED).

    What is attempted is the same until its outcome is known.
    """

    __slots__ = ("attempted", "place", "producer_id", "sequence")

    def __init__(self, place: tuple[UUID, int, bool], producer_id: ProducerId) -> None:
        """`place`: the topic, its partition, and whether records are copied."""
        self.place = place
        self.producer_id = producer_id
        self.sequence = 0
        self.attempted: Sequence[StoredRange] = ()
        """What was sent, and nobody knows what became of it."""

    @property
    def are_spent(self) -> bool:
        """Whether it is time to begin with another producer id."""
        return self.sequence >= _SEQUENCE_MAX and not self.attempted

    def on_stored(self) -> None:
        """What was attempted is durable."""
        self.sequence += sum(last - first + 1 for first, last, *_ in self.attempted)
        self.attempted = ()

    def on_refused(self) -> None:
        """What was attempted was not stored, and never will be."""
        self.attempted = ()
