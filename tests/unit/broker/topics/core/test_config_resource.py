"""Changes to a topic's settings, one by one or as a whole."""

from __future__ import annotations

import pytest

from broker.cluster.core.topic_config import TopicConfig
from broker.errors import InvalidRequest, InvalidTopicConfig
from broker.topics.core.config_resource import Change, Operation, changed, replaced

POLICY = "cleanup.policy"


def test_a_setting_is_set_and_goes_back_to_its_default() -> None:
    config = changed(TopicConfig.parse({}), [Change("retention.ms", Operation.SET, "7")])
    assert dict(config.overrides) == {"retention.ms": "7"}
    config = changed(config, [Change("retention.ms", Operation.DELETE, None)])
    assert dict(config.overrides) == {}


def test_the_others_stay() -> None:
    config = TopicConfig.parse({"retention.ms": "7", "segment.ms": "60000"})
    config = changed(config, [Change("retention.ms", Operation.SET, "8")])
    assert dict(config.overrides) == {"retention.ms": "8", "segment.ms": "60000"}


def test_a_whole_configuration_replaces_all() -> None:
    config = replaced([("retention.ms", "9")])
    assert dict(config.overrides) == {"retention.ms": "9"}


def test_list_items_come_once_and_go() -> None:
    config = TopicConfig.parse({})
    before = config.value(POLICY)
    again = changed(config, [Change(POLICY, Operation.APPEND, before)])
    assert again.value(POLICY) == before
    with pytest.raises(InvalidTopicConfig, match="is not a list"):
        changed(config, [Change("retention.ms", Operation.APPEND, "7")])
    with pytest.raises(InvalidTopicConfig, match="unknown topic setting"):
        changed(config, [Change("no.such", Operation.SUBTRACT, "7")])


def test_what_makes_no_sense_is_refused() -> None:
    config = TopicConfig.parse({})
    change = Change("retention.ms", Operation.SET, "7")
    with pytest.raises(InvalidRequest, match="changes a setting twice"):
        changed(config, [change, change])
    with pytest.raises(InvalidRequest, match="unknown operation 9"):
        changed(config, [change._replace(operation=9)])
    with pytest.raises(InvalidRequest, match=r"retention\.ms has no value"):
        changed(config, [change._replace(value=None)])
