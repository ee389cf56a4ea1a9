"""What a bookie takes back when a group found no space on the disk.

Its entries, keys and fences were in memory before they were to be durable, and must not be taken
for true now. The disk is as it was, so what is known of the ledgers becomes what it was, or is
looked up again; a fence alone stays in force.
"""

from __future__ import annotations

from bookie.storage.core.entry_cache import EntryCache
from bookie.storage.core.group_commit import Group
from bookie.storage.core.ledger_guard import LedgerTable, forget_lost_records
from client.ids import NO_ENTRY


def forget_lost(group: Group, ledgers: LedgerTable, cache: EntryCache) -> None:
    """Make what is known of the ledgers in a lost group true again.

    The cache has forgotten the group already (`EntryCache.drop_lost`).
    """
    for ledger in group.ledgers:
        forget_lost_records(ledger, group.number)
    for ledger in group.deferred:
        ledger.lost_deferred = True
    for ledger_id, _ in group.deletions:
        kept = ledgers.get(ledger_id)
        assert kept is not None, "a ledger stays known until its deletion is durable"
        kept.is_deleted = False
    for ledger_id in dict.fromkeys(ledger_id for ledger_id, _, _ in group.entries):
        added_to = ledgers.get(ledger_id)
        assert added_to is not None, "an add made it"
        added_to.last_entry = max(cache.entry_ids(ledger_id), default=NO_ENTRY)
        added_to.is_loaded = False
