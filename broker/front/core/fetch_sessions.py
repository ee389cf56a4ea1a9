"""Remembers what each consumer fetches, so that requests and answers name only what changed.

A *session* is the list of partitions of one consumer, with what it was last told of each. An
incremental request names partitions that are new to it, asked for otherwise, or to be forgotten; an
answer has those that have data, an error, or other watermarks than the consumer knows.

    SAME-ORDER   Requests of a session are numbered. One that does not follow the last is refused:
                 what its consumer was told is not known then.
    CHANGED      What an answer leaves out is what the consumer was told before, word for word.
    FAIR         A partition that gave data goes to the end, so that the limits of an answer do not
                 always cut off the same ones.
    BOUNDED      The numbers of sessions, and of partitions in all of them, are limited. A new
                 one for which there is no room replaces those that were silent for long, or is
                 declined: its consumer goes on without. One that grows beyond it ends. So it is
                 with names that no topic can have, which would be kept however long they are.

A consumer that is refused, or whose session is gone, begins anew with a full request. Source:
KIP-227, Kafka's FetchSession.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from broker.errors import FetchSessionNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from broker.topics.core.topic_rules import NAME_CHARS_MAX
from client.wire.kafka.fetch import NO_REPLICA, PartitionData, PartitionFetch
from client.wire.kafka.produce import Topic
from client.wire.steps import ItemCount, Steps

FULL: Final = 0
"""Session epoch of a request that names everything, and wants a session."""
NO_SESSION: Final = -1
"""Session epoch of a request that names everything, and wants none; it ends the one it names."""
EPOCH_MAX: Final = (1 << 31) - 1
PARTITION_BYTES_MAX: Final = 1024
"""Of one partition of a session, when each has another topic with the longest name there may be:
measured, with what dictionaries reserve."""
SILENT_S: Final = 120.0
"""How long a session is safe from being replaced after its last request."""

Key = tuple[Topic, int]
"""A partition, with its topic as the session names topics."""


class Asked(NamedTuple):
    """One partition that an answer is made for."""

    topic: Topic
    fetch: PartitionFetch


class Told(NamedTuple):
    """What a consumer knows of a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


_NOTHING: Final = Told(-1, -1, -1)


class _Session:
    __slots__ = ("asked", "by_id", "next_epoch", "seen_s", "told")

    def __init__(self, by_id: bool, now_s: float) -> None:
        self.by_id = by_id
        """Whether it names topics by their ids."""
        self.next_epoch = 1
        self.seen_s = now_s
        self.asked: dict[Key, Asked] = {}
        self.told: dict[Key, Told] = {}


class FetchTurn(NamedTuple):
    """What one request asks for, and what is remembered of it."""

    asked: Sequence[Asked]
    session_id: int = 0
    """Of the session that it goes on with; 0: none."""
    wants_session: bool = False
    by_id: bool = False

    @property
    def is_incremental(self) -> bool:
        """Whether the answer may leave partitions out."""
        return bool(self.session_id)


class FetchSessions:
    """All sessions of one broker."""

    def __init__(self, count_max: int, partitions_max: int, new_id: Callable[[], int]) -> None:
        """`new_id`: returns a random session id, not 0."""
        self._count_max: Final = count_max
        self._partitions_max: Final = partitions_max
        self._new_id: Final = new_id
        self._sessions: dict[int, _Session] = {}
        """By id, those that were silent longest first."""
        self.partition_count = 0
        """Of all sessions together."""
        self.evicted_count = 0
        """Sessions that were replaced by others, ever."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        asked: Sequence[Asked],
        forgotten: Iterable[Key],
        *,
        by_id: bool,
        now_s: float,
    ) -> FetchTurn:
        """Take a request. `asked`: each partition once.

        Raises FetchSessionNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError.
        """
        if epoch in (FULL, NO_SESSION):
            self._end(session_id)
            return FetchTurn(asked, 0, epoch == FULL, by_id)
        session = self._sessions.pop(session_id, None)
        if session is None:
            raise FetchSessionNotFound(f"there is no fetch session {session_id}")
        self._sessions[session_id] = session
        if epoch != session.next_epoch:
            raise InvalidFetchSessionEpoch(
                f"request {epoch} of fetch session {session_id} came instead of"
                f" {session.next_epoch}"
            )
        if by_id != session.by_id:
            raise FetchSessionTopicIdError(
                f"fetch session {session_id} names topics {'by id' if session.by_id else 'by name'}"
            )
        if not all(map(_may_be_kept, asked)):
            self._end(session_id)
            raise FetchSessionNotFound(f"fetch session {session_id} asks for what is no topic")
        session.next_epoch = epoch % EPOCH_MAX + 1
        session.seen_s = now_s
        before = len(session.asked)
        for one in asked:
            session.asked[one.topic, one.fetch.partition] = one
        for key in forgotten:
            session.asked.pop(key, None)
            session.told.pop(key, None)
        self.partition_count += len(session.asked) - before
        if self.partition_count > self._partitions_max:
            self._end(session_id)
            raise FetchSessionNotFound(f"fetch session {session_id} has grown too large")
        return FetchTurn(list(session.asked.values()), session_id, False, by_id)

    def finish(
        self, turn: FetchTurn, found: Sequence[PartitionData], now_s: float
    ) -> Steps[tuple[int, Sequence[tuple[Topic, PartitionData]]]]:
        """Return (session id, what the answer has), in steps; remember what the consumer is told.

        `found`: one for each partition of the turn, in its order.
        """
        everything = [(one.topic, data) for one, data in zip(turn.asked, found, strict=True)]
        if not turn.is_incremental:
            if not (
                turn.wants_session
                and all(map(_may_be_kept, turn.asked))
                and self._make_room(len(turn.asked), now_s)
            ):
                return 0, everything
            session_id = self._open(turn, now_s)
        else:
            session_id = turn.session_id
        session = self._sessions.get(session_id)
        if session is None:  # replaced meanwhile: the consumer hears of it with its next request
            return session_id, everything
        changed: list[tuple[Topic, PartitionData]] = []
        items = ItemCount()
        for one, data in zip(turn.asked, found, strict=True):
            if items.is_step_over():
                yield
            key = (one.topic, one.fetch.partition)
            told = Told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
            is_news = (
                data.size
                or data.error_code
                or data.replica != NO_REPLICA
                or told != session.told.get(key, _NOTHING)
            )
            if key in session.asked:
                # After an error the next answer has the partition in any case.
                session.told[key] = _NOTHING if data.error_code else told
                if data.size:
                    session.asked[key] = session.asked.pop(key)
            if is_news or not turn.is_incremental:
                changed.append((one.topic, data))
        return session_id, changed

    def check(self) -> None:
        """Assert the invariants; tests call this after every input."""
        assert self.partition_count == sum(len(one.asked) for one in self._sessions.values())
        assert len(self._sessions) <= self._count_max
        for session in self._sessions.values():
            assert session.told.keys() <= session.asked.keys()

    def _open(self, turn: FetchTurn, now_s: float) -> int:
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = _Session(turn.by_id, now_s)
        session.asked = {(one.topic, one.fetch.partition): one for one in turn.asked}
        self.partition_count += len(session.asked)
        return session_id

    def _make_room(self, count: int, now_s: float) -> bool:
        """Replace silent sessions until one of `count` partitions fits; False: it does not."""
        if not count or count > self._partitions_max:
            return False
        while (
            len(self._sessions) >= self._count_max
            or self.partition_count + count > self._partitions_max
        ):
            oldest = next(iter(self._sessions), None)
            if oldest is None or self._sessions[oldest].seen_s > now_s - SILENT_S:
                return False
            self._end(oldest)
            self.evicted_count += 1
        return True

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.asked)


def _may_be_kept(one: Asked) -> bool:
    """Say whether a topic is an id, or a name that a topic can have by its length."""
    topic = one.topic
    return not isinstance(topic, str) or (len(topic) <= NAME_CHARS_MAX and topic.isascii())
