"""Row 3: our client on Apache's bookies alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from client.errors import LedgerFenced, NoSuchLedger
from client.ledger import DigestType
from tests.interop.bookkeeper.cluster import BookieTree, ids, run_s
from tests.interop.bookkeeper.kills import killing
from tests.interop.bookkeeper.ours import contents, fill, payload_of, payloads

COUNT = 300


@pytest.mark.parametrize("wire_version", ["both", "v2", "v3"])
@pytest.mark.parametrize("digest_type", list(DigestType))
async def test_row_3_a_ledgers_whole_life(
    mixed_tree: BookieTree, ours: Callable[..., Any], digest_type: DigestType, wire_version: str
) -> None:
    """Create, append, follow, be fenced, be recovered, be read, be deleted."""
    java = ids(mixed_tree.java)
    settings = {"only": java, "wire_version": wire_version, "long_poll_ms": 200}
    first = await ours(mixed_tree.root, **settings)
    second = await ours(mixed_tree.root, **settings)
    writer = await first.create(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        digest_type=digest_type,
        password=b"secret",
    )
    assert sorted(writer.metadata.last_fragment.ensemble) == sorted(java)
    await fill(writer, COUNT)
    follower = await second.open(writer.ledger_id, password=b"secret")
    following = asyncio.ensure_future(follower.wait(COUNT - 2))
    await fill(writer, COUNT + 1)  # the last entry says that those before it are confirmed
    assert await asyncio.wait_for(following, 30) == COUNT - 1
    reader = await second.recover(writer.ledger_id, password=b"secret")
    with pytest.raises(LedgerFenced):
        await writer.append(b"too late")
    assert reader.last_entry == COUNT
    assert await contents(reader) == payloads(COUNT + 1)
    assert reader.length == sum(map(len, payloads(COUNT + 1)))
    await second.delete(writer.ledger_id)
    with pytest.raises(NoSuchLedger):
        await second.open(writer.ledger_id)


async def test_row_3_bookies_are_killed_under_a_writer(
    mixed_tree: BookieTree, ours: Callable[..., Any]
) -> None:
    """Nothing acknowledged is lost, and an entry that nobody could be asked for is no answer."""
    client = await ours(mixed_tree.root, only=ids(mixed_tree.java))
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    ends_s = time.monotonic() + run_s(short=6)
    async with killing(mixed_tree.java) as kills:
        while time.monotonic() < ends_s or kills.count < 2:
            await fill(writer, writer.progress.last_add_pushed + 20)
            await asyncio.sleep(0.01)
    count = writer.progress.last_add_confirmed + 1
    await writer.close()
    reader = await client.open(writer.ledger_id)
    assert await contents(reader) == payloads(count)
    print(f"{kills.count} kills, {count} entries")


async def test_row_3_striped_and_adv(mixed_tree: BookieTree, ours: Callable[..., Any]) -> None:
    """Entry ids of one's own choice, in any order, on an ensemble wider than the write quorum."""
    client = await ours(mixed_tree.root, only=ids(mixed_tree.java))
    writer = await client.create(ensemble_size=3, write_quorum=2, ack_quorum=1, ledger_id=1 << 40)
    for entry in (2, 0, 1, 5, 4, 3):
        await writer.submit(payload_of(entry), entry_id=entry)
    await writer.flush()
    await writer.close()
    assert await contents(await client.open(1 << 40)) == payloads(6)
