"""Remembers which partitions each member of a share group reads from this broker (KIP-932).

    epoch 0    begins a session, in the place of one that the member has
    epoch n    the n-th request of it, ShareFetch or ShareAcknowledge; adds and forgets partitions
    epoch -1   ends it

    SAME-ORDER   A request that does not follow the last is refused: what its member was told is not
                 known then.
    CONNECTED    A session ends with its connection, and its member holds nothing any more. One that
                 was replaced by then takes nothing with it.
    BOUNDED      The numbers of sessions, and of partitions in all of them, are limited. A new one
                 for which there is no room takes the place of one that was silent for long, or is
                 refused, and tried again by its member.

Source: Kafka's ShareSession, SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final
from uuid import UUID

from broker.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from client.ids import ConnectionId

INITIAL: Final = 0
FINAL: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1
SILENT_S: Final = 300.0
"""How long a session is safe from being replaced: for longer than any record is lent."""
SESSION_BYTES_MAX: Final = 4 * 1024
"""Of a session without its partitions, with the longest names."""
PARTITION_BYTES_MAX: Final = 512
"""Of one partition of a session, with what dictionaries reserve."""

Key = tuple[UUID, int]
"""A partition, by its topic's id."""


NOT_ASKED: Final = UUID(int=0)


class ShareSession:
    """One member's. `partitions` are in the order in which they are looked at."""

    __slots__ = (
        "connection",
        "group_id",
        "incarnation",
        "is_over",
        "member_id",
        "next_epoch",
        "on_over",
        "partitions",
        "seen_s",
    )

    def __init__(
        self, group_id: str, member_id: str, connection: ConnectionId, now_s: float
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.incarnation = NOT_ASKED
        """Of the group, once its coordinator has said."""
        self.connection = connection
        self.seen_s = now_s
        self.next_epoch = 1
        self.partitions: dict[Key, None] = {}
        self.is_over = False
        self.on_over: Callable[[], None] | None = None
        """Called when it is over: a request may be waiting."""

    def end(self) -> None:
        """It is over."""
        self.is_over = True
        call, self.on_over = self.on_over, None
        if call is not None:
            call()

    def looked_at(self, key: Key) -> None:
        """Look at a partition last from now on: it has given something."""
        if key in self.partitions:
            del self.partitions[key]
            self.partitions[key] = None


class ShareSessions:
    """All sessions of one broker."""

    def __init__(self, count_max: int, partitions_max: int) -> None:
        self._count_max: Final = count_max
        self._partitions_max: Final = partitions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[ConnectionId, dict[tuple[str, str], None]] = {}
        self.partition_count = 0
        """Of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        group_id: str,
        member_id: str,
        connection: ConnectionId,
        partitions: Iterable[Key],
        now_s: float,
    ) -> ShareSession:
        """Begin a session, in the place of one that the member has. Raises
        ShareSessionLimitReached."""
        key = group_id, member_id
        before = self._sessions.get(key)
        if before is None and len(self._sessions) >= self._count_max:
            self._end_silent(now_s)
        if before is None and len(self._sessions) >= self._count_max:
            raise ShareSessionLimitReached(
                f"this broker has {len(self._sessions)} share sessions"
                " (group_share_max_share_sessions)"
            )
        if before is not None:
            self.end(before)
        session = self._sessions[key] = ShareSession(group_id, member_id, connection, now_s)
        self._by_connection.setdefault(connection, {})[key] = None
        self._add(session, partitions)
        return session

    def next(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        connection: ConnectionId,
        now_s: float,
        partitions: Iterable[Key] = (),
        forgotten: Iterable[Key] = (),
    ) -> ShareSession:
        """Return the session that a request goes on with, or ends.

        Raises ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None or session.connection != connection:
            raise ShareSessionNotFound(f"member {member_id} has no share session here")
        if epoch == FINAL:
            return session
        if epoch != session.next_epoch:
            raise InvalidShareSessionEpoch(
                f"request {epoch} of a share session came instead of {session.next_epoch}"
            )
        session.next_epoch = epoch % _EPOCH_MAX + 1
        session.seen_s = now_s
        for key in forgotten:
            if key in session.partitions:
                del session.partitions[key]
                self.partition_count -= 1
        self._add(session, partitions)
        return session

    def end(self, session: ShareSession) -> None:
        """End a session, if it is not over already."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return
        del self._sessions[key]
        self.partition_count -= len(session.partitions)
        mine = self._by_connection[session.connection]
        mine.pop(key, None)
        if not mine:
            del self._by_connection[session.connection]
        session.end()

    def on_connection_lost(self, connection: ConnectionId) -> list[ShareSession]:
        """A connection is gone: return the sessions that are over with it."""
        keys = list(self._by_connection.get(connection, ()))
        found = [self._sessions[key] for key in keys]
        for session in found:
            self.end(session)
        return found

    def of_group(self, group_id: str) -> list[ShareSession]:
        """Return the sessions of a group."""
        return [one for key, one in self._sessions.items() if key[0] == group_id]

    def _end_silent(self, now_s: float) -> None:
        """End the session that was silent longest, if that is long."""
        silent = min(self._sessions.values(), key=attrgetter("seen_s"))
        if silent.seen_s <= now_s - SILENT_S:
            self.end(silent)

    def _add(self, session: ShareSession, partitions: Iterable[Key]) -> None:
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(partitions))
        self.partition_count += len(session.partitions) - before
        if self.partition_count > self._partitions_max:
            self.end(session)
            raise ShareSessionLimitReached(
                f"the share sessions of this broker have {self._partitions_max} partitions already"
            )

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        assert self.partition_count == sum(len(one.partitions) for one in self._sessions.values())
        assert len(self._sessions) <= self._count_max
        named = {key for mine in self._by_connection.values() for key in mine}
        assert named == self._sessions.keys()
        for key, session in self._sessions.items():
            assert key == (session.group_id, session.member_id)
            assert not session.is_over
