"""The share groups of one partition: a part of the state that a leader derives from its log.

BOUNDED-GROUPS  There are at most so many (`GROUPS_MAX`): all of them together are in each snapshot,
                which has to fit an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from broker.partition.core.shares.share_partition import SharePartition
from broker.partition.core.shares.share_updates import (
    GONE,
    ShareUpdate,
    decode_updates,
    encode_updates,
)
from client.ids import Offset

GROUPS_MAX: Final = 20
"""With the largest windows there may be, of records whose states alternate, a snapshot of them
takes 1.6 MB, and 3.5 MB if all of them wait for their time."""


class ShareStates:
    """The windows by group id."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, SharePartition] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> SharePartition | None:
        """Return a group's window, None: it has none here."""
        return self._groups.get(group_id)

    @property
    def is_full(self) -> bool:
        """Whether no further group may come."""
        return len(self._groups) >= GROUPS_MAX

    def begin(self, group_id: str, incarnation: UUID, start: Offset) -> ShareUpdate:
        """Let a group begin at an offset, in the place of what there was of its name; return what
        the log has to say of it."""
        known = self._groups.get(group_id)
        is_same = known is not None and known.incarnation == incarnation
        epoch = known.epoch + 1 if known is not None and is_same else 0
        self._groups[group_id] = begun = SharePartition(group_id, incarnation, start, epoch)
        return begun.whole()

    def end(self, group_id: str) -> ShareUpdate:
        """Forget a group that is here; return what the log has to say of it."""
        gone = self._groups.pop(group_id)
        return ShareUpdate(group_id, gone.incarnation, gone.epoch, GONE)

    def apply(self, update: ShareUpdate) -> None:
        """Take over a durable update."""
        if update.start == GONE:
            self._groups.pop(update.group_id, None)
            return
        known = self._groups.get(update.group_id)
        named = update.incarnation, update.epoch
        if known is None or (known.incarnation, known.epoch) != named:
            known = SharePartition(update.group_id, update.incarnation, update.start, update.epoch)
            self._groups[update.group_id] = known
        known.apply(update)

    def encode(self) -> bytes:
        """Return all of it, as a snapshot has it."""
        return encode_updates(one.whole() for one in self)

    def restore(self, data: memoryview) -> None:
        """Do the reverse. Raises LogCorrupt."""
        for update in decode_updates(data):
            self.apply(update)
