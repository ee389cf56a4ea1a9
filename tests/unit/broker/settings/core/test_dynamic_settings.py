"""Which settings can be changed while a broker runs, to what, and which value counts."""

from __future__ import annotations

import pytest

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind
from broker.config import BrokerConfig
from broker.errors import BrokerError, InvalidRequest
from broker.settings.core.dynamic_settings import (
    DEFAULTS_OF_TOPICS,
    DYNAMIC,
    FIELDS,
    KEPT,
    Given,
    Origin,
    changed,
    checked,
    effective,
    fields_of,
    given,
    topic_defaults_of,
)
from broker.topics.core.config_resource import Change, Operation

SET, DELETE = Operation.SET, Operation.DELETE


def test_each_stands_for_a_field_or_a_topics_key_that_exists() -> None:
    for key in FIELDS.values():
        assert hasattr(BrokerConfig(), key.field) and not key.topic_key
    for key in DEFAULTS_OF_TOPICS.values():
        assert TOPIC_KEYS[key.topic_key].effect, "what has no effect is not offered"
    assert set(DYNAMIC) == set(FIELDS) | set(DEFAULTS_OF_TOPICS) | set(KEPT)


@pytest.mark.parametrize(
    ("name", "value", "spelled"),
    [
        ("auto.create.topics.enable", " FALSE ", "false"),
        ("num.partitions", "007", "7"),
        ("log.cleanup.policy", "delete, compact", "delete,compact"),
        ("log.retention.ms", "-1", "-1"),
    ],
)
def test_values_are_spelled_one_way(name: str, value: str, spelled: str) -> None:
    assert checked(name, value) == spelled


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("auto.create.topics.enable", "yes", InvalidRequest),
        ("num.partitions", "many", InvalidRequest),
        ("num.partitions", str(1 << 31), InvalidRequest),
        ("log.retention.ms", "-2", InvalidRequest),
        ("log.cleanup.policy", "shred", InvalidRequest),
        ("listeners", "PLAINTEXT://:1", InvalidRequest),
    ],
)
def test_bad_values_are_refused_by_the_settings_own_name(
    name: str, value: str, error: type[BrokerError]
) -> None:
    with pytest.raises(error, match=name):
        checked(name, value)


def test_changes_set_reset_and_edit_lists() -> None:
    before = {"num.partitions": "3"}
    after = changed(before, [Change("log.retention.ms", SET, "5"), Change("no.such", DELETE, None)])
    assert after == {"num.partitions": "3", "log.retention.ms": "5"}
    assert changed(after, [Change("num.partitions", DELETE, None)]) == {"log.retention.ms": "5"}
    both = changed({}, [Change("log.cleanup.policy", Operation.APPEND, "compact")])
    assert both == {"log.cleanup.policy": "delete,compact"}
    one = changed(both, [Change("log.cleanup.policy", Operation.SUBTRACT, "delete")])
    assert one == {"log.cleanup.policy": "compact"}
    assert before == {"num.partitions": "3"}, "what was given is as it was"


@pytest.mark.parametrize(
    "changes",
    [
        [Change("num.partitions", SET, "1"), Change("num.partitions", SET, "2")],
        [Change("num.partitions", SET, None)],
        [Change("num.partitions", 9, "1")],
    ],
)
def test_bad_changes_are_refused(changes: list[Change]) -> None:
    with pytest.raises(InvalidRequest):
        changed({}, changes)


def test_only_lists_can_be_edited() -> None:
    with pytest.raises(InvalidRequest):
        changed({}, [Change("num.partitions", Operation.APPEND, "1")])


def test_a_brokers_own_value_comes_before_that_of_all() -> None:
    mine, every = {"num.partitions": "1"}, {"num.partitions": "2", "group.max.size": "3"}
    assert given("num.partitions", mine, every) == [
        Given("num.partitions", "1", Origin.BROKER),
        Given("num.partitions", "2", Origin.EVERY_BROKER),
    ]
    assert given("log.retention.ms", mine, every) == []
    assert effective(mine, every | {"of.a.later.release": "x"}) == {
        "num.partitions": "1", "group.max.size": "3",
    }  # fmt: skip


def test_values_become_fields_and_defaults_of_topics() -> None:
    values = {
        "auto.create.topics.enable": "false", "offsets.retention.minutes": "2",
        "log.roll.ms": "9", "message.max.bytes": "100",
    }  # fmt: skip
    assert fields_of(values) == {"auto_create_topics": False, "offsets_retention_ms": 120_000}
    assert topic_defaults_of(values) == {"segment.ms": "9", "max.message.bytes": "100"}


@pytest.mark.parametrize("name", KEPT)
def test_what_means_nothing_here_is_stored_and_changes_nothing(name: str) -> None:
    key = KEPT[name]
    assert checked(name, key.kept) == str(key.kept) or key.kind is Kind.DOUBLE
    values = changed({}, [Change(name, Operation.SET, key.kept)])
    assert [*values] == [name]
    assert fields_of(values) == topic_defaults_of(values) == {}
    with pytest.raises(InvalidRequest):
        checked(name, "neither a number nor a flag")
