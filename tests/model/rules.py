"""The transition rules of the log, as small state machines that accept or reject a trace.

An implementation's run is a sequence of abstract events. Each method below is one event: it
checks that the event is allowed in the state that the events before it have led to, and makes
the step. A step that no rule allows raises `Rejected` with the rule's number. The rules know
nothing of sockets, files, clocks or of the implementation; the simulator feeds every schedule
through them, and the TLA+ specifications of this folder state the same rules for all schedules.

One ledger (E bookies, write quorum Qw, ack quorum Qa; bookies that crash and forget)

    K1  an add is answered "stored" only when the entry is durable on that bookie
    K2  an ordinary add that came after the bookie answered a fence is not answered "stored"
    K3  an entry is acknowledged when the one before it is, and when Qa distinct members of its
        write set, in the ensemble that metadata names, have answered
    K4  while the ledger is open, the last fragment changes only behind what is acknowledged
    K5  metadata goes open -> in recovery -> closed; the end of a closed ledger never moves
    K6  a bookie denies no entry that it answered "stored" before it was asked, unless its disk was
        lost
    K7  recovery closes at an end whose next entry Qw - Qa + 1 members of the write set denied to
        one and the same recoverer; a writer closes at an end up to which all could be acknowledged
    K8  recovery closes after so many members answered a fence that no ack quorum is unfenced
    K9  nothing that was acknowledged lies behind the end of a closed ledger

A chain of ledgers (rolling with two open ledgers, recovery of the last two)

    G1  the list gains at most one ledger, at its end, never seen before, and loses a prefix
    G2  a roll keeps the epoch and is listed when all listed ledgers but the last are closed
    G3  a takeover raises the epoch by one and is listed when all listed ledgers are closed, with a
        ledger of its own or without one
    G4  entries are sent to listed ledgers only
    G5  entries are sent to a ledger when each older one is closed, or has confirmed all it was sent
    G6  a listed ledger is not deleted
    G7  a swap keeps the epoch, and puts closed ledgers, never seen before, in the place of adjacent
        ones, none of them one of the last two

Takeover with duplicate detection (batches are records of a producer with sequence numbers)

    D1  a batch begins at the offset where the log that its leader inherited and wrote ends
    D2  a batch of a producer continues that producer's sequence in that same log, entries that
        recovery found and nobody acknowledged included; but for a leader that was taken over and
        has not heard: a producer that it does not know may have begun at its successor's
"""

from __future__ import annotations

from typing import NamedTuple

OPEN, IN_RECOVERY, CLOSED = 0, 1, 2


class Rejected(Exception):
    """An event that the rules do not allow."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Metadata(NamedTuple):
    """What the metadata store says of a ledger."""

    state: int
    last_entry: int
    fragments: tuple[tuple[int, tuple[str, ...]], ...]
    """(first entry, ensemble) of each."""


class Ledger:
    """One ledger: rules K1 to K9."""

    def __init__(self, write_quorum: int, ack_quorum: int, metadata: Metadata) -> None:
        self._write_quorum = write_quorum
        self._ack_quorum = ack_quorum
        self._metadata = metadata
        self._frozen = metadata.fragments[-1][1]
        """Members of the last fragment when recovery began, and its first entry."""
        self._frozen_from = metadata.fragments[-1][0]
        self.acked = -1
        self._admitted: set[tuple[str, int]] = set()
        """(bookie, entry) of ordinary adds that came before a fence."""
        self._stored: dict[int, set[str]] = {}
        """Who answered an add, by entry."""
        self._lost: set[str] = set()
        """Bookies whose disk was lost: they owe nothing any more."""
        self._fenced: set[str] = set()
        self._had: dict[tuple[str, int, str], bool] = {}
        """(bookie, entry, recoverer) -> whether it had answered "stored" when it was asked."""
        self._denied: dict[tuple[str, int], set[str]] = {}
        """(recoverer, entry) -> who denied it."""

    def write_set(self, entry: int, ensemble: tuple[str, ...]) -> list[str]:
        """Return the bookies of an ensemble that an entry belongs on."""
        size = len(ensemble)
        return [ensemble[(entry + place) % size] for place in range(self._write_quorum)]

    def _ensemble_of(self, entry: int) -> tuple[str, ...]:
        found = self._metadata.fragments[0][1]
        for first, ensemble in self._metadata.fragments:
            if first <= entry:
                found = ensemble
        return found

    # --- bookies

    def add_arrived(self, bookie: str, entry: int) -> None:
        """An ordinary add reached a bookie."""
        if bookie not in self._fenced:
            self._admitted.add((bookie, entry))

    def add_answered(self, bookie: str, entry: int, *, recovery: bool, durable: bool) -> None:
        """A bookie answered an add: stored."""
        if not durable:
            raise Rejected("K1", f"{bookie} answers {entry}, which is not durable")
        if not recovery and (bookie, entry) not in self._admitted:
            raise Rejected("K2", f"{bookie} takes {entry} after it answered a fence")
        self._stored.setdefault(entry, set()).add(bookie)

    def fence_answered(self, bookie: str) -> None:
        """A bookie answered a fence."""
        self._fenced.add(bookie)

    def asked(self, bookie: str, entry: int, by: str) -> None:
        """A recoverer's question for an entry reached a bookie."""
        self._had[bookie, entry, by] = bookie in self._stored.get(entry, ())

    def denied(self, bookie: str, entry: int, to: str) -> None:
        """A bookie told a recoverer that it has not got an entry."""
        had = self._had.pop((bookie, entry, to), bookie in self._stored.get(entry, ()))
        if had and bookie not in self._lost:
            raise Rejected("K6", f"{bookie} denies {entry}")
        self._denied.setdefault((to, entry), set()).add(bookie)

    def disk_lost(self, bookie: str) -> None:
        """A bookie lost its disk, and with it what it promised."""
        self._lost.add(bookie)

    # --- writer and metadata

    def acknowledged(self, entry: int) -> None:
        """The writer reported an entry as stored."""
        if entry != self.acked + 1:
            raise Rejected("K3", f"{entry} is acknowledged after {self.acked}")
        if not self._has_quorum(entry):
            holders = sorted(self._stored.get(entry, ()))
            raise Rejected("K3", f"{entry} is acknowledged, stored on {holders}")
        if self._metadata.state == CLOSED and entry > self._metadata.last_entry:
            raise Rejected("K9", f"{entry} is acknowledged, closed at {self._metadata.last_entry}")
        self.acked = entry

    def changed(self, new: Metadata) -> None:
        """The metadata was set."""
        old, self._metadata = self._metadata, new
        if new.state < old.state:
            raise Rejected("K5", f"state {old.state} becomes {new.state}")
        if old.state == CLOSED and new.last_entry != old.last_entry:
            raise Rejected("K5", f"the end moves from {old.last_entry} to {new.last_entry}")
        first = new.fragments[-1][0]
        is_replaced = new.fragments[-1] != old.fragments[-1]
        if new.state == OPEN and is_replaced and first <= self.acked:
            raise Rejected("K4", f"a fragment begins at {first}, acknowledged is {self.acked}")
        if old.state == OPEN:
            self._frozen_from, self._frozen = old.fragments[-1]
        if new.state == CLOSED and old.state != CLOSED:
            self._closed(new.last_entry, recovered=old.state == IN_RECOVERY)

    def _closed(self, last: int, *, recovered: bool) -> None:
        if last < self.acked:
            raise Rejected("K9", f"closed at {last}, {self.acked} was acknowledged")
        if all(self._has_quorum(entry) for entry in range(self.acked + 1, last + 1)) and (
            not recovered or last >= 0
        ):
            return
        members = self.write_set(last + 1, self._frozen)
        needed = self._write_quorum - self._ack_quorum + 1
        if not any(
            entry == last + 1 and sum(member in by for member in members) >= needed
            for (_, entry), by in self._denied.items()
        ):
            raise Rejected("K7", f"closed at {last}, {needed} of {members} did not deny the next")
        if not self._is_fenced():
            raise Rejected("K8", f"closed at {last}, fenced are {sorted(self._fenced)}")

    def _has_quorum(self, entry: int) -> bool:
        """Whether Qa members of the entry's write set answered, in the ensemble of its writer."""
        holders = self._stored.get(entry, ())
        if self._metadata.state == CLOSED and entry >= self._frozen_from:
            ensemble = self._frozen
        else:
            ensemble = self._ensemble_of(entry)
        members = self.write_set(entry, ensemble)
        return sum(member in holders for member in members) >= self._ack_quorum

    def _is_fenced(self) -> bool:
        ensemble = self._frozen
        return all(
            sum(member not in self._fenced for member in self.write_set(first, ensemble))
            < self._ack_quorum
            for first in range(len(ensemble))
        )

    @property
    def end(self) -> int | None:
        """Last entry once closed."""
        return self._metadata.last_entry if self._metadata.state == CLOSED else None


class Batch(NamedTuple):
    """Records of one producer in one entry."""

    base_offset: int
    record_count: int
    producer: tuple[int, int] | None
    """(producer id, epoch); None: not idempotent."""
    sequence: int


class _Segment:
    """What was sent to one listed ledger, on top of what its leader inherited."""

    def __init__(self, end_offset: int, sequences: dict[tuple[int, int], int]) -> None:
        self.start = (end_offset, dict(sequences))
        self.end_offset = end_offset
        self.sequences = dict(sequences)
        self.entries: list[list[Batch]] = []

    def cut(self, last: int) -> tuple[int, dict[tuple[int, int], int]]:
        """Return (end offset, next sequences) after the entries up to `last`."""
        end_offset, sequences = self.start
        sequences = dict(sequences)
        for batches in self.entries[: last + 1]:
            for batch in batches:
                end_offset = batch.base_offset + batch.record_count
                if batch.producer is not None:
                    sequences[batch.producer] = batch.sequence + batch.record_count
        return end_offset, sequences


class Chain:
    """One partition's list of ledgers and its log: rules G1 to G7, D1 and D2."""

    def __init__(self, ledgers: dict[int, Ledger]) -> None:
        """`ledgers`: all of the cluster, by id."""
        self._ledgers = ledgers
        self._epoch = -1
        self._listed: list[int] = []
        self._ever: list[int] = []
        """Those that leaders wrote the log into."""
        self._rewritten: set[int] = set()
        """Those that took the place of others."""
        self._segments: dict[int, _Segment] = {}
        self._epochs: dict[int, int] = {}
        """In which epoch each was listed."""

    def listed(self, epoch: int, ids: list[int]) -> None:
        """The list was set."""
        added = [one for one in ids if one not in self._listed]
        kept = [one for one in ids if one in self._listed]
        dropped = len(self._listed) - len(kept)
        fits = ids == kept + added and self._listed[dropped:] == kept
        seen = self._rewritten.union(self._ever)
        if not fits or len(added) > 1 or seen.intersection(added):
            raise Rejected("G1", f"{self._listed} becomes {ids}")
        if added or epoch != self._epoch:  # a takeover may find no bookies for a ledger
            is_roll = epoch == self._epoch
            if not is_roll and epoch != self._epoch + 1:
                raise Rejected("G3", f"epoch {self._epoch} becomes {epoch}")
            for one in kept[:-1] if is_roll else kept:
                if self._ledgers[one].end is None:
                    raise Rejected("G2" if is_roll else "G3", f"{added} listed, {one} is open")
        self._epoch = epoch
        self._listed = list(ids)
        self._ever += added
        self._epochs.update(dict.fromkeys(added, epoch))

    def swapped(self, epoch: int, ids: list[int]) -> None:
        """The list was set, with ledgers that say the same as those whose place they take."""
        new = [one for one in ids if one not in self._listed]
        old = [one for one in self._listed if one not in ids]
        at = self._listed.index(old[0]) if old else 0
        fits = ids == [*self._listed[:at], *new, *self._listed[at + len(old) :]]
        seen = self._rewritten.union(self._ever)
        if not old or not new or not fits or epoch != self._epoch or seen.intersection(new):
            raise Rejected("G7", f"{self._listed} of epoch {self._epoch} becomes {ids}, {epoch}")
        if set(old) & set(self._listed[-2:]) or any(self._ledgers[one].end is None for one in new):
            raise Rejected("G7", f"{old} of {self._listed} cannot become {new}")
        self._listed = list(ids)
        self._rewritten.update(new)

    def sent(self, ledger: int, batches: list[Batch]) -> None:
        """A leader sent the next entry to a ledger of its own."""
        if ledger not in self._ever:
            raise Rejected("G4", f"an entry is sent to {ledger}, which is not listed")
        segment = self._segments.get(ledger)
        if segment is None:
            segment = self._segments[ledger] = self._begin(ledger)
        segment.entries.append(batches)
        for batch in batches:
            if batch.base_offset != segment.end_offset:
                raise Rejected("D1", f"{batch} in {ledger}, the log ends at {segment.end_offset}")
            segment.end_offset += batch.record_count
            if batch.producer is None:
                continue
            expected = segment.sequences.get(batch.producer, 0)
            is_deposed = self._epochs[ledger] < self._epoch
            may_begin = is_deposed and batch.producer not in segment.sequences
            if batch.sequence != expected and not may_begin:
                raise Rejected("D2", f"{batch} in {ledger}, expected is {expected}")
            segment.sequences[batch.producer] = batch.sequence + batch.record_count

    def _begin(self, ledger: int) -> _Segment:
        """The log as it is when the first entry goes to a ledger."""
        end_offset, sequences = 0, dict[tuple[int, int], int]()
        for older in self._ever[: self._ever.index(ledger)]:
            segment = self._segments.get(older)
            end = self._ledgers[older].end
            sent = 0 if segment is None else len(segment.entries)
            if end is None and self._ledgers[older].acked + 1 != sent:
                raise Rejected("G5", f"an entry is sent to {ledger}, {older} is not complete")
            if segment is not None:
                last = sent - 1 if end is None else end
                end_offset, sequences = segment.cut(last)
        return _Segment(end_offset, sequences)

    def deleted(self, ledger: int) -> None:
        """A ledger was deleted."""
        if ledger in self._listed:
            raise Rejected("G6", f"{ledger} is deleted and listed")
