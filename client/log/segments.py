"""The segment list: which ledgers, in which order, are the log of a partition.

The list lives in one metadata node, as JSON, and changes by compare-and-set only. Leaders change
it; readers of ledgers, Spark among them, only look. Each method that changes it says what the list
becomes; the leader makes it true.

    opened    a takeover: the last segments sealed as recovered, a new one at the end, epoch + 1
    rolled    the leader adds the next ledger; the previous one is still being written
    sealed    the leader has closed the previous ledger; its facts and the next base are known
    trimmed   the oldest segments leave, the log start moves
    condemned the topic was deleted: no leader may open the partition any more

Invariants (`check`): every segment but the last two is sealed; only the last one may have an
unknown base offset, and then exactly the one before it is unsealed too; offsets are gapless.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple

from client.errors import LogCorrupt
from client.ids import LeaderEpoch, LedgerId, Offset
from client.metadata.json_node import INT64_MAX, read_object, whole

FORMAT_VERSION: Final = 1
NO_EPOCH: Final = LeaderEpoch(-1)


class SegmentFacts(NamedTuple):
    """What is known of a segment once nothing can be added to it."""

    last_offset: Offset
    """Base offset - 1 when it holds no record."""
    size_bytes: int
    max_timestamp_ms: int
    """-1: no record has a timestamp."""


class Segment(NamedTuple):
    """One ledger as an offset range of the partition."""

    ledger_id: LedgerId
    base_offset: Offset | None
    """None from its listing by a roll until the previous ledger is closed."""
    leader_epoch: LeaderEpoch
    created_ms: int
    facts: SegmentFacts | None = None
    """None until sealed."""

    @property
    def end_offset(self) -> Offset | None:
        """Offset after its last record; None until sealed."""
        return None if self.facts is None else Offset(self.facts.last_offset + 1)


class SegmentList(NamedTuple):
    """The value of a partition's metadata node."""

    leader_epoch: LeaderEpoch = NO_EPOCH
    """Epoch of the last successful open; -1: never opened."""
    log_start_offset: Offset = Offset(0)
    segments: tuple[Segment, ...] = ()
    deleted: bool = False

    def opened(
        self,
        ledger_id: LedgerId,
        *,
        base_offset: Offset,
        created_ms: int,
        recovered: Mapping[LedgerId, tuple[Offset, SegmentFacts]],
    ) -> SegmentList:
        """Add the new leader's ledger. `recovered`: (base offset, facts) of unsealed segments."""
        epoch = LeaderEpoch(self.leader_epoch + 1)
        before = tuple(
            segment
            if segment.facts is not None
            else segment._replace(
                base_offset=recovered[segment.ledger_id][0], facts=recovered[segment.ledger_id][1]
            )
            for segment in self.segments
        )
        added = Segment(ledger_id, base_offset, epoch, created_ms)
        return self._replace(leader_epoch=epoch, segments=(*before, added)).check()

    def rolled(self, ledger_id: LedgerId, created_ms: int) -> SegmentList:
        """Add the leader's next ledger; where it begins is not known yet."""
        added = Segment(ledger_id, None, self.leader_epoch, created_ms)
        return self._replace(segments=(*self.segments, added)).check()

    def sealed(self, facts: SegmentFacts) -> SegmentList:
        """Seal the last segment but one, which tells where the last one begins."""
        *before, previous, last = self.segments
        assert previous.facts is None
        assert last.base_offset is None
        return self._replace(
            segments=(
                *before,
                previous._replace(facts=facts),
                last._replace(base_offset=Offset(facts.last_offset + 1)),
            )
        ).check()

    def trimmed(self, count: int, log_start_offset: Offset) -> SegmentList:
        """Drop the oldest `count` segments, never the last one, and move the log start."""
        assert 0 <= count < max(1, len(self.segments))
        assert log_start_offset >= self.log_start_offset
        return self._replace(
            log_start_offset=log_start_offset, segments=self.segments[count:]
        ).check()

    def condemned(self) -> SegmentList:
        """Mark the partition as deleted; its ledgers stay listed until they are deleted."""
        return self._replace(deleted=True)

    def has(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger is listed."""
        return any(segment.ledger_id == ledger_id for segment in self.segments)

    def locate(self, offset: Offset) -> int:
        """Return the index of the segment that holds, or would hold, the offset.

        `offset` is at or above the first base offset. Segments without records are never the
        answer unless the offset is the end of the log.
        """
        bases = [item.base_offset for item in self.segments if item.base_offset is not None]
        at = bisect_right(bases, offset) - 1
        assert at >= 0, (offset, bases[:1])
        return at

    def epoch_end(self, epoch: LeaderEpoch, end_offset: Offset) -> tuple[LeaderEpoch, Offset]:
        """Answer OffsetForLeaderEpoch: the largest known epoch up to `epoch`, and its end.

        `end_offset` is the end of the current epoch. (-1, -1): the epoch is not known here.
        """
        if epoch == self.leader_epoch:
            return epoch, end_offset
        if epoch > self.leader_epoch or epoch < 0:
            return NO_EPOCH, Offset(-1)
        known = [item.leader_epoch for item in self.segments if item.leader_epoch <= epoch]
        after = next(item for item in self.segments if item.leader_epoch > epoch)
        assert after.base_offset is not None
        return (known[-1] if known else epoch), after.base_offset

    def check(self) -> SegmentList:
        """Assert the invariants and return self."""
        count = len(self.segments)
        expected: Offset | None = None
        for index, segment in enumerate(self.segments):
            last = index == count - 1
            assert segment.facts is not None or index >= count - 2, self
            assert segment.base_offset is not None or (last and count > 1), self
            assert segment.leader_epoch <= self.leader_epoch, self
            if index:
                assert segment.base_offset == expected, self
                assert self.segments[index - 1].leader_epoch <= segment.leader_epoch, self
            expected = segment.end_offset
        ids = [segment.ledger_id for segment in self.segments]
        assert len(ids) == len({*ids}), self
        return self

    def encode(self) -> bytes:
        """Return the JSON of the metadata node."""
        value: dict[str, object] = {
            "version": FORMAT_VERSION,
            "leader_epoch": self.leader_epoch,
            "log_start_offset": self.log_start_offset,
            "segments": [_segment_to_json(segment) for segment in self.segments],
        }
        if self.deleted:
            value["deleted"] = True
        return json.dumps(value, separators=(",", ":")).encode()


def decode_segments(data: bytes) -> SegmentList:
    """Parse the JSON of a metadata node; no bytes at all are the empty list. Raises LogCorrupt."""
    if not data:
        return SegmentList()
    try:
        value = read_object(data)
        if value["version"] != FORMAT_VERSION:
            raise LogCorrupt(
                f"segment list of version {value['version']}, only {FORMAT_VERSION} is known"
            )
        found = SegmentList(
            LeaderEpoch(whole(value, "leader_epoch", NO_EPOCH)),
            Offset(whole(value, "log_start_offset")),
            tuple(_segment_from_json(item) for item in value["segments"]),
            value.get("deleted", False),
        )
        return found.check()
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise LogCorrupt(f"segment list is damaged: {data[:200]!r}") from error


def _segment_to_json(segment: Segment) -> dict[str, int | None]:
    value: dict[str, int | None] = {
        "ledger": segment.ledger_id,
        "base_offset": segment.base_offset,
        "leader_epoch": segment.leader_epoch,
        "created_ms": segment.created_ms,
    }
    if segment.facts is not None:
        value["last_offset"] = segment.facts.last_offset
        value["bytes"] = segment.facts.size_bytes
        value["max_timestamp_ms"] = segment.facts.max_timestamp_ms
    return value


def _segment_from_json(value: dict[str, int]) -> Segment:
    facts = None
    if "last_offset" in value:
        facts = SegmentFacts(
            Offset(whole(value, "last_offset", -1)),
            whole(value, "bytes"),
            whole(value, "max_timestamp_ms", -INT64_MAX - 1),
        )
    return Segment(
        LedgerId(whole(value, "ledger")),
        Offset(whole(value, "base_offset")) if value["base_offset"] is not None else None,
        LeaderEpoch(whole(value, "leader_epoch")),
        whole(value, "created_ms"),
        facts,
    )
