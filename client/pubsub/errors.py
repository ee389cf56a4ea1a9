"""What can go wrong between an application and the brokers, one sentence each.

    PubSubError
    ├── BrokerUnreachable   no broker answers at any of the addresses
    ├── TopicNotFound       there is no such topic, or no such partition
    ├── TopicExists         create: the name is taken
    ├── InvalidTopic        name, partition count, replication or setting refused
    ├── RecordTooLarge      one record is over the size limit
    ├── PublishFailed       a record was not acknowledged; it may be in the log all the same
    ├── UnreadableBatch     a batch in the log that nobody can read: its place is named
    ├── CommitFailed        the group has moved on; the records will be delivered again
    ├── TransactionError
    │   ├── TransactionAborted    nothing of it counts: abort, and do the work again
    │   ├── TransactionInDoubt    no answer to an end: ask for the same end again
    │   ├── ProducerFenced        another publisher with this transactional id took over
    │   └── TransactionRefused    no transaction will succeed with these settings or brokers
    └── RequestFailed       any other refusal, in the broker's words

`translate` makes these of aiokafka's exceptions, so an application never needs to know which
library works underneath; `check_topic_name` saves asking brokers for an impossible topic.
"""

from __future__ import annotations

import re

import aiokafka.errors as kafka

from client.errors import Outcome, QuireError


class PubSubError(QuireError):
    """Root of what `client.pubsub` raises."""


class BrokerUnreachable(PubSubError):
    """No broker answers, or the connection broke before the answer."""

    retriable = True
    outcome = Outcome.UNKNOWN


class TopicNotFound(PubSubError):
    """There is no topic, or no partition of it, under that name."""


class TopicExists(PubSubError):
    """A topic with that name exists already."""


class InvalidTopic(PubSubError):
    """The broker refuses the name, partition count, replication or a setting of a topic."""


class RecordTooLarge(PubSubError):
    """A record is larger than the publisher or the topic allows; nothing was published."""


class PublishFailed(PubSubError):
    """A record was not acknowledged. It may be in the log all the same.

    The publisher's sequence numbers have a gap after this: close it and open a new one.
    """

    outcome = Outcome.UNKNOWN


class UnreadableBatch(PubSubError):
    """The batch at the position of a partition cannot be read, however often it is tried."""


class CommitFailed(PubSubError):
    """The group gave this member's partitions away: what it did not commit comes again."""


class TransactionError(PubSubError):
    """Root of what transactions can end with."""


class TransactionAborted(TransactionError):
    """Something of the transaction failed: it can only be aborted. The next one may succeed."""

    retriable = True


class TransactionInDoubt(TransactionError):
    """The coordinator did not answer: the transaction may have ended, as was asked.

    Asking for the same end again is harmless. A new publisher with the same transactional id
    settles it, too.
    """

    retriable = True
    outcome = Outcome.UNKNOWN


class ProducerFenced(TransactionError):
    """Another publisher with the same transactional id began: this one has to go.

    What it had not committed is aborted. Of a commit that was under way the outcome is unknown.
    """

    outcome = Outcome.UNKNOWN


class TransactionRefused(TransactionError):
    """The brokers refuse the transactional id, or have no transactions."""


class RequestFailed(PubSubError):
    """The broker refused a request for another reason."""


_INVALID_TOPIC = (
    kafka.InvalidTopicError,
    kafka.InvalidPartitionsError,
    kafka.InvalidReplicationFactorError,
    kafka.InvalidReplicationAssignmentError,
    kafka.InvalidConfigurationError,
    kafka.PolicyViolationError,
)
_TOO_LARGE = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordTooLargeError,
    kafka.RecordListTooLargeError,
)
_COMMIT = (
    kafka.CommitFailedError,
    kafka.IllegalGenerationError,
    kafka.UnknownMemberIdError,
    kafka.RebalanceInProgressError,
)
_TRANSLATIONS: tuple[tuple[tuple[type[kafka.KafkaError], ...], type[PubSubError]], ...] = (
    ((kafka.UnknownTopicOrPartitionError,), TopicNotFound),
    ((kafka.TopicAlreadyExistsError,), TopicExists),
    (_INVALID_TOPIC, InvalidTopic),
    (_TOO_LARGE, RecordTooLarge),
    (_COMMIT, CommitFailed),
    ((kafka.KafkaConnectionError, kafka.NodeNotReadyError), BrokerUnreachable),
)


_PLAINER_WORDS = {
    kafka.InvalidTopicError: "the name is not allowed, or the topic is the cluster's own",
}

_DENIED = {
    kafka.TopicAuthorizationFailedError: "the right to do that with topic",
    kafka.GroupAuthorizationFailedError: "the right to use group",
}
"""What the name in such an error is about, which is all that it says."""

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless brokers would accept the name: asking them for it retries."""
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidTopic(
            f"{name!r} is not a topic name: use 1 to 249 letters, digits, dots, underscores,"
            " hyphens"
        )


def reason(error: BaseException) -> str:
    """Say in a few words what an aiokafka exception means, without its class or number."""
    text = str(error.args[0]) if error.args and error.args[0] else ""
    if type(error) in _DENIED:
        return f"the user lacks {_DENIED[type(error)]}{f' {text}' if text else ''}"
    description = getattr(error, "description", "") or type(error).__name__
    return text or _PLAINER_WORDS.get(type(error), description)


def translate(
    error: BaseException, doing: str, *, default: type[PubSubError] = RequestFailed
) -> PubSubError:
    """Turn an aiokafka exception into ours; `doing` is the clause that failed.

    `default` is the class for errors without a translation of their own. The caller raises the
    result `from error`.
    """
    for causes, ours in _TRANSLATIONS:
        if isinstance(error, causes):
            return ours(f"{doing}: {reason(error)}")
    return default(f"{doing}: {reason(error)}")
