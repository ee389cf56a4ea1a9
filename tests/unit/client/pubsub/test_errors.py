"""Every aiokafka failure becomes one of ours, with a sentence and a known outcome."""

from __future__ import annotations

import aiokafka.errors as kafka
import pytest

from client.errors import Outcome, QuireError
from client.pubsub import errors


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (kafka.UnknownTopicOrPartitionError(), errors.TopicNotFound),
        (kafka.TopicAlreadyExistsError(), errors.TopicExists),
        (kafka.InvalidReplicationFactorError(), errors.InvalidTopic),
        (kafka.MessageSizeTooLargeError(), errors.RecordTooLarge),
        (kafka.CommitFailedError(), errors.CommitFailed),
        (kafka.IllegalGenerationError(), errors.CommitFailed),
        (kafka.KafkaConnectionError("x"), errors.BrokerUnreachable),
        (kafka.OutOfOrderSequenceNumber(), errors.RequestFailed),
    ],
)
def test_translates(theirs: kafka.KafkaError, ours: type[errors.PubSubError]) -> None:
    error = errors.translate(theirs, "doing it failed")
    assert type(error) is ours
    assert isinstance(error, QuireError)
    assert str(error).startswith("doing it failed: ")
    assert len(str(error)) > len("doing it failed: ")


def test_unknown_failures_get_the_class_the_caller_names() -> None:
    error = errors.translate(
        kafka.OutOfOrderSequenceNumber(), "publishing failed", default=errors.PublishFailed
    )
    assert type(error) is errors.PublishFailed
    assert error.outcome is Outcome.UNKNOWN


def test_prefers_the_brokers_own_words() -> None:
    assert errors.reason(kafka.InvalidTopicError("too long")) == "too long"
    assert errors.reason(TimeoutError()) == "TimeoutError"


def test_a_denial_says_so() -> None:
    """The library's error has a name in it, and not a word beside."""
    denied = errors.translate(kafka.TopicAuthorizationFailedError("orders"), "subscribing failed")
    assert str(denied) == (
        "subscribing failed: the user lacks the right to do that with topic orders"
    )
    assert "right to use group g" in errors.reason(kafka.GroupAuthorizationFailedError("g"))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249])
def test_accepts_topic_names_that_brokers_accept(name: str) -> None:
    errors.check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n"])
def test_refuses_other_topic_names(name: str) -> None:
    with pytest.raises(errors.InvalidTopic, match="is not a topic name"):
        errors.check_topic_name(name)
