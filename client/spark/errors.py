"""What can go wrong while Spark reads or writes topics, one sentence each.

    SparkSourceError
    ├── BrokersUnreachable   nobody answered before the deadline
    ├── RequestRefused       a broker refused for a reason that waiting does not change
    ├── TopicMissing         a topic or partition that was asked for does not exist
    ├── TopicReplaced        the topic was deleted and created again: another log of the same name
    ├── SinkTakenOver        another driver writes with the same sinkId
    ├── BatchNotCommitted    a micro-batch of an exactly-once sink cannot count: nothing is visible
    ├── BatchTorn            a micro-batch counts, and some of its records are lost
    └── DataLost             records between two known offsets are gone

Messages name the topic, the partition, the offsets and the option to change; Spark shows them to
people as they are.
"""

from __future__ import annotations

from client.errors import QuireError


class SparkSourceError(QuireError):
    """Root of what the data source raises, beside ConfigError for wrong options."""


class BrokersUnreachable(SparkSourceError):
    """No broker gave an answer before the deadline."""

    retriable = True


class RequestRefused(SparkSourceError):
    """A broker refused, and asking again would not help."""


class TopicMissing(SparkSourceError):
    """There is no such topic or partition."""


class TopicReplaced(SparkSourceError):
    """The topic has another id than the one that the offsets belong to."""


class SinkTakenOver(SparkSourceError):
    """Another driver began a batch of the same sink: nothing of this one's batch is visible."""


class BatchNotCommitted(SparkSourceError):
    """A micro-batch cannot count: nothing of it is visible. Spark may run it again."""

    retriable = True


class BatchTorn(SparkSourceError):
    """A micro-batch counts, but transactions of it were ended by somebody else before."""


class DataLost(SparkSourceError):
    """Offsets that should be read are gone, and `failOnDataLoss` is true."""
