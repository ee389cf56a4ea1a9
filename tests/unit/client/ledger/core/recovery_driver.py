"""Drives a recovery by answers; entries, ledgers and what to look for in its effects."""

from __future__ import annotations

from collections.abc import Sequence

from client.errors import BookieUnavailable, LedgerError, NoSuchEntry
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.core.adds import SendAdd
from client.ledger.core.ledger_metadata import Fragment, LedgerMetadata
from client.ledger.core.recovery import (
    Recovery,
    RecoveryEffect,
    RecoveryFailed,
    RecoveryRead,
)
from client.wire.bookkeeper.entry import Entry
from client.wire.bookkeeper.messages import AddRequest, Buffer

B = [BookieId(f"b{i}") for i in range(6)]
NONE = NoSuchEntry("never stored")
NOW_S = 50.0


def entry(entry_id: int, lac: int = -1, length: int | None = None) -> Entry:
    size = (entry_id + 1) * 10 if length is None else length
    return Entry(LedgerId(1), EntryId(entry_id), EntryId(lac), size, memoryview(b"payload"))


def ledger(
    sizes: tuple[int, int, int] = (3, 3, 2), *starts: tuple[int, Sequence[BookieId]]
) -> LedgerMetadata:
    fragments = [Fragment(EntryId(0), tuple(B[: sizes[0]]))]
    fragments += [Fragment(EntryId(first), tuple(ensemble)) for first, ensemble in starts]
    return LedgerMetadata(
        ensemble_size=sizes[0],
        write_quorum=sizes[1],
        ack_quorum=sizes[2],
        fragments=tuple(fragments),
    ).in_recovery()


class Run:
    """Drives a `Recovery`."""

    def __init__(self, metadata: LedgerMetadata, window: int = 1) -> None:
        self.sealed: list[tuple[int, int, int]] = []
        self.core = Recovery(metadata, window=window)
        self.started = self._sealed(self.core.start())

    def _seal(
        self, entry_id: EntryId, lac: EntryId, length: int, payload: Sequence[Buffer]
    ) -> AddRequest:
        self.sealed.append((entry_id, lac, length))
        return AddRequest(LedgerId(1), entry_id, b"k" * 20, b"".join(payload), recovery=True)

    def _sealed(self, effects: Sequence[RecoveryEffect]) -> list[RecoveryEffect]:
        for effect in effects:
            if isinstance(effect, SendAdd) and effect.entry.request is None:
                entry = effect.entry
                entry.on_sealed(self._seal(entry.entry_id, entry.lac, entry.length, entry.payload))
        return list(effects)

    def fenced(self, member: int, answer: Entry | LedgerError) -> list[RecoveryEffect]:
        return self._sealed(self.core.on_fence_answer(member, answer, NOW_S))

    def read(self, entry_id: int, answer: Entry | LedgerError) -> list[RecoveryEffect]:
        return self._sealed(self.core.on_read_answer(EntryId(entry_id), answer, NOW_S))

    def stored(self, entry_id: int, index: int) -> list[RecoveryEffect]:
        bookie = self.core.ensemble[index]
        return self._sealed(self.core.on_stored(EntryId(entry_id), index, bookie))

    def failed(self, entry_id: int, index: int) -> list[RecoveryEffect]:
        bookie = self.core.ensemble[index]
        return self._sealed(
            self.core.on_failed(EntryId(entry_id), index, bookie, BookieUnavailable("gone"))
        )

    def changed(self, *ensemble: BookieId) -> list[RecoveryEffect]:
        return self._sealed(self.core.on_ensemble(ensemble, NOW_S))

    def fence_all(self, lac: int) -> list[RecoveryEffect]:
        """Let two bookies answer that their last entry carries `lac`."""
        self.fenced(0, entry(lac + 1, lac))
        return self.fenced(1, entry(lac + 1, lac))


def reads(effects: Sequence[RecoveryEffect]) -> list[tuple[int, str]]:
    return [
        (effect.entry_id, effect.bookie) for effect in effects if isinstance(effect, RecoveryRead)
    ]


def failure(effects: Sequence[RecoveryEffect]) -> LedgerError:
    assert isinstance(effects[-1], RecoveryFailed)
    return effects[-1].error
