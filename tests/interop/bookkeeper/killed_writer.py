"""A writer process of the crash tests: appends to ledgers and prints what was confirmed.

    python -m tests.interop.bookkeeper.killed_writer HOSTS ROOT

It makes one ledger per digest type and version of the wire protocol, striped over four bookies,
prints a line of JSON {"ledger": 1, "digest": "CRC32C"} for each, and then {"ledger": 1, "acked": 0}
for every confirmed entry, until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from client.ledger import DigestType, LedgerClientConfig, LedgerWriter
from client.ledger.client import LedgerClient
from client.ledger.standalone import WallClock
from client.metadata.zookeeper import ZooKeeperStore
from tests.interop.bookkeeper.ours import payload_of


def tell(**message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def append(writer: LedgerWriter) -> None:
    entry = 0
    while True:
        tell(ledger=writer.ledger_id, acked=await writer.append(payload_of(entry)))
        entry += 1


async def main(hosts: str, root: str) -> None:
    store = ZooKeeperStore(hosts)
    await store.start()
    writers = []
    for version in ("v2", "v3"):
        config = LedgerClientConfig(ledgers_root=root, wire_version=version)  # type: ignore[arg-type]
        client = LedgerClient(store, rng=random.Random(), clock=WallClock(), config=config)
        await client.start()
        for digest_type in DigestType:
            writer = await client.create(
                ensemble_size=4,
                write_quorum=3,
                ack_quorum=2,
                digest_type=digest_type,
                password=b"secret",
            )
            tell(ledger=writer.ledger_id, digest=digest_type.name)
            writers.append(writer)
    await asyncio.gather(*map(append, writers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
