"""What changes of a ledger's metadata must not do: to states, fragments, and the ledger's end."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from client.ledger.core.ledger_metadata import LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from tests.simulation.bookies.ledger_books import LedgerBook
    from tests.simulation.ledgers.oracle import LedgerOracle


class MetadataRules:
    """Judges the changes of one schedule; a broken rule is a violation of the oracle."""

    def __init__(self, oracle: LedgerOracle) -> None:
        self._fail, self._count = oracle.fail, oracle.count
        self._check_durable = oracle.check_durable

    def check(self, book: LedgerBook, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Judge a change that the store has made."""
        self._check_transition(book, old, new)
        self._check_fragments(book, old, new)
        if new.state is LedgerState.CLOSED and old.state is not LedgerState.CLOSED:
            self._check_closed(book, new)

    def _check_transition(self, book: LedgerBook, old: LedgerMetadata, new: LedgerMetadata) -> None:
        where = f"ledger {book.ledger_id}"
        if new.state < old.state:
            self._fail("L1", f"{where} went from {old.state.name} to {new.state.name}")
        if old.state is LedgerState.CLOSED and (
            (old.last_entry, old.length) != (new.last_entry, new.length)
        ):
            self._fail("L1", f"{where}: closed end moved {old.last_entry} -> {new.last_entry}")
        quorums = (old.ensemble_size, old.write_quorum, old.ack_quorum)
        if quorums != (new.ensemble_size, new.write_quorum, new.ack_quorum):
            self._fail("L1", f"{where} changed its quorums")
        if new.state is LedgerState.IN_RECOVERY and old.last_fragment != new.last_fragment:
            self._fail("R6", f"{where}: fragments published while in recovery: {new.fragments}")

    def _check_fragments(self, book: LedgerBook, old: LedgerMetadata, new: LedgerMetadata) -> None:
        where = f"ledger {book.ledger_id}"
        firsts = [fragment.first_entry for fragment in new.fragments]
        if firsts[0] != 0 or any(a >= b for a, b in itertools.pairwise(firsts)):
            self._fail("L6", f"{where}: fragments start at {firsts}")
        if any(len(set(f.ensemble)) != new.ensemble_size for f in new.fragments):
            self._fail("L6", f"{where}: an ensemble does not hold E distinct bookies")
        if old.fragments == new.fragments:
            return
        kept = [fragment.first_entry for fragment in old.fragments[:-1]]
        if old.state is LedgerState.CLOSED:
            kept = [fragment.first_entry for fragment in old.fragments]
        if firsts[: len(kept)] != kept or (old.state is LedgerState.CLOSED and firsts != kept):
            self._fail("L6", f"{where}: {old.fragments} became {new.fragments}")
        self._check_copied(book, old, new)
        if old.state is LedgerState.CLOSED or old.last_fragment == new.last_fragment:
            return
        if new.state is LedgerState.OPEN and firsts[-1] <= book.acked:
            self._fail("R7", f"{where}: new fragment at {firsts[-1]}, but {book.acked} is acked")

    def _check_copied(self, book: LedgerBook, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """Auto recovery gave finished fragments other members: they must hold the entries."""
        last = new.last_entry if new.state is LedgerState.CLOSED else book.acked
        ends = [f.first_entry for f in new.fragments[1:]] + [last + 1]
        for was, now, end in zip(old.fragments, new.fragments, ends, strict=False):
            is_growing = now is new.fragments[-1] and old.state is not LedgerState.CLOSED
            if was.first_entry != now.first_entry or was == now or is_growing:
                continue
            self._count("fragments repaired")
            for entry_id in range(now.first_entry, end):
                self._check_durable(book, entry_id, "L4")

    def _check_closed(self, book: LedgerBook, new: LedgerMetadata) -> None:
        where, last = f"ledger {book.ledger_id}", new.last_entry
        if book.acked > last:
            self._fail("L2", f"{where} closed at {last}, but {book.acked} was acked")
        if book.seen_max > last:
            self._fail("R1", f"{where} closed at {last}, but {book.seen_max} was read")
        if last >= len(book.sent):
            self._fail("L5", f"{where} closed at {last}, but only {len(book.sent)} were sent")
        length = sum(map(len, book.sent[: last + 1]))
        if last >= 0 and new.length == 0 < length:
            self._count("closed with unknown length")
        elif last >= 0 and new.length != length:
            self._fail("L5", f"{where} closed with length {new.length}, sent were {length}")
        for entry_id in range(last + 1):
            self._check_durable(book, entry_id, "L4")
        for entry_id, error in book.definite.items():
            if entry_id <= last:
                self._fail(
                    "R11",
                    f"{where}: {entry_id} failed for certain ({error!r}), but it is in the ledger",
                )
