"""Recovers ledgers: fences their writers, finds their ends, closes them, or lets others close them.

Covers the order of the steps of a recovery (PROTOCOL.md, "Recover"); `recovery_run.py` has the
part that bookies are asked in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from client.errors import LedgerError, MetadataError, UnauthorizedAccess
from client.ids import LedgerId
from client.ledger.context import LedgerContext
from client.ledger.core.ledger_metadata import LedgerMetadata, VersionedMetadata
from client.ledger.core.recovery import Recovered, close_recovered, mark_in_recovery
from client.ledger.joined_changes import FoundEnd, RecoveryStart
from client.ledger.read.reader import LedgerReader
from client.ledger.read.tail import TailView
from client.ledger.recovery_run import RecoveryRun
from client.wire.bookkeeper.entry import DigestType, EntryCodec, master_key

log = logging.getLogger(__name__)


class Recoveries:
    """The recoveries of one client."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._nodes = context.nodes
        self._stats = context.stats

    async def recover(
        self,
        ledger_id: LedgerId,
        start: RecoveryStart | None = None,
        *,
        password: bytes | None = b"",
    ) -> LedgerReader:
        """Fence a ledger's writer, find its end and close it; return a reader of all of it.

        `start`: if it was read. Raises NoSuchLedger, UnauthorizedAccess, RecoveryInconclusive (try
        again later).
        """
        current = start.current if start is not None else await self._nodes.read(ledger_id)
        codec, key = unlock(ledger_id, current.metadata, password)
        while not current.metadata.is_closed:
            current = await self._nodes.update(ledger_id, current, mark_in_recovery)
            if current.metadata.is_closed:
                break
            current = await self._recover_once(ledger_id, current, codec, key)
        return reader_of(ledger_id, current, password, self._context)

    async def starts(self, ledger_ids: Sequence[LedgerId]) -> list[RecoveryStart]:
        """Read what recoveries of ledgers begin from, together. Raises NoSuchLedger."""
        found = await asyncio.gather(*map(self._nodes.read, ledger_ids))
        return [
            self._start(ledger_id, current)
            for ledger_id, current in zip(ledger_ids, found, strict=True)
        ]

    async def find_end(
        self,
        ledger_id: LedgerId,
        start: RecoveryStart | None = None,
        *,
        password: bytes | None = b"",
    ) -> FoundEnd:
        """Do what `recover` does, but leave the closing to somebody else's transaction.

        If that is refused, somebody else has changed the ledger: what was found here may not be its
        end then. Raises what `recover` raises.
        """
        current = start.current if start is not None else await self._nodes.read(ledger_id)
        codec, key = unlock(ledger_id, current.metadata, password)
        current = await self._nodes.update(ledger_id, current, mark_in_recovery)
        if current.metadata.is_closed:
            return FoundEnd(reader_of(ledger_id, current, password, self._context), None)
        snapshot, version = current
        end = await self._run_recovery(ledger_id, snapshot, codec, key)
        _log(ledger_id, snapshot, end)
        closed = close_recovered(snapshot, snapshot, end)
        assert closed is not None
        change = self._nodes.change(ledger_id, closed, version)
        stands = VersionedMetadata(closed, version + 1)
        reader = reader_of(ledger_id, stands, password, self._context)
        return FoundEnd(reader, change)

    async def _recover_once(
        self, ledger_id: LedgerId, current: VersionedMetadata, codec: EntryCodec, key: bytes
    ) -> VersionedMetadata:
        """Run recovery from metadata that is IN_RECOVERY; return what stands afterwards."""
        snapshot = current.metadata
        end = await self._run_recovery(ledger_id, snapshot, codec, key)
        try:
            current = await self._nodes.update(
                ledger_id, current, lambda metadata: close_recovered(metadata, snapshot, end)
            )
        except (LedgerError, MetadataError):
            self._stats.recovery_failures += 1
            raise
        _log(ledger_id, current.metadata, end)
        return current

    async def _run_recovery(
        self, ledger_id: LedgerId, snapshot: LedgerMetadata, codec: EntryCodec, key: bytes
    ) -> Recovered:
        """Find out where a ledger ends that is IN_RECOVERY."""
        log.info("ledger.recovering ledger=%d", ledger_id)
        self._stats.recovered += 1
        began_s = self._stats.now_s()
        try:
            end = await RecoveryRun(snapshot, codec, key, self._context).run()
        except (LedgerError, MetadataError):
            self._stats.recovery_failures += 1
            raise
        self._stats.recovery_seconds.observe(self._stats.now_s() - began_s)
        return end

    def _start(self, ledger_id: LedgerId, current: VersionedMetadata) -> RecoveryStart:
        wanted = mark_in_recovery(current.metadata)
        if wanted is None:
            return RecoveryStart(ledger_id, current, None, current)
        mark = self._nodes.change(ledger_id, wanted, current.version)
        return RecoveryStart(
            ledger_id, current, mark, VersionedMetadata(wanted, current.version + 1)
        )


def _log(ledger_id: LedgerId, metadata: LedgerMetadata, end: Recovered) -> None:
    log.info(
        "ledger.recovered ledger=%d state=%s last_entry=%d found=%d",
        ledger_id,
        metadata.state.name,
        metadata.last_entry,
        end.last_entry,
    )


def reader_of(
    ledger_id: LedgerId,
    current: VersionedMetadata,
    password: bytes | None,
    context: LedgerContext,
) -> LedgerReader:
    """Return a reader of a ledger. Raises UnauthorizedAccess for a wrong password."""
    codec, _ = unlock(ledger_id, current.metadata, password)
    view = TailView(ledger_id, current, codec, context)
    return LedgerReader(ledger_id, view, codec, context)


def unlock(
    ledger_id: LedgerId, metadata: LedgerMetadata, password: bytes | None
) -> tuple[EntryCodec, bytes]:
    """Return codec and master key of a ledger. Raises UnauthorizedAccess for a wrong password.

    Very old ledgers store neither password nor digest type: CRC32 was the usual one then.
    """
    known = metadata.password
    if password is None:
        password = known or b""
    elif known is not None and known != password:
        raise UnauthorizedAccess(f"wrong password for ledger {ledger_id}")
    digest_type = metadata.digest_type or DigestType.CRC32
    return EntryCodec(ledger_id, digest_type, password), master_key(password)
