"""What the settings of a group are for the records that are lent to its members: its own, and where
it has none the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.config import BrokerConfig
from broker.errors import InvalidTopicConfig
from broker.groups.group_settings import GroupSettings
from broker.settings.core import share_settings
from broker.settings.core.share_settings import NAMES, ShareSettings

log = logging.getLogger(__name__)

DEAD_LETTERS: Final = 2
"""The level of `share.version` from which on the state of a group knows of dead letters, and of
records that wait for their time."""


class GroupConfigs:
    """The settings of share groups."""

    def __init__(
        self,
        groups: Callable[[], GroupSettings],
        config: Callable[[], BrokerConfig],
        level: Callable[[], int],
    ) -> None:
        """`groups`: what was set; `config`: the broker's, as it is now; `level`: of
        `share.version`."""
        self._level = level
        self._groups = groups
        self._config = config

    def defaults(self) -> Mapping[str, str]:
        """Return what a group has that was set nothing."""
        config = self._config()
        return share_settings.defaults(
            config.group_share_record_lock_duration_ms,
            config.group_share_delivery_count_limit,
            config.group_share_partition_max_record_locks,
        )

    def settings(self, group_id: str) -> ShareSettings:
        """Return a group's settings."""
        given = self._groups().of(group_id)
        known = {name: value for name, value in given.items() if name in NAMES}
        try:
            found = share_settings.parse({**self.defaults(), **known})
        except (InvalidTopicConfig, ValueError) as error:  # of a later release
            log.error("group.settings_unreadable group=%r error=%r", group_id, str(error))
            found = share_settings.parse(self.defaults())
        if self._level() < DEAD_LETTERS:
            return share_settings.without_letters(found)
        return found
