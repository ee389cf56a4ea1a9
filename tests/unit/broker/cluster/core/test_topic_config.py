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
        ("compression.type", "gzip"),
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
