"""Topic settings: every key is known with a default, and bad values are refused by name."""

from __future__ import annotations

import pytest

from broker.cluster.core.topic_config import TOPIC_KEYS, Kind, TopicConfig, check_value
from broker.errors import InvalidTopicConfig


def test_every_default_is_a_valid_value() -> None:
    for key in TOPIC_KEYS.values():
        assert check_value(key, key.default) == key.default
        assert key.doc


def test_the_fields_have_the_defaults_of_the_table() -> None:
    assert TopicConfig.parse({}) == TopicConfig()


def test_overrides_reach_the_fields() -> None:
    config = TopicConfig.parse(
        {
            "cleanup.policy": "compact, delete,compact",
            "retention.ms": "-1",
            "retention.bytes": "100",
            "segment.bytes": " 1048576 ",
            "segment.ms": "1",
            "max.message.bytes": "7",
            "min.insync.replicas": "1",
            "quire.ensemble.size": "5",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "10",
            "message.timestamp.after.max.ms": "20",
        }
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacts
    assert config.deletes
    assert (config.retention_ms, config.retention_bytes) == (-1, 100)
    assert (config.segment_bytes, config.segment_ms) == (1048576, 1)
    assert config.max_message_bytes == 7
    assert (config.min_insync_replicas, config.ensemble_size) == (1, 5)
    assert config.log_append_time
    assert (config.timestamp_before_max_ms, config.timestamp_after_max_ms) == (10, 20)
    assert config.value("cleanup.policy") == "compact,delete"
    assert config.value("segment.jitter.ms") == "0"
    assert TopicConfig.parse(config.overrides) == config


def test_keys_without_effect_are_kept() -> None:
    config = TopicConfig.parse({"index.interval.bytes": "2048"})
    assert config.overrides == {"index.interval.bytes": "2048"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", str(2**63)),
        ("cleanup.policy", "shred"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("segment.bytes", "13"),
        ("min.insync.replicas", "0"),
    ],
)
def test_bad_settings_are_named(key: str, value: str) -> None:
    with pytest.raises(InvalidTopicConfig, match=key):
        TopicConfig.parse({key: value})


def test_spelling_is_normal() -> None:
    assert check_value(TOPIC_KEYS["preallocate"], " TRUE ") == "true"
    assert check_value(TOPIC_KEYS["min.cleanable.dirty.ratio"], "1e-1") == "0.1"
    assert TOPIC_KEYS["retention.ms"].kind is Kind.LONG


@pytest.mark.parametrize("text", ["", " , "])
def test_without_a_policy_all_is_kept(text: str) -> None:
    config = TopicConfig.parse({"cleanup.policy": text})
    assert (config.value("cleanup.policy"), config.deletes, config.compacts) == ("", False, False)


@pytest.mark.parametrize(
    ("key", "stored", "holds"),
    [
        ("segment.bytes", "13", "14"),
        ("segment.bytes", str(2**40), str(2**31 - 1)),
        ("segment.bytes", 13, "14"),
        ("segment.bytes", "a lot", str(1 << 30)),
        ("segment.bytes", {"from": 1}, str(1 << 30)),
        ("min.insync.replicas", "0", "1"),
        ("min.cleanable.dirty.ratio", "1.5", "1.0"),
        ("min.cleanable.dirty.ratio", "nan", "0.5"),
        ("preallocate", "yes", "false"),
        ("message.timestamp.type", "Both", "CreateTime"),
        # Nothing is deleted by a rule that is not understood.
        ("retention.ms", "-2", "-1"),
        ("retention.ms", "1 week", "-1"),
        ("retention.bytes", None, "-1"),
        ("cleanup.policy", "compact,shred", ""),
        ("cleanup.policy", ["delete"], ""),
        ("delete.retention.ms", "soon", str(2**63 - 1)),
    ],
)
def test_in_place_of_a_stored_value_that_is_not_taken_another_holds(
    key: str, stored: object, holds: str
) -> None:
    config = TopicConfig.read({key: stored, "flush.ms": "5"})
    assert config.value(key) == holds
    assert config.stored() == {key: stored, "flush.ms": "5"}, "it is carried along"
    changed = TopicConfig.parse({**config.overrides, "flush.ms": "6"}).after(config)
    assert changed.stored() == {key: stored, "flush.ms": "6"}
    assert changed.with_defaults({"flush.messages": "9"}).stored() == changed.stored()
    anew = TopicConfig.parse({key: TOPIC_KEYS[key].default}).after(config)
    if holds != TOPIC_KEYS[key].default:
        assert anew.stored() == {key: TOPIC_KEYS[key].default}, "until somebody sets it anew"
    reset = TopicConfig.parse({"flush.ms": "6"}).after(config)
    assert reset.stored() == {"flush.ms": "6"}, "or resets it"


def test_a_setting_that_is_not_known_is_carried_along_whatever_is_set() -> None:
    config = TopicConfig.read({"new.setting": [1, 2.5], "retention.ms": "7"})
    assert (config.retention_ms, config.overrides) == (7, {"retention.ms": "7"})
    for after in ({}, {"retention.ms": "8"}):
        assert TopicConfig.parse(after).after(config).stored() == {**after, "new.setting": [1, 2.5]}


def test_every_safe_value_is_a_valid_value() -> None:
    for key in TOPIC_KEYS.values():
        assert key.safe is None or check_value(key, key.safe) == key.safe


def test_a_batch_size_that_cannot_be_in_force_is_refused_with_the_reason() -> None:
    assert TopicConfig.parse({"max.message.bytes": "5000000"}).max_message_bytes == 5_000_000
    for wrong in ("0", "2147483640"):  # as Kafka 4.4.0
        with pytest.raises(InvalidTopicConfig, match="between 1 and 2147483639"):
            TopicConfig.parse({"max.decompressed.message.bytes": wrong})
    with pytest.raises(InvalidTopicConfig, match="5000000, not 5000001: a batch is in one ledger"):
        TopicConfig.parse({"max.message.bytes": "5000001"})
