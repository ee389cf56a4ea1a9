"""The owner node of a partition: what is read with it, and when that counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.cluster.owner_node import Owner, OwnerClaim, OwnerNode
from client.ids import BookieId, BrokerId, EntryId, LedgerId
from client.ledger.core.ledger_metadata import (
    Fragment,
    LedgerMetadata,
    LedgerState,
    VersionedMetadata,
)
from client.ledger.joined_changes import RecoveryStart
from client.metadata import paths
from client.metadata.memory import Fault, MemoryCluster, Operation
from client.metadata.store import SetData, Versioned
from client.node.grouped_requests import GroupedRequests
from tests.fakes.topics import topic_info
from tests.fakes.virtual_time import run

TOPIC = topic_info(1)
LIST = paths.partition(TOPIC.id_text, 0)
ME, RIVAL = Owner(BrokerId(1), "me"), Owner(BrokerId(2), "rival")


class Lab:
    """A partition with a list, its owner node, and two brokers that may want it."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.listed: list[RecoveryStart] = []
        """Where recoveries of the list's last ledgers begin."""
        self.store, self.rivals_store = self.cluster.session(), self.cluster.session()
        self.requests = GroupedRequests(self.store)
        self.node = OwnerNode(self.requests, TOPIC, 0, ME)
        self.seen: list[str] = []
        self.is_rival_alive = True
        self.ids_taken: list[LedgerId] = []

    async def start(self, *, held: bool) -> Lab:
        await self.store.create(LIST, b"first", make_parents=True)
        if held:
            await self.rivals_store.create(self.node.path, RIVAL.encode(), ephemeral=True)
        self.cluster.on_request = lambda operation: self.seen.append(operation.name)
        return self

    async def claim(self) -> OwnerClaim | None:
        return await self.node.claim(lambda: None, lambda _: self.is_rival_alive, LIST, self)

    async def starts(self, beside: Versioned) -> Sequence[RecoveryStart]:
        del beside
        return self.listed

    async def take_id(self) -> LedgerId:
        path = await self.requests.create("/id-", ephemeral=True, sequential=True)
        self.ids_taken.append(LedgerId(int(path.removeprefix("/id-"))))
        return self.ids_taken[-1]


def test_the_list_comes_in_the_request_that_found_nobody() -> None:
    """LIST-WITH-CLAIM."""

    async def scenario() -> None:
        lab = await Lab().start(held=False)
        claim = await lab.claim()
        assert claim is not None and claim.beside is not None
        assert (claim.beside.data, claim.beside.version) == (b"first", 0)
        assert claim.ledger_id is not None
        assert lab.seen == ["get_many", "multi"], "node and id are made together"

    run(scenario())


def test_the_list_comes_in_the_request_that_found_a_process_that_is_gone() -> None:
    async def scenario() -> None:
        lab = await Lab().start(held=True)
        lab.is_rival_alive = False
        claim = await lab.claim()
        assert claim is not None and claim.beside is not None
        assert claim.ledger_id is not None
        assert lab.seen == ["get_many", "multi"]

    run(scenario())


def test_an_id_that_is_older_than_the_list_is_not_used() -> None:
    """ID-AFTER-LIST: a rival was faster, led, listed a ledger and let go."""

    async def scenario() -> None:
        lab = await Lab().start(held=False)

        def between(operation: Operation) -> None:
            if operation.name == "multi" and not lab.seen:
                lab.seen.append("rival")
                lab.cluster.tree.create(
                    lab.node.path, RIVAL.encode(), now_ms=0, owner=lab.rivals_store.session_id
                )
            elif (operation.name, operation.path) == ("create", "/id-"):
                lab.cluster.tree.set(LIST, b"second", 0)
                lab.cluster.tree.delete(lab.node.path, -1)

        lab.cluster.on_request = between
        claim = await lab.claim()
        assert claim is not None and claim.beside is not None
        assert claim.beside.data == b"second"
        assert len(lab.ids_taken) == 2
        assert claim.ledger_id == lab.ids_taken[-1]

    run(scenario())


def test_a_partition_without_a_list_has_none() -> None:
    async def scenario() -> None:
        lab = await Lab().start(held=False)
        await lab.store.delete(LIST)
        assert await lab.claim() == OwnerClaim(None)

    run(scenario())


def test_who_holds_it_already_has_the_list_as_it_is_now() -> None:
    async def scenario() -> None:
        lab = await Lab().start(held=False)
        assert await lab.claim() is not None
        await lab.store.set(LIST, b"second", 0)
        claim = await lab.claim()
        assert claim is not None and claim.beside is not None
        assert claim.beside.data == b"second"

    run(scenario())


def test_a_list_that_was_read_while_a_live_broker_led_does_not_count() -> None:
    """It changes the list once more, and lets go: the takeover would lose its compare-and-set."""

    async def scenario() -> None:
        lab = await Lab().start(held=True)

        def between(operation: Operation) -> None:
            if (operation.name, operation.path) == ("get", lab.node.path):
                lab.cluster.tree.set(LIST, b"second", 0)
                lab.cluster.tree.delete(lab.node.path, -1)

        lab.cluster.on_request = between
        assert await lab.claim() == OwnerClaim(None)

    run(scenario())


def test_a_live_broker_is_waited_for() -> None:
    async def scenario() -> None:
        lab = await Lab().start(held=True)
        assert await lab.claim() is None
        assert lab.seen == ["get_many", "get"]

    run(scenario())


def start(number: int, metadata: LedgerMetadata, version: int = 3) -> RecoveryStart:
    current = VersionedMetadata(metadata, version)
    if metadata.state is not LedgerState.OPEN:
        return RecoveryStart(LedgerId(number), current, None, current)
    mark = SetData(f"/ledger-{number}", b"marked", version)
    marked = VersionedMetadata(metadata.in_recovery(), version + 1)
    return RecoveryStart(LedgerId(number), current, mark, marked)


OPEN = LedgerMetadata(
    ensemble_size=1,
    write_quorum=1,
    ack_quorum=1,
    fragments=(Fragment(EntryId(0), (BookieId("a:1"),)),),
)
CLOSED = OPEN.in_recovery().closed(EntryId(4), 9)


async def with_ledgers(*starts: RecoveryStart) -> Lab:
    lab = await Lab().start(held=False)
    lab.listed = list(starts)
    for one in starts:
        path = f"/ledger-{one.ledger_id}"
        await lab.store.create(path, b"open")
        for _ in range(one.current.version):
            await lab.store.set(path, b"open")
    lab.seen.clear()
    return lab


def test_the_last_ledger_is_marked_with_the_claim() -> None:
    """MARK-WITH-CLAIM."""

    async def scenario() -> None:
        lab = await with_ledgers(start(1, CLOSED), start(2, OPEN))
        claim = await lab.claim()
        assert claim is not None
        assert lab.seen == ["get_many", "multi"]
        assert lab.cluster.tree.get("/ledger-2").data == b"marked"
        assert [one.mark for one in claim.starts] == [None, None]
        assert claim.starts[1].current == VersionedMetadata(OPEN.in_recovery(), 4)
        assert lab.cluster.tree.get("/ledger-2").version == 4

    run(scenario())


def test_who_does_not_get_the_node_marks_nothing() -> None:
    """MARK-WITH-CLAIM: a rival was faster, and leads now: its ledger is none of our business."""

    async def scenario() -> None:
        lab = await with_ledgers(start(2, OPEN))

        def between(operation: Operation) -> None:
            if operation.name == "multi":
                lab.cluster.tree.create(
                    lab.node.path, RIVAL.encode(), now_ms=0, owner=lab.rivals_store.session_id
                )
                lab.cluster.on_request = lambda _: None

        lab.cluster.on_request = between
        assert await lab.claim() is None
        assert lab.cluster.tree.get("/ledger-2").data == b"open"

    run(scenario())


def test_the_last_ledger_is_not_marked_while_the_older_one_is_open() -> None:
    """OLDER-FIRST."""

    async def scenario() -> None:
        lab = await with_ledgers(start(1, OPEN), start(2, OPEN))
        claim = await lab.claim()
        assert claim is not None
        assert list(claim.starts) == lab.listed
        assert lab.cluster.tree.get("/ledger-2").data == b"open"

    run(scenario())


def test_a_ledger_that_changed_meanwhile_is_looked_at_again() -> None:
    async def scenario() -> None:
        lab = await with_ledgers(start(2, OPEN))
        await lab.store.set("/ledger-2", b"changed")

        def between(operation: Operation) -> None:
            lab.seen.append(operation.name)
            if operation.name == "multi":
                lab.listed = [start(2, OPEN, 4)]

        lab.cluster.on_request = between
        claim = await lab.claim()
        assert claim is not None and claim.starts[0].current.version == 5
        assert lab.cluster.tree.get("/ledger-2").data == b"marked"

    run(scenario())


def test_a_claim_without_an_answer_brings_nothing_but_the_list() -> None:
    """The transaction has happened: the ledger is marked, and is read again."""

    async def scenario() -> None:
        lab = await with_ledgers(start(2, OPEN))
        lost = [Fault.LOSE_REPLY]
        lab.cluster.on_request = lambda operation: (
            lost.pop() if lost and operation.name == "multi" else None
        )
        claim = await lab.claim()
        assert claim is not None and claim.beside is not None
        assert (claim.ledger_id, claim.starts) == (None, ())
        assert lab.cluster.tree.get("/ledger-2").data == b"marked"

    run(scenario())


def test_a_claim_without_an_answer_does_not_outlive_its_release() -> None:
    """The server that is asked does not have it yet: it would keep others waiting for us."""

    async def scenario() -> None:
        lab = await Lab().start(held=False)
        faults = [Fault.LOSE_REPLY]
        lost = asyncio.Event()

        def lose(operation: Operation) -> Fault | None:
            if operation.name != "multi" or not faults:
                return None
            lost.set()
            return faults.pop()

        lab.cluster.on_request = lose
        lab.cluster.freeze(lab.store)
        claiming = asyncio.ensure_future(lab.claim())
        await lost.wait()
        claiming.cancel()
        await asyncio.sleep(1)
        assert await lab.rivals_store.exists(lab.node.path) is not None
        await lab.node.release()
        assert await lab.rivals_store.exists(lab.node.path) is None

    run(scenario())
