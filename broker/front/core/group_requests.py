"""Limits what JoinGroup and SyncGroup requests hold while they wait for members of their group.

They wait for as long as their group likes, which is minutes, and no answer of ours ends that. If
they counted with all other requests, a few of them could keep everybody else from starting. So they
have a limit of their own; beyond it further ones are refused with an error that clients retry.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.errors import CoordinatorNotAvailable
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.connection import Slot

_APIS: Final = frozenset((ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))


class GroupRequests:
    """The bytes of all of them, decoded."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.size = 0

    def admit(self, api_key: int, slot: Slot) -> None:
        """Hold a request here until it is answered, instead of with the others, if it is of these.

        Raises CoordinatorNotAvailable; nothing was done then.
        """
        if api_key not in _APIS:
            return
        if self.size and self.size + slot.request_size > self._bytes_max:
            raise CoordinatorNotAvailable(
                f"too many requests wait for their groups: {self.size} bytes"
                " (group_requests_bytes_max)"
            )
        size = slot.hand_over()
        self.size += size
        slot.on_gone = partial(self._give, size)

    def _give(self, size: int) -> None:
        self.size -= size
        assert self.size >= 0, "bytes are given back once"
