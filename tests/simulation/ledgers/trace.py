"""Feeds what happens in a schedule to the transition rules of `tests/model/rules.py`.

The rules are an abstraction of the protocols that says nothing about this implementation; a
schedule that they reject is a violation, named TRACE and the rule's number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.rules import Batch, Chain, Ledger, Metadata, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from client.ledger.core.ledger_metadata import LedgerMetadata

_STATES = {"OPEN": 0, "IN_RECOVERY": 1, "CLOSED": 2}


class Trace:
    """The rules' view of one schedule."""

    def __init__(self, reject: Callable[[str, str], None]) -> None:
        """`reject`: told of what the rules do not allow: rule and text."""
        self._reject = reject
        self._ledgers: dict[int, Ledger] = {}
        self._chains: dict[str, Chain] = {}
        self.events = 0

    def _step(self, what: str, event: Callable[..., None], *args: Any, **options: Any) -> None:
        self.events += 1
        try:
            event(*args, **options)
        except Rejected as rejected:
            self._reject(f"TRACE {rejected.rule}", f"{what}: {rejected}")

    def made(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """A ledger was created."""
        self._ledgers[ledger_id] = Ledger(
            metadata.write_quorum, metadata.ack_quorum, _abstract(metadata)
        )

    def ledger(self, ledger_id: int, event: str, *args: Any, **options: Any) -> None:
        """Something happened to a ledger; one that nobody created is none of ours."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is not None:
            self._step(f"ledger {ledger_id}", getattr(ledger, event), *args, **options)

    def changed(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        """A ledger's metadata was set."""
        self.ledger(ledger_id, "changed", _abstract(metadata))

    def disk_lost(self, bookie: str) -> None:
        """A bookie's disk is gone."""
        for ledger_id in self._ledgers:
            self.ledger(ledger_id, "disk_lost", bookie)

    def listed(self, chain: str, epoch: int, ids: list[int]) -> None:
        """A partition's list was set."""
        self._step(chain, self._chain(chain).listed, epoch, ids)

    def swapped(self, chain: str, epoch: int, ids: list[int]) -> None:
        """A partition's list was set, with compacted ledgers in the place of others."""
        self._step(chain, self._chain(chain).swapped, epoch, ids)

    def sent(self, chain: str, ledger_id: int, batches: list[Batch]) -> None:
        """A leader sent an entry."""
        self._step(chain, self._chain(chain).sent, ledger_id, batches)

    def deleted(self, chain: str, ledger_id: int) -> None:
        """A ledger of a chain was deleted."""
        self._step(chain, self._chain(chain).deleted, ledger_id)

    def _chain(self, name: str) -> Chain:
        chain = self._chains.get(name)
        if chain is None:
            chain = self._chains[name] = Chain(self._ledgers)
        return chain


def _abstract(metadata: LedgerMetadata) -> Metadata:
    return Metadata(
        _STATES[metadata.state.name],
        metadata.last_entry,
        tuple((int(f.first_entry), tuple(map(str, f.ensemble))) for f in metadata.fragments),
    )
