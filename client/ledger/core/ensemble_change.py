"""What a writer may write into its ledger's metadata, and what it concludes from what it reads.

Covers the decisions inside the writer's two compare-and-set loops. Each is a function of the
metadata just read: it returns the metadata to write, or None when there is nothing left to write
(ours arrived, or somebody else's does), or raises what ends the ledger for this writer. The loop
itself (write, lost? read again, decide again) is `ledger_nodes.py`'s.

Rules, by the names that PROTOCOL.md and the tests use:

- CHANGE-STATE  only an OPEN ledger changes its ensemble: IN_RECOVERY means fenced, CLOSED closed.
- CHANGE-WHO    a change is due only while a failed bookie is still a member of the last ensemble.
- CHANGE-FIRST  the new fragment starts at LAC + 1; a last fragment that starts there is replaced.
- CLOSE-WRITER  a writer closes an OPEN ledger at its LAC. IN_RECOVERY is LedgerFenced; CLOSED at
                the same end is success, at another end MetadataConflict. (Java's writer overwrites
                IN_RECOVERY; the protocol text says error, and so do we.)

Sources: BookKeeper protocol text ("Writing to ledgers", "Closing a ledger as a writer"),
`LedgerHandle`, `EnsembleUtils`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from client.errors import LedgerClosed, LedgerFenced, MetadataConflict
from client.ids import BookieId, EntryId
from client.ledger.core.ledger_metadata import LedgerMetadata, LedgerState

Choose = Callable[[Sequence[BookieId], Sequence[int]], Mapping[int, BookieId]]
"""(ensemble, indices to replace) -> new bookie by index; the placement policy, bound."""


def change_ensemble(
    metadata: LedgerMetadata, failed: Mapping[int, BookieId], first_entry: EntryId, choose: Choose
) -> LedgerMetadata | None:
    """Return metadata with failed members replaced from `first_entry` on, None if none is left.

    None also when nobody can be replaced: the caller sees who is still in the ensemble.
    Raises LedgerFenced or LedgerClosed when the ledger is not open any more.
    """
    if metadata.state is LedgerState.IN_RECOVERY:
        raise LedgerFenced("the ledger is being recovered by another client")
    if metadata.state is LedgerState.CLOSED:
        raise LedgerClosed("the ledger was closed by another client")
    ensemble = list(metadata.last_fragment.ensemble)
    standing = [index for index, bookie in sorted(failed.items()) if ensemble[index] == bookie]
    chosen = choose(ensemble, standing) if standing else {}
    if not chosen:
        return None
    for index, bookie in chosen.items():
        ensemble[index] = bookie
    return metadata.with_ensemble(first_entry, ensemble)


def close_as_writer(
    metadata: LedgerMetadata, last_entry: EntryId, length: int
) -> LedgerMetadata | None:
    """Return metadata closed at `last_entry`, None if it is closed there already.

    Raises LedgerFenced while somebody recovers the ledger, MetadataConflict when somebody closed
    it at another end.
    """
    match metadata.state:
        case LedgerState.OPEN:
            return metadata.closed(last_entry, length)
        case LedgerState.IN_RECOVERY:
            raise LedgerFenced("the ledger is being recovered by another client")
        case LedgerState.CLOSED:
            if (metadata.last_entry, metadata.length) != (last_entry, length):
                raise MetadataConflict(
                    f"closed at entry {metadata.last_entry} with {metadata.length} bytes,"
                    f" not at {last_entry} with {length}"
                )
            return None
