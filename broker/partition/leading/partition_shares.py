"""The share groups of a led partition: their changes in its log, locks that pass, who waits for
records.

`core/shares` makes the decisions; this is the shell around it, as `partition.py` is around
`core/leader.py`. A group's window is there from the first time that a member asks for records.
Where it begins is durable before any record is lent (BEGUN-FIRST), so that a group that begins at
the end misses nothing when the partition is taken over right after.

A change needs an entry of the ledger. Without a ledger (READ-ONLY) nothing is lent or settled; what
comes back all the same (a lock has passed, a member is gone) does so in memory: a takeover finds
the record lent to nobody, too.

Records whose time has come are free by the loop's time, but their time is one of the wall clock,
which a next leader has, too: it is looked at again every minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from broker.errors import Overloaded
from broker.partition.core.append_queue import Append
from broker.partition.core.leader import PartitionLeader
from broker.partition.core.leader_effects import Effects, State
from broker.partition.core.shares.key_order import NO_KEYS
from broker.partition.core.shares.share_partition import (
    Acknowledgement,
    Acquired,
    Extent,
    SharePartition,
    ShareTerms,
)
from broker.partition.core.shares.share_states import ShareStates
from broker.partition.core.shares.share_updates import RecordState, ShareUpdate, StoredRange
from client.ids import Clock, Offset

_CLOCK_S: Final = 60.0
"""How long the wall clock is not looked at."""


class ArchivingNews:
    """Tells whoever writes dead letters which partitions have records that wait for them."""

    __slots__ = ("tell",)

    def __init__(self) -> None:
        self.tell: Callable[[str, int], None] = lambda _topic, _index: None
        """Called with a topic and the index of a partition."""


class PartitionShares:
    """The share groups of one partition under one leader."""

    def __init__(
        self,
        leader: PartitionLeader,
        run: Callable[[Effects], None],
        clock: Clock,
        tell_archiving: Callable[[], None],
    ) -> None:
        """`run` carries out effects. `tell_archiving`: records wait for their dead letters."""
        self._leader = leader
        self._run = run
        self._clock = clock
        self._tell_archiving = tell_archiving
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[str, Append] = {}
        """Of groups whose beginning is not durable yet."""
        self._newest: Append | None = None
        """The last change: when it is durable, all are."""
        self._terms: dict[str, ShareTerms] = {}
        """What each group was last lent records by."""
        self._waiting: dict[int, tuple[str, Callable[[], None]]] = {}
        self._last_wait = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        """When it is due."""

    @property
    def states(self) -> ShareStates:
        """The windows, to be read."""
        return self._leader.log.fold.own_shares()

    # --- groups -------------------------------------------------------------------------

    def find(self, group_id: str, incarnation: UUID) -> SharePartition | None:
        """Return the window of a group, None: it has none, or one that is not durable yet."""
        known = self.states.get(group_id)
        if known is None or known.incarnation != incarnation or group_id in self._beginning:
            return None
        return known

    async def begin(
        self, group_id: str, incarnation: UUID, start: Callable[[], Offset]
    ) -> SharePartition:
        """Return the window of a group, made if there is none; its beginning is durable.

        `start`: where a new one begins. Raises NotLeader, NotEnoughReplicas; Overloaded (too many
        groups); LeadershipLost.
        """
        while True:
            known = self.find(group_id, incarnation)
            if known is not None:
                return known
            begun = self._beginning.get(group_id)
            if begun is None:
                self._begin(group_id, incarnation, start())
            else:
                await settled(begun)

    def _begin(self, group_id: str, incarnation: UUID, start: Offset) -> None:
        self._leader.check_writable()
        states = self.states
        if states.is_full and states.get(group_id) is None:
            raise Overloaded(f"{len(states)} share groups read this partition already")
        update = states.begin(group_id, incarnation, start)
        self._beginning[group_id] = begun = self._write(update)
        begun.on_done(lambda _: self._on_begun(group_id, begun))

    def _on_begun(self, group_id: str, begun: Append) -> None:
        if self._beginning.get(group_id) is begun:
            del self._beginning[group_id]

    def end(self, group_id: str) -> Append | None:
        """Forget a group; return what completes when that is durable, None: it is not here.

        Raises NotLeader, NotEnoughReplicas.
        """
        self._leader.check_writable()
        if self.states.get(group_id) is None:
            return None
        return self._write(self.states.end(group_id))

    def restart(self, group_id: str, incarnation: UUID, start: Offset) -> Append:
        """Let a group begin elsewhere, with nothing lent or settled; return what completes when
        that is durable. Raises NotLeader, NotEnoughReplicas, Overloaded."""
        self._begin(group_id, incarnation, start)
        return self._beginning[group_id]

    # --- records ------------------------------------------------------------------------

    def wanted(self, share: SharePartition, terms: ShareTerms) -> Offset | None:
        """Return the offset to read from for whoever asks next, None: nothing is free."""
        share.trim(self._leader.log.offsets.log_start)
        self._free_due(share)
        return None if self._leader.is_read_only else share.wanted(terms)

    def acquire(
        self,
        share: SharePartition,
        extents: Sequence[Extent],
        member_id: str,
        terms: ShareTerms,
        *,
        read_from: Offset,
        count_max: int,
        is_strict: bool,
        keys: Mapping[int, int] = NO_KEYS,
    ) -> list[Acquired]:
        """Lend records to a member: as `SharePartition.acquire`. Raises NotLeader,
        NotEnoughReplicas."""
        self._leader.check_writable()
        now_s = self._loop.time()
        self._terms[share.group_id] = terms
        found = share.acquire(
            extents,
            member_id,
            now_s,
            terms,
            read_from=read_from,
            count_max=count_max,
            is_strict=is_strict,
            keys=keys,
        )
        if found:
            self._wake_by(now_s + terms.lock_s)
        return found

    def acknowledge(
        self,
        share: SharePartition,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        terms: ShareTerms,
    ) -> Append | None:
        """Settle, release or renew; return what completes when that is durable, None: nothing is
        to be.

        What lies before the window's start is settled, but perhaps not durably so: whoever names it
        waits as whoever has settled it (ANSWER-LATE).

        Raises InvalidRequest, InvalidRecordState, NotLeader, NotEnoughReplicas: nothing was changed
        then.
        """
        self._leader.check_writable()
        share.trim(self._leader.log.offsets.log_start)
        now_s, now_ms = self._loop.time(), self._clock.now_ms()
        update = share.acknowledge(member_id, acknowledgements, now_s, terms, now_ms)
        if update is None:
            is_past = any(one.first < share.start for one in acknowledgements)
            return self._newest if is_past else None
        written = self._write(update)
        self._tell(share.group_id)  # the window may have moved
        return written

    def archive(self, share: SharePartition, ranges: Sequence[StoredRange]) -> Append | None:
        """The dead letters of records are durable; return what completes when their end is, too,
        None: none of them waits. Raises NotLeader, NotEnoughReplicas."""
        self._leader.check_writable()
        update = share.archived(ranges)
        if update is None:
            return None
        written = self._write(update)
        self._tell(share.group_id)
        return written

    def release(self, group_id: str, member_id: str) -> None:
        """Take back what a member holds."""
        share = self.states.get(group_id)
        if share is not None and self._leader.state is State.OPEN:
            self._take_back(share.release_member(member_id, self._terms_of(group_id)))

    def _take_back(self, update: ShareUpdate | None) -> None:
        if update is None:
            return
        if self._leader.is_read_only:
            free = [one for one in update.ranges if one.state is RecordState.AVAILABLE]
            self._on_durable(update._replace(ranges=free))  # what is dying is not ARCHIVING yet
        else:
            self._write(update)
            self._tell(update.group_id)

    def _terms_of(self, group_id: str) -> ShareTerms:
        return self._terms.get(group_id, ShareTerms())

    # --- the log ------------------------------------------------------------------------

    def _write(self, update: ShareUpdate) -> Append:
        log = self._leader.log
        written = log.change_share(update)
        self._newest = written
        written.on_done(lambda done: self._on_done(update, done))
        self._run(log.outgoing())
        return written

    def _on_done(self, update: ShareUpdate, written: Append) -> None:
        if written.error is None:
            self._on_durable(update)

    def _on_durable(self, update: ShareUpdate) -> None:
        share = self.states.get(update.group_id)
        if share is None or (share.incarnation, share.epoch) != (
            update.incarnation,
            update.epoch,
        ):
            return  # it has begun anew since
        if share.on_durable(update):
            self._tell(update.group_id)
        if update.waits:
            self._free_due(share)
        if any(one.state is RecordState.ARCHIVING for one in update.ranges):
            self._tell_archiving()

    # --- who waits ----------------------------------------------------------------------

    def on_news(self, group_id: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call when records of a group are free again, or its window has moved, or the leadership
        has ended; return what cancels that."""
        self._last_wait += 1
        number = self._last_wait
        self._waiting[number] = group_id, call
        return lambda: self._waiting.pop(number, None) and None

    def _tell(self, group_id: str) -> None:
        for waiting, call in list(self._waiting.values()):
            if waiting == group_id:
                self._loop.call_soon(call)

    # --- time ---------------------------------------------------------------------------

    def _free_due(self, share: SharePartition) -> None:
        """Free the records whose time has come, and wake when that of others will have."""
        next_ms = share.next_free_ms()
        if next_ms is None:
            return
        now_ms = self._clock.now_ms()
        if next_ms <= now_ms and share.free_due(now_ms):
            self._tell(share.group_id)
            next_ms = share.next_free_ms()
        if next_ms is not None:
            self._wake_by(self._loop.time() + min((next_ms - now_ms) / 1000, _CLOCK_S))

    def _wake_by(self, at_s: float) -> None:
        if self._timer is not None:
            if self._timer_s <= at_s:
                return
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._leader.state is not State.OPEN:
            return
        now_s, now_ms = self._loop.time(), self._clock.now_ms()
        for share in self.states:
            self._take_back(share.expire(now_s, self._terms_of(share.group_id), now_ms))
            self._free_due(share)
        locks = (share.next_lock_s() for share in self.states)
        next_s = min((one for one in locks if one is not None), default=None)
        if next_s is not None:
            self._wake_by(next_s)

    # --- the end ------------------------------------------------------------------------

    def stop(self) -> None:
        """The leadership has ended: whoever waits finds that out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for _, call in waiting.values():
            self._loop.call_soon(call)


async def settled(append: Append) -> None:
    """Wait until a change is durable. Raises its error."""
    if not append.completed:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        append.on_done(lambda _: None if done.done() else done.set_result(None))
        await done
    if append.error is not None:
        raise append.error
