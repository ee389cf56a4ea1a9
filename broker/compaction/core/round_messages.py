"""What a round of compaction asks of whoever does its work, and what it is answered.

A round reads ledgers and writes ledgers; between both is `round_work.py`, which needs neither, so
it may run in this process or in another one. It is asked, in this order: BeginRound; EnterKeys for
what is dirty, until the map is full; then for each group BeginGroup, CleanRun for all of it, and
EndGroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from client.ids import LeaderEpoch, LedgerId, Offset
from client.log.aborted_transactions import AbortedTransaction
from client.log.segment import SegmentFacts
from client.wire.kafka.batches.records import Buffer


class BeginRound(NamedTuple):
    """What does not change during a round."""

    slots: int
    """Of the key map."""
    secret: bytes
    first_dirty: Offset
    end: Offset
    now_ms: int
    retain_ms: int
    segment_bytes: int
    block_entries: int
    """Aborted transactions of a block."""


class Source(NamedTuple):
    """A segment that is read."""

    ledger_id: LedgerId
    base_offset: Offset
    end_offset: Offset
    cleaned: bool


class Run(NamedTuple):
    """Some entries of a segment, in order."""

    source: Source
    is_first: bool
    is_last: bool
    payloads: Sequence[Buffer]
    aborted: Sequence[AbortedTransaction]
    """All that is aborted in their range of offsets, by marker."""


class EnterKeys(NamedTuple):
    """Note the keys of these."""

    run: Run


class BeginGroup(NamedTuple):
    """New segments begin."""

    base_offset: Offset
    end_offset: Offset
    leader_epoch: LeaderEpoch
    stable_offset: Offset
    """Everything before it is decided by what the log holds up to the group's end."""


class CleanRun(NamedTuple):
    """Write what stays of these."""

    run: Run


class EndGroup(NamedTuple):
    """All of the group was given."""


Request = BeginRound | EnterKeys | BeginGroup | CleanRun | EndGroup


class Begun(NamedTuple):
    """A new ledger begins with what follows."""

    base_offset: Offset


class Written(NamedTuple):
    """The next entry of the ledger, in parts."""

    payload: Sequence[Buffer]


class Ended(NamedTuple):
    """The ledger is complete. Where its facts name a ledger, it is itself (OWN_LEDGER)."""

    facts: SegmentFacts


Output = Begun | Written | Ended


class WorkDone(NamedTuple):
    """The answer to each request."""

    outputs: Sequence[Output] = ()
    end: Offset = Offset(0)
    """Where the round ends, as far as is known."""
    is_full: bool = False
    """No more keys are entered."""
    is_changed: bool = False
    """Whether the group loses something."""
    removed_records: int = 0
    """Of the round so far."""
    horizon_ms: int = -1
    """When the first tombstone, or marker, may go that stays; -1: there is none."""
