"""Who may write to a ledger: its master key, its fence, and whether both are on disk.

    request              key unknown     key equal                  key different
    add                  key is stored   allowed unless fenced      UNAUTHORIZED
    recovery add         key is stored   allowed                    UNAUTHORIZED
    fence, write LAC     key is stored   allowed                    UNAUTHORIZED

    request              the ledger is being deleted      it is gone, and was fenced
    add                  FENCED if it was, else IO_ERROR  FENCED
    write LAC            NO_LEDGER                        NO_LEDGER
    recovery add, fence  IO_ERROR                         a new ledger, fenced from the start

A ledger has exactly one `Ledger` object in one table, and everything that looks at it and acts
on it does so without a suspension point: that is the lock between fence and add. The first key
wins for ever. A fence holds in memory from the moment it is accepted, and stays if its record
could not be written; it may be answered only when its record is durable. It also outlives the
ledger for a while, as a tombstone: a writer fenced without noticing must not begin the ledger
anew after its deletion (Apache BookKeeper issue 4462).

`key_group` and `fence_group` name the group commit that records the fact; `NOT_RECORDED` means
that the next request has to record it.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from bookie.storage.core.append_log import Deletion
from client.ids import NO_ENTRY, EntryId, LedgerId
from client.wire.bookkeeper.messages import Status

NOT_RECORDED: Final = -1
DURABLE: Final = 0
"""Group number of everything found at start."""

MASTER_KEY_BYTES_MAX: Final = 255


class Ledger:
    """What a bookie knows about one ledger, apart from its entries."""

    __slots__ = (
        "added_bytes",
        "explicit_lac",
        "fence_group",
        "fenced",
        "is_deleted",
        "is_loaded",
        "key_group",
        "lac",
        "lac_waiters",
        "last_entry",
        "ledger_id",
        "losses",
        "lost_deferred",
        "master_key",
        "newest_group",
    )

    def __init__(self, ledger_id: LedgerId, master_key: bytes) -> None:
        self.ledger_id = ledger_id
        self.master_key = master_key
        """Empty when damage took it: then the next request's key is stored."""
        self.key_group = NOT_RECORDED
        self.fenced = False
        self.fence_group = NOT_RECORDED
        self.explicit_lac: bytes | None = None
        """Newest LAC packet a writer stored."""
        self.last_entry: EntryId = NO_ENTRY
        """Highest entry id seen since start; of all entries once `is_loaded`."""
        self.lac: EntryId = NO_ENTRY
        """Highest last add confirmed seen since start; known LAC once `is_loaded`."""
        self.is_loaded = True
        """False while entries from before the start have not been looked at."""
        self.losses = 0
        """How many groups with entries of it were lost: a look for its end that began before one
        may lack entries that are in the index by now."""
        self.lac_waiters: dict[Callable[[], None], None] | None = None
        """Long polls, called on every new last add confirmed and on a fence."""
        self.lost_deferred = False
        """An add that was answered before its sync is lost: a force must not say OK."""
        self.newest_group = DURABLE
        """The group of the newest entry added since start."""
        self.added_bytes = 0
        """Of entries that were added since start."""
        self.is_deleted = False
        """Its end is on its way to log and index: it does not exist for anybody."""

    def wake(self) -> None:
        """Let long polls look again."""
        waiters, self.lac_waiters = self.lac_waiters, None
        for wake in waiters or ():
            wake()

    def __repr__(self) -> str:
        return f"Ledger({self.ledger_id}, fenced={self.fenced})"


class LedgerTable:
    """All ledgers this bookie has heard of, in memory: about 300 bytes each."""

    def __init__(self) -> None:
        self._ledgers: dict[LedgerId, Ledger] = {}
        self._tombstones: dict[LedgerId, Deletion] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def get(self, ledger_id: LedgerId) -> Ledger | None:
        """Return the ledger, None if this bookie never heard of it or it is gone."""
        return self._ledgers.get(ledger_id)

    def ids(self) -> list[LedgerId]:
        """Return the ids of all ledgers, ascending."""
        return sorted(self._ledgers)

    def is_deleted(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger was fenced and is gone, not long ago."""
        return ledger_id in self._tombstones and ledger_id not in self._ledgers

    def bury(self, ledger_id: LedgerId, deletion: Deletion) -> None:
        """The ledger is gone; remember it if it was fenced."""
        self._ledgers.pop(ledger_id, None)
        if deletion.fenced:
            self._tombstones[ledger_id] = deletion

    def tombstones_before(self, time_ms: int) -> list[LedgerId]:
        """Return the ledgers that were deleted before a time and are still remembered."""
        return sorted(
            key for key, tombstone in self._tombstones.items() if tombstone.time_ms < time_ms
        )

    def forget(self, ledger_id: LedgerId) -> None:
        """Forget that a ledger was deleted."""
        self._tombstones.pop(ledger_id, None)

    def restore(
        self, ledger_id: LedgerId, master_key: bytes, *, fenced: bool, explicit_lac: bytes | None
    ) -> Ledger:
        """Put in a ledger found on disk: what is known of it is durable."""
        ledger = self._ledgers[ledger_id] = Ledger(ledger_id, master_key)
        ledger.key_group = DURABLE if master_key else NOT_RECORDED
        if fenced:
            ledger.fenced = True
            ledger.fence_group = DURABLE
        ledger.explicit_lac = explicit_lac
        ledger.is_loaded = False
        return ledger

    def writable(self, ledger_id: LedgerId, master_key: bytes) -> Ledger | None:
        """Return a ledger that nothing stands against a plain add to; None: look closer."""
        ledger = self._ledgers.get(ledger_id)
        if (
            ledger is None
            or ledger.fenced
            or ledger.is_deleted
            or ledger.key_group == NOT_RECORDED
            or not compare_digest(ledger.master_key, master_key)
        ):
            return None
        return ledger

    def admit(self, ledger_id: LedgerId, master_key: bytes) -> Ledger | None:
        """Return the ledger for a request with this key, or None if the key is wrong.

        An unknown ledger is made, with this key.
        """
        ledger = self._ledgers.get(ledger_id)
        if ledger is None:
            ledger = self._ledgers[ledger_id] = Ledger(ledger_id, master_key)
            ledger.fenced = ledger_id in self._tombstones
        elif not ledger.master_key:
            ledger.master_key = master_key
        elif not compare_digest(ledger.master_key, master_key):
            return None
        return ledger


def may_add(ledger: Ledger, *, recovery: bool) -> Status:
    """Return OK, FENCED or IO_ERROR for an add to an admitted ledger."""
    if ledger.fenced and not recovery:
        return Status.FENCED
    return Status.IO_ERROR if ledger.is_deleted else Status.OK


def forget_lost_records(ledger: Ledger, group: int) -> None:
    """Group `group` is lost: what it recorded must be recorded again. A fence stays in force."""
    if ledger.key_group == group:
        ledger.key_group = NOT_RECORDED
    if ledger.fence_group == group:
        ledger.fence_group = NOT_RECORDED
