"""Drives an add pipeline by entry ids and names; its invariants are checked after every input."""

from __future__ import annotations

from collections.abc import Sequence

from client.errors import BookieUnavailable, LedgerError, TooManyRequests
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.adds import AddEffect, AddEffects, AddRules, Adds, SendAdd, SlowLimits
from client.ledger.core.ledger_metadata import Schedule
from client.wire.bookkeeper.messages import AddRequest, Buffer

NOBODY_IS_SLOW = SlowLimits(lag_s=0.0, patience_s=0.0)


class Pipeline:
    """Drives an `Adds` in entry ids and names, and checks its invariants after every input."""

    def __init__(
        self,
        sizes: tuple[int, int, int] = (3, 3, 2),
        *,
        ensemble: Sequence[str] | None = None,
        lac: int = -1,
        length: int = 0,
        frozen_lac: int | None = None,
        delay_change: bool = False,
        quorum_timeout_s: float | None = None,
        busy_timeout_s: float = 0.0,
        slow: SlowLimits = NOBODY_IS_SLOW,
    ) -> None:
        names = ensemble or [f"b{i}" for i in range(sizes[0])]
        self.sealed: list[tuple[int, int, int]] = []
        """(entry id, LAC, length) of every sealing."""
        self.adds = Adds(
            [BookieId(name) for name in names],
            Schedule(*sizes),
            lac=EntryId(lac),
            length=length,
            frozen_lac=None if frozen_lac is None else EntryId(frozen_lac),
            rules=AddRules(delay_change, quorum_timeout_s, busy_timeout_s, slow),
        )
        self.may_replace = True
        self.now_s = 100.0

    def _seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> AddRequest:
        self.sealed.append((entry_id, lac, length))
        return AddRequest(LedgerId(1), entry_id, b"k" * 20, b"".join(payload))

    def add(
        self, payload: bytes = b"xx", length: int | None = None, entry: int | None = None
    ) -> list[AddEffect]:
        chosen = None if entry is None else EntryId(entry)
        return self._checked(self.adds.add([payload], len(payload), self.now_s, length, chosen))

    def stored(self, entry: int, index: int, name: str | None = None) -> list[AddEffect]:
        bookie = BookieId(name or self.adds.members.ensemble[index])
        return self._checked(self.adds.on_stored(EntryId(entry), index, bookie))

    def failed(
        self, entry: int, index: int, error: LedgerError | None = None, name: str | None = None
    ) -> list[AddEffect]:
        bookie = BookieId(name or self.adds.members.ensemble[index])
        error = error or BookieUnavailable("gone")
        return self._checked(self.adds.on_failed(EntryId(entry), index, bookie, error))

    def busy(self, entry: int, index: int, name: str | None = None) -> list[AddEffect]:
        bookie = BookieId(name or self.adds.members.ensemble[index])
        error = TooManyRequests("no room")
        return self._checked(self.adds.on_busy(EntryId(entry), index, bookie, error, self.now_s))

    def send_again(self) -> list[AddEffect]:
        return self._checked(self.adds.send_again())

    def changed(self, *names: str) -> list[AddEffect]:
        ensemble = [BookieId(name) for name in names] or self.adds.members.ensemble
        return self._checked(self.adds.on_ensemble(ensemble, self.now_s))

    def look(self) -> list[AddEffect]:
        return self._checked(self.adds.look(self.now_s, lambda _bookie: self.may_replace))

    def fail(self, error: LedgerError) -> list[AddEffect]:
        return self._checked(self.adds.fail(error))

    def _checked(self, effects: AddEffects) -> list[AddEffect]:
        self.adds.check()
        for effect in effects:
            if isinstance(effect, SendAdd) and effect.entry.request is None:
                entry = effect.entry
                entry.on_sealed(self._seal(entry.entry_id, entry.lac, entry.length, entry.payload))
        return list(effects)


def sends(effects: Sequence[AddEffect]) -> list[tuple[int, list[int]]]:
    """Return (entry id, sorted indices) of the sends among the effects."""
    return [
        (effect.entry.entry_id, sorted(effect.indices))
        for effect in effects
        if isinstance(effect, SendAdd)
    ]
