"""The public API over scripted bookies: create, open, recover, delete, list."""

from __future__ import annotations

import random

import pytest

from client.errors import (
    ConfigError,
    IncorrectParameter,
    LedgerExists,
    MetadataCorrupt,
    NoNode,
    NoSuchLedger,
    NotEnoughBookies,
    RecoveryInconclusive,
    UnauthorizedAccess,
)
from client.ids import BookieId, EntryId, LedgerId
from client.ledger.bookies.bookies import Bookies
from client.ledger.client import LedgerClient
from client.ledger.config import LedgerClientConfig
from client.ledger.core.ledger_metadata import LedgerState
from client.metadata.memory import MemoryCluster
from client.wire.bookkeeper.entry import DigestType
from client.wire.bookkeeper.messages import AddRequest, ReadRequest, Request
from tests.fakes.bookies import Fate
from tests.fakes.clock import FakeClock
from tests.fakes.ledger_cluster import LedgerCluster, Outcomes, settle


async def test_create_writes_metadata_as_asked() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client()
    writer = await client.create(
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=1,
        digest_type=DigestType.HMAC,
        password=b"secret",
        custom_metadata={"application": b"test"},
    )
    metadata = await client.describe(writer.ledger_id)
    assert metadata == cluster.stored_metadata(writer.ledger_id) == writer.metadata
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 2, 1)
    assert (metadata.digest_type, metadata.password) == (DigestType.HMAC, b"secret")
    assert metadata.custom_metadata == {"application": b"test"}
    assert metadata.state is LedgerState.OPEN
    assert metadata.ctime_ms is None
    assert 0 < metadata.c_token < 2**63
    assert len(set(metadata.last_fragment.ensemble)) == 3


async def test_create_stores_the_creation_time_if_configured() -> None:
    cluster = await LedgerCluster.start("b0")
    client = await cluster.client(LedgerClientConfig(store_creation_time=True))
    writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
    assert writer.metadata.ctime_ms == FakeClock().now_ms()


async def test_create_refuses_impossible_sizes_and_too_few_bookies() -> None:
    cluster = await LedgerCluster.start("b0", "b1")
    client = await cluster.client()
    with pytest.raises(IncorrectParameter):
        await client.create(ensemble_size=2, write_quorum=3, ack_quorum=2)
    with pytest.raises(NotEnoughBookies):
        await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)


async def test_create_prefers_bookies_that_can_be_reached() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client()
    cluster.bookies["b1"].is_unreachable = True
    for _ in range(10):
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        assert "b1" not in writer.metadata.last_fragment.ensemble
    writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
    assert "b1" in writer.metadata.last_fragment.ensemble


async def test_create_has_defaults_that_survive_one_bookie() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    metadata = (await (await cluster.client()).create()).metadata
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (3, 3, 2)


async def test_create_takes_an_id_of_the_callers_choice() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ledger_id=LedgerId(2**40))
    assert writer.ledger_id == 2**40
    with pytest.raises(LedgerExists):
        await client.create(ledger_id=LedgerId(2**40))


async def test_create_takes_fewer_copies_if_the_caller_allows_it() -> None:
    """SHRINK-COPIES: for a cluster that has lost bookies and must go on."""
    cluster = await LedgerCluster.start("b0", "b1")
    client = await cluster.client()
    writer = await client.create(write_quorum_min=2)
    assert (writer.metadata.ensemble_size, writer.metadata.write_quorum) == (2, 2)
    assert writer.metadata.ack_quorum == 2
    await writer.append(b"x")
    cluster.bookies.set_writable(["b0"])
    with pytest.raises(NotEnoughBookies):
        await client.create(write_quorum_min=2)


async def test_create_stripes_over_fewer_bookies_if_configured() -> None:
    """SHRINK-STRIPE."""
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client(LedgerClientConfig(opportunistic_striping=True))
    writer = await client.create(ensemble_size=5, write_quorum=2, ack_quorum=2)
    assert (writer.metadata.ensemble_size, writer.metadata.write_quorum) == (3, 2)
    cluster.bookies.set_writable(["b0"])
    with pytest.raises(NotEnoughBookies):
        await client.create(ensemble_size=5, write_quorum=2, ack_quorum=2)


async def test_create_spreads_copies_over_racks() -> None:
    """RACKS, and replacements too."""
    cluster = await LedgerCluster.start(*"abcdef")
    racks = dict(zip(map(BookieId, "abcdef"), ["/x", "/x", "/x", "/y", "/y", "/z"], strict=True))
    cluster.bookies.racks = racks
    client = await cluster.client()
    for _ in range(5):
        writer = await client.create()
        assert {racks[b] for b in writer.metadata.last_fragment.ensemble} == {"/x", "/y", "/z"}
    lost = next(b for b in writer.metadata.last_fragment.ensemble if racks[b] == "/x")
    cluster.bookies[lost].crash()
    outcomes = Outcomes(writer)
    for _ in range(2):
        outcomes.add()
        await settle()
    assert lost not in writer.metadata.last_fragment.ensemble
    assert {racks[b] for b in writer.metadata.last_fragment.ensemble} == {"/x", "/y", "/z"}


async def test_create_skips_an_id_that_somebody_took() -> None:
    cluster = await LedgerCluster.start("b0")
    await cluster.metadata.session().create("/ledgers/00/0000/L0000", b"x", make_parents=True)
    client = await cluster.client()
    cluster.metadata.tree.set("/ledgers/00/0000/L0000", _foreign(), -1)
    writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
    assert writer.ledger_id == 1


def _foreign() -> bytes:
    return b"BookieMetadataFormatVersion\t1\n1\n1\n0\n0\tb0\n"


async def test_old_ledgers_without_password_are_opened() -> None:
    cluster = await LedgerCluster.start("b0")
    await cluster.metadata.session().create(
        "/ledgers/00/0000/L0000", _foreign() + b"-1\tCLOSED", make_parents=True
    )
    reader = await (await cluster.client()).open(LedgerId(0), password=b"whatever")
    assert reader.last_entry == -1


async def test_the_password_guards_open_and_recover() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"right")
    await writer.append(b"x")
    for opener in (client.open, client.recover):
        with pytest.raises(UnauthorizedAccess):
            await opener(writer.ledger_id)
        with pytest.raises(UnauthorizedAccess):
            await opener(writer.ledger_id, password=b"wrong")
    assert cluster.stored_metadata(writer.ledger_id).state is LedgerState.OPEN
    assert not any(
        isinstance(request, ReadRequest) and request.fence for request in cluster.bookies["b0"].seen
    )
    await client.open(writer.ledger_id, password=b"right")
    assert (await client.recover(writer.ledger_id, password=None)).last_entry == 0


async def test_recover_closes_at_the_last_entry_and_reads_it() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for number in range(50):
        writer.add([b"%02d" % number], lambda *_: None)
    await settle()
    reader = await (await cluster.client()).recover(writer.ledger_id)
    assert (reader.last_entry, reader.closed, reader.length) == (49, True, 100)
    found = [bytes(entry.payload) async for entry in reader.entries()]
    assert found == [b"%02d" % number for number in range(50)]


async def test_recover_of_a_closed_ledger_fences_nobody() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    await writer.close()
    assert (await client.recover(writer.ledger_id)).last_entry == 0
    assert not any(isinstance(request, ReadRequest) for request in cluster.bookies["b0"].seen)


async def test_recover_writes_back_with_the_lac_it_started_from() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    cluster.bookies["b2"].fate_of = lambda request: (
        Fate.LOSE_REQUEST
        if isinstance(request, AddRequest) and not request.recovery
        else Fate.DELIVER
    )
    for _ in range(3):
        writer.add([b"x"], lambda *_: None)
    await settle()
    writer.abandon()
    reader = await client.recover(writer.ledger_id)
    assert reader.last_entry == 3
    cluster.check_ledger(writer.ledger_id, [EntryId(e) for e in range(4)])
    recovery_adds = [
        request
        for request in cluster.bookies["b2"].seen
        if isinstance(request, AddRequest) and request.recovery
    ]
    assert all(request.high_priority for request in recovery_adds)
    lacs = {entry.lac for entry in await reader.read(EntryId(2), EntryId(3))}
    assert len(lacs) == 1


async def test_recover_replaces_a_dead_bookie_in_the_closing_metadata() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    outcomes = Outcomes(writer)
    for _ in range(5):
        outcomes.add()
    await settle()
    writer.abandon()
    dead = writer.metadata.last_fragment.ensemble[2]
    cluster.bookies[dead].crash()
    reader = await client.recover(writer.ledger_id)
    assert reader.last_entry == 4
    assert dead not in reader.metadata.last_fragment.ensemble
    cluster.check_ledger(writer.ledger_id, outcomes.confirmed)


async def test_a_failed_recovery_can_be_tried_again() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    for name in ("b0", "b1"):
        cluster.bookies[name].is_down = True
    with pytest.raises(RecoveryInconclusive):
        await client.recover(writer.ledger_id)
    assert cluster.stored_metadata(writer.ledger_id).state is LedgerState.IN_RECOVERY
    for name in ("b0", "b1"):
        cluster.bookies[name].is_down = False
    assert (await client.recover(writer.ledger_id)).last_entry == 0


async def test_recover_starts_over_when_somebody_changed_the_fragments() -> None:
    """REC-CLOSE: re-replication moved an earlier fragment while recovery ran."""
    cluster = await LedgerCluster.start("b0", "b1", "b2", "b3")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await writer.append(b"x")
    writer.abandon()
    ensemble = writer.metadata.last_fragment.ensemble
    spare = next(name for name in cluster.bookies.writable if name not in ensemble)

    def move(request: Request) -> Fate:
        if isinstance(request, AddRequest):
            cluster.bookies[ensemble[0]].fate_of = lambda request: Fate.DELIVER
            metadata = cluster.stored_metadata(writer.ledger_id)
            moved = (spare, *ensemble[1:])
            cluster.bookies[spare].ledgers = dict(cluster.bookies[ensemble[0]].ledgers)
            cluster.store_metadata(writer.ledger_id, metadata.with_ensemble(EntryId(0), moved))
        return Fate.DELIVER

    cluster.bookies[ensemble[0]].fate_of = move
    reader = await client.recover(writer.ledger_id)
    assert reader.last_entry == 0
    assert reader.metadata.last_fragment.ensemble[0] == spare


async def test_delete_and_list() -> None:
    cluster = await LedgerCluster.start("b0")
    client = await cluster.client()
    made = [
        (await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)).ledger_id
        for _ in range(3)
    ]
    assert [ledger_id async for ledger_id in client.ledgers()] == made
    await client.delete(made[1])
    await client.delete(made[1])
    assert [ledger_id async for ledger_id in client.ledgers()] == [made[0], made[2]]
    with pytest.raises(NoSuchLedger):
        await client.describe(made[1])
    with pytest.raises(NoSuchLedger):
        await client.recover(made[1])


async def test_close_abandons_writers() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    done = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await done.close()
    await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    await client.close()
    assert writer.is_ended
    assert cluster.bookies.listener_count == 0


async def test_settled_writers_are_forgotten_before_long() -> None:
    cluster = await LedgerCluster.start("b0", "b1", "b2")
    client = await cluster.client()
    left_open = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    for _ in range(200):
        await (await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)).close()
    assert left_open in client._writers
    assert len(client._writers) <= 64
    await client.close()
    assert left_open.is_ended


async def test_start_refuses_a_cluster_that_is_none_or_foreign() -> None:
    metadata = MemoryCluster()
    client = LedgerClient(metadata.session(), rng=random.Random(1), clock=FakeClock())
    assert isinstance(client._bookies, Bookies)
    with pytest.raises(NoNode):
        await client.start()
    await metadata.session().create("/ledgers/LAYOUT", b"1\nflat", make_parents=True)
    with pytest.raises(MetadataCorrupt):
        await client.start()


async def test_a_client_is_a_context_manager() -> None:
    cluster = await LedgerCluster.start("b0")
    async with LedgerClient(
        cluster.metadata.session(),
        rng=random.Random(1),
        clock=FakeClock(),
        bookies=cluster.bookies,
    ) as client:
        writer = await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1)
        await writer.append(b"x")
    assert writer.is_ended


def test_config_checks_relations() -> None:
    with pytest.raises(ConfigError):
        LedgerClientConfig(reconnect_delay_min_ms=2000)
    with pytest.raises(ConfigError):
        LedgerClientConfig(request_timeout_ms=0)
    with pytest.raises(ConfigError, match=r"^bookie_in_flight_bytes_max \(9\) is smaller"):
        LedgerClientConfig(bookie_in_flight_bytes_max=9)
    with pytest.raises(ConfigError, match=r"^writer_unanswered_bytes_max \(9\) is smaller"):
        LedgerClientConfig(writer_unanswered_bytes_max=9)
    with pytest.raises(ConfigError, match="BOOKIE=RACK"):
        LedgerClientConfig(racks=("b0:3181",))
