"""The two waits of a rebalance: for members to join, and then for their syncs.

The first rebalance of a group waits in pieces, because members of a new group come one after
another: a piece in which somebody joined is followed by another one, up to the rebalance timeout
(KIP-134).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class JoinWindow:
    """Until when a rebalance waits for members to join."""

    __slots__ = ("_joined_late", "_left_ms", "deadline_s")

    def __init__(self) -> None:
        self.deadline_s: float | None = None
        """None: no rebalance waits."""
        self._left_ms: int | None = None
        """Of the first rebalance: for how long it may wait beyond the deadline."""
        self._joined_late = False
        """Whether somebody joined during this piece of it."""

    @property
    def is_first(self) -> bool:
        """Whether this is a group's first rebalance, which never completes early."""
        return self._left_ms is not None

    def open(self, now_s: float, timeout_ms: int) -> float:
        """Wait for members to join again; return until when."""
        self._left_ms = None
        self.deadline_s = now_s + timeout_ms / 1000
        return self.deadline_s

    def open_first(self, now_s: float, timeout_ms: int, delay_ms: int) -> float:
        """Wait for the members of a new group, in pieces of `delay_ms`; return until when."""
        self.open(now_s, delay_ms)
        self._left_ms = max(timeout_ms - delay_ms, 0)
        self._joined_late = False
        return now_s + delay_ms / 1000

    def on_joined(self) -> None:
        """A new member joined."""
        self._joined_late = True

    def extend(self, now_s: float, delay_ms: int) -> float | None:
        """The deadline has come: return until when to go on waiting; None: not any longer."""
        if not self._left_ms or not self._joined_late:
            return None
        piece_ms = min(delay_ms, self._left_ms)
        self._left_ms -= piece_ms
        self._joined_late = False
        self.deadline_s = now_s + piece_ms / 1000
        return self.deadline_s

    def close(self) -> None:
        """Nobody is waited for any more."""
        self.deadline_s = self._left_ms = None


class AwaitedSyncs:
    """Members of a new generation that owe us a SyncGroup, in order."""

    __slots__ = ("_deadline_s", "_members")

    def __init__(self) -> None:
        self._members: dict[str, None] = {}
        self._deadline_s = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._members))

    @property
    def deadline_s(self) -> float | None:
        """Until when they are waited for; None: nobody is."""
        return self._deadline_s if self._members else None

    def expect(self, member_ids: Iterable[str], deadline_s: float) -> None:
        """Wait for these."""
        self._members = dict.fromkeys(member_ids)
        self._deadline_s = deadline_s

    def drop(self, member_id: str) -> None:
        """Wait for this one no longer: it has come, or is gone."""
        self._members.pop(member_id, None)

    def rename(self, old_id: str, new_id: str) -> None:
        """A member that may be waited for has a new id."""
        if old_id in self._members:
            del self._members[old_id]
            self._members[new_id] = None

    def clear(self) -> None:
        """Wait for nobody any longer."""
        self._members.clear()
