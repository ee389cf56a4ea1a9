"""The settings of a broker's compaction come from its configuration."""

from __future__ import annotations

from broker.compaction.core.settings import CompactorSettings
from broker.config import BrokerConfig


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert BrokerConfig().compactor() == CompactorSettings()
