"""Replicated ledgers on BookKeeper bookies, from asyncio: `connect`; see README.md."""

from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.read.reader import LedgerReader
from client.ledger.standalone import connect
from client.ledger.write.writer import LedgerWriter
from client.wire.bookkeeper.entry import DigestType, Entry

__all__ = [
    "DigestType",
    "Entry",
    "LedgerClient",
    "LedgerClientConfig",
    "LedgerReader",
    "LedgerWriter",
    "connect",
]
