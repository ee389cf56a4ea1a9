"""Rules for new and changed topics."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopicConfig,
    InvalidTopicName,
    TopicExists,
)
from broker.topics.core.topic_rules import (
    TopicDefaults,
    TopicShape,
    check_name,
    check_quorums,
    check_remote_storage,
    check_unused,
    decide_shape,
)

DEFAULTS = TopicDefaults(
    partition_count=4,
    replication_factor=3,
    min_insync_replicas=2,
    ensemble_size=0,
    partition_count_max=100,
)


def shape(**given: Any) -> TopicShape:
    defaults = given.pop("defaults", DEFAULTS)
    bookies = given.pop("bookies", 3)
    return decide_shape(
        given.get("partitions", -1), given.get("factor", -1), given.get("config", {}),
        defaults, bookies,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 249, "...", "__consumer_offsets"])
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\x00", "a:b"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_name(name)


def test_names_that_are_taken() -> None:
    check_unused("a.b", ["a-b", "ab"])
    with pytest.raises(TopicExists):
        check_unused("a.b", ["a.b"])
    with pytest.raises(InvalidTopicName, match="collides"):
        check_unused("a.b", ["a_b"])


def test_the_broker_decides_what_the_creator_left_open() -> None:
    decided = shape()
    assert (decided.partition_count, decided.replication_factor) == (4, 3)
    assert decided.config == TopicConfig()


def test_defaults_shrink_with_the_cluster_but_wishes_do_not() -> None:
    assert shape(bookies=1).replication_factor == 1
    with pytest.raises(InvalidReplicationFactor):
        shape(factor=3, bookies=2)
    with pytest.raises(InvalidReplicationFactor):
        shape(bookies=0)


@pytest.mark.parametrize("partitions", [0, -2, 101])
def test_bad_partition_counts(partitions: int) -> None:
    with pytest.raises(InvalidPartitions):
        shape(partitions=partitions)


@pytest.mark.parametrize("factor", [0, -2, 4])
def test_bad_replication_factors(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        shape(factor=factor)


def test_broker_defaults_that_differ_are_written_down() -> None:
    strict = DEFAULTS._replace(min_insync_replicas=3, ensemble_size=5)
    config = shape(defaults=strict, bookies=9).config
    assert config.overrides == {"min.insync.replicas": "3", "quire.ensemble.size": "5"}
    assert shape(defaults=strict, bookies=4).config.ensemble_size == 4
    assert shape(defaults=strict, factor=1, bookies=4).config.min_insync_replicas == 2


@pytest.mark.parametrize(
    "config",
    [
        {"min.insync.replicas": "4"},
        {"quire.ensemble.size": "2"},
        {"quire.ensemble.size": "4"},
        {"no.such": "1"},
    ],
)
def test_quorums_must_nest(config: dict[str, str]) -> None:
    with pytest.raises(InvalidTopicConfig):
        shape(config=config)


def test_changed_quorums_are_checked_too() -> None:
    check_quorums(TopicConfig.parse({"min.insync.replicas": "3"}), 3)
    check_quorums(TopicConfig(), 1)
    with pytest.raises(InvalidTopicConfig):
        check_quorums(TopicConfig.parse({"min.insync.replicas": "3"}), 2)


REMOTE = {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"cleanup.policy": "compact"}, "cleanup.policy=delete"),
        ({}, {"local.retention.ms": "2", "retention.ms": "1"}, "exceeds retention.ms"),
        ({}, {"local.retention.ms": "-1"}, "exceeds retention.ms"),
        ({}, {"local.retention.bytes": "5", "remote.copy.lag.bytes": "6"}, "exceeds local"),
        ({}, {"local.retention.ms": "5", "remote.log.copy.disable": "true"}, "nothing more is"),
        (REMOTE, {"remote.storage.enable": "false"}, "remote.log.delete.on.disable=true"),
    ],
)
def test_what_a_topic_says_of_the_object_store_fits_together(
    before: dict[str, str], after: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidTopicConfig, match=message):
        check_remote_storage(
            TopicConfig.parse(REMOTE | after), TopicConfig.parse(before), has_object_store=True
        )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"retention.ms": "-1", "local.retention.ms": "-1"},
        {"local.retention.ms": "5", "remote.copy.lag.ms": "5"},
        {"remote.log.copy.disable": "true"},
        {"cleanup.policy": ""},
        {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
    ],
)
def test_what_fits_together_is_taken(config: dict[str, str]) -> None:
    after = TopicConfig.parse(REMOTE | config)
    check_remote_storage(after, TopicConfig.parse(REMOTE), has_object_store=True)


def test_a_broker_without_a_store_takes_no_new_topic_for_it_and_goes_on_with_old_ones() -> None:
    tiered = TopicConfig.parse(REMOTE)
    with pytest.raises(InvalidTopicConfig, match=r"offload\.store_url"):
        check_remote_storage(tiered, TopicConfig.parse({}), has_object_store=False)
    check_remote_storage(tiered, tiered, has_object_store=False)
