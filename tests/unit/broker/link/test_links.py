"""Brokers that ask each other over real sockets, with a hello before anything else."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from broker.errors import NotEnoughReplicas, PeerError, PeerUnanswered, PeerUnavailable
from broker.front.services import Peer
from broker.link.core.link_api import LinkApi
from broker.link.links import Links
from broker.security.config import SecurityConfig
from broker.security.rights import CLUSTER_ACTION
from client.callbacks import Kind
from client.ids import BrokerId
from tests.fakes.broker import FakeCloud, until
from tests.fakes.link_stranger import Stranger
from tests.fakes.raised import Reports, broken
from tests.fakes.scrape import parse

ECHO: LinkApi[str, str] = LinkApi(
    kind=99,
    name="echo",
    encode_request=str.encode,
    decode_request=lambda body: str(body, "utf-8"),
    encode_answer=str.encode,
    decode_answer=lambda body: str(body, "utf-8"),
)


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


def links_of(broker: Broker) -> Links:
    return next(one for one in broker._background if isinstance(one, Links))


async def pair(cloud: FakeCloud, **settings: int) -> tuple[Broker, Broker]:
    one = await cloud.start_broker(1, **settings)
    two = await cloud.start_broker(2, **settings)
    return one, two


async def echo(sender: BrokerId, request: str) -> str:
    return f"{sender} said {request}"


async def test_brokers_ask_each_other_and_themselves(cloud: FakeCloud) -> None:
    one, two = await pair(cloud)
    for broker in (one, two):
        links_of(broker).services.serve(ECHO, echo)
    assert await links_of(one).ask(BrokerId(2), ECHO, "hi") == "1 said hi"
    assert await links_of(two).ask(BrokerId(1), ECHO, "hi") == "2 said hi"
    opened = two.metrics.connections_opened
    answers = await asyncio.gather(
        *(links_of(one).ask(BrokerId(2), ECHO, str(number)) for number in range(250))
    )
    assert answers == [f"1 said {number}" for number in range(250)]
    assert two.metrics.connections_opened == opened, "the connection is kept"
    assert await links_of(one).ask(BrokerId(1), ECHO, "me") == "1 said me"
    assert one_sample(one, "link_requests_total", state="answered") >= 251
    assert one_sample(one, "links_up") >= 1
    assert one_sample(one, "link_requests_open") == 0


def one_sample(broker: Broker, name: str, **labels: str) -> float:
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return parse(broker.metrics.exposition())[
        f"quire_broker_{name}" + (f"{{{shown}}}" if shown else "")
    ]


async def test_who_raises_on_an_outcome_costs_no_other_its_outcome(cloud: FakeCloud) -> None:
    one, two = await pair(cloud)
    reports = Reports()
    for broker in (one, two):
        links_of(broker).services.serve(ECHO, echo)
    assert await links_of(one).ask(BrokerId(2), ECHO, "hi") == "1 said hi"
    link = links_of(one)._link(BrokerId(2), "")
    link.ask(ECHO.kind, b"first", broken)
    waiting = asyncio.ensure_future(links_of(one).ask(BrokerId(2), ECHO, "second"))
    await asyncio.sleep(0)
    link.close()
    with pytest.raises(PeerError):
        await waiting
    assert reports.kinds() == {Kind.LINK: 1}


async def test_more_than_may_wait_is_refused_and_not_sent(cloud: FakeCloud) -> None:
    one, two = await pair(cloud, link_requests_max=2)
    gate, asked = asyncio.Event(), []

    async def wait(sender: BrokerId, request: str) -> str:
        asked.append(request)
        await gate.wait()
        return request

    links_of(two).services.serve(ECHO, wait)
    tasks = [
        asyncio.create_task(links_of(one).ask(BrokerId(2), ECHO, str(number)))
        for number in range(12)
    ]
    await until(lambda: len(asked) == 2)
    gate.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert len([1 for one in outcomes if isinstance(one, PeerUnavailable)]) == 4
    assert len(asked) == 8


async def test_what_a_service_raises_is_a_refusal(cloud: FakeCloud) -> None:
    one, two = await pair(cloud)

    async def fail(sender: BrokerId, request: str) -> str:
        if request == "bug":
            raise ZeroDivisionError
        raise NotEnoughReplicas("nobody is there")

    links_of(two).services.serve(ECHO, fail)
    with pytest.raises(PeerUnanswered, match="nobody is there"):
        await links_of(one).ask(BrokerId(2), ECHO, "x")
    with pytest.raises(PeerUnanswered, match="unexpectedly"):
        await links_of(one).ask(BrokerId(2), ECHO, "bug")


async def test_a_peer_that_hangs_is_left(cloud: FakeCloud) -> None:
    one, two = await pair(cloud, link_answer_max_ms=100)
    hanging = True

    async def hang(sender: BrokerId, request: str) -> str:
        if hanging:
            await asyncio.Event().wait()
        return request

    links_of(two).services.serve(ECHO, hang)
    waiting = [asyncio.create_task(links_of(one).ask(BrokerId(2), ECHO, "x")) for _ in range(3)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in outcomes} == {PeerUnanswered}
    with pytest.raises(PeerUnavailable):
        await links_of(one).ask(BrokerId(2), ECHO, "during the pause")
    hanging = False

    async def again() -> None:
        while True:
            try:
                assert await links_of(one).ask(BrokerId(2), ECHO, "again") == "again"
            except PeerUnavailable:
                await asyncio.sleep(0.01)
            else:
                return

    await asyncio.wait_for(again(), 5)


async def test_a_host_that_is_no_name_ends_nobody_else(cloud: FakeCloud) -> None:
    """What a broker is told to advertise is asked of by the others, who must not end for it."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    one = await cloud.start_broker(1)
    await cloud.start_broker(2, advertised_host="my..host", advertised_port=9092)
    for _ in range(3):
        with pytest.raises(PeerUnavailable):
            await asyncio.wait_for(links_of(one).ask(BrokerId(2), ECHO, "x"), 5)
    await asyncio.sleep(0.6)
    assert told == []


async def test_a_broker_that_stops_answers_nobody_and_its_successor_does(cloud: FakeCloud) -> None:
    one, two = await pair(cloud)

    async def hang(sender: BrokerId, request: str) -> str:
        await asyncio.Event().wait()
        return request

    links_of(two).services.serve(ECHO, hang)
    waiting = asyncio.create_task(links_of(one).ask(BrokerId(2), ECHO, "x"))
    await until(lambda: bool(links_of(two).services._tasks))
    await cloud.brokers.pop(2).close()
    with pytest.raises(PeerUnanswered):
        await waiting
    await until(lambda: 2 not in one.cluster.brokers)
    with pytest.raises(PeerUnavailable):
        await links_of(one).ask(BrokerId(2), ECHO, "x")
    successor = await cloud.start_broker(2)
    links_of(successor).services.serve(ECHO, echo)
    assert await links_of(one).ask(BrokerId(2), ECHO, "hi") == "1 said hi"


async def test_a_listener_of_another_kind_is_told_from_a_broker(cloud: FakeCloud) -> None:
    """It hangs up on a request that it does not know, as Kafka's brokers do."""
    one, two = await pair(cloud)

    class HangsUp(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    listener = await asyncio.get_running_loop().create_server(HangsUp, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    elsewhere = dataclasses.replace(one.cluster.brokers[BrokerId(2)], port=port)
    one.cluster.brokers = {**one.cluster.brokers, BrokerId(2): elsewhere}
    with pytest.raises(PeerUnavailable, match="closed the connection"):
        await links_of(one).ask(BrokerId(2), ECHO, "x")
    listener.close()
    assert two.metrics.protocol_errors == 0


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cluster_id": "other"}, "a broker of cluster"),
        ({"receiver": BrokerId(3)}, "this is broker 1"),
        ({"receiver_incarnation": "before"}, "this is broker 1"),
        ({"sender": BrokerId(7)}, "not registered"),
        ({"sender_incarnation": "dead"}, "not registered"),
    ],
)
async def test_a_hello_has_to_fit(cloud: FakeCloud, wrong: dict[str, object], why: str) -> None:
    one, _ = await pair(cloud)
    links_of(one).services.serve(ECHO, echo)
    async with Stranger(one) as stranger:
        assert why in (await stranger.ask(0, stranger.hello(**wrong)) or "")
        assert await stranger.ask(ECHO.kind, b"x") == "closed"
    async with Stranger(one) as stranger:
        assert await stranger.ask(0, stranger.hello()) is None
        assert await stranger.ask(ECHO.kind, b"x") is None


async def test_strangers_cost_their_connection_and_nothing_else(cloud: FakeCloud) -> None:
    one, _ = await pair(cloud)
    links_of(one).services.serve(ECHO, echo)
    for kind, body in ((ECHO.kind, b"x"), (0, b""), (0, b"\x7f\xff" + b"a" * 50), (-1, b"")):
        async with Stranger(one) as stranger:
            assert await stranger.ask(kind, body) == "closed"
    async with Stranger(one) as stranger:
        assert await stranger.ask(0, stranger.hello()) is None
        assert await stranger.ask(98, b"") == "closed"
    assert await links_of(one).ask(BrokerId(1), ECHO, "me") == "1 said me"


async def test_clients_do_not_reach_it_by_a_listener_of_theirs(cloud: FakeCloud) -> None:
    listeners = ("CLIENTS://127.0.0.1:0", "BROKERS://127.0.0.1:0")
    security = SecurityConfig(
        listeners=listeners,
        listener_protocols=("CLIENTS:PLAINTEXT", "BROKERS:PLAINTEXT"),
        inter_broker_listener="BROKERS",
    )
    one = await cloud.start_broker(1, security=security, port=9092)
    await cloud.start_broker(2)
    async with Stranger(one, one.ports["CLIENTS"]) as stranger:
        assert await stranger.ask(0, stranger.hello()) == "closed"
    async with Stranger(one) as stranger:
        assert await stranger.ask(0, stranger.hello()) is None


async def test_clients_are_not_told_of_it(cloud: FakeCloud) -> None:
    one = await cloud.start_broker(1)
    assert max(one.services.served) < 1_000


@pytest.mark.parametrize(("named", "answer"), [("BROKERS", None), (None, "closed")])
async def test_a_listener_of_the_brokers_own_is_the_right_to_link(
    cloud: FakeCloud, named: str | None, answer: str | None
) -> None:
    """Otherwise ANONYMOUS would need it, and would have it at every listener."""
    security = SecurityConfig(
        authorization=True,
        inter_broker_listener=named,
        listeners=("CLIENTS://127.0.0.1:0", "BROKERS://127.0.0.1:0"),
        listener_protocols=("CLIENTS:PLAINTEXT", "BROKERS:PLAINTEXT"),
    )
    one = await cloud.start_broker(1, security=security, port=9092)
    await cloud.start_broker(2)
    await until(lambda: 2 in one.cluster.brokers)
    async with Stranger(one, one.ports[named or "CLIENTS"]) as stranger:
        assert await stranger.ask(0, stranger.hello()) == answer
    async with Stranger(one, one.ports["CLIENTS"]) as stranger:
        assert await stranger.ask(0, stranger.hello()) == "closed"
    assert not one.services.rights.may(Peer("h", 1, "h", 2, "BROKERS"), CLUSTER_ACTION)
