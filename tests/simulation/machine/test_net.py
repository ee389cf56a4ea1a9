"""The simulated network: order, splitting, back-pressure, cuts, deaths, refusals."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.machine.hosts import Host, Process
from tests.simulation.machine.loop import SimLoop
from tests.simulation.machine.net import NetOptions, SimNet, Slowness

PORT = 3181


class World:
    """A loop, a network and two machines, `a` and `b`."""

    def __init__(self, seed: int = 1, *, hostile: bool = False, **options: Any) -> None:
        self.loop = SimLoop(random.Random(seed), hostile=hostile)
        self.net = SimNet(self.loop, random.Random(seed + 1), NetOptions(**options))
        self.a, self.b = self.net.add_host("a"), self.net.add_host("b")

    def boot(self, host: Host, main: Callable[[], Coroutine[Any, Any, Any]]) -> Process:
        process = self.loop.start_process(host, main)
        self.net.bind(process)
        return process

    def run(self, drive: Coroutine[Any, Any, Any]) -> Any:
        try:
            return self.loop.run_until_complete(drive)
        finally:
            self.loop.dispose()


class Recorder(asyncio.Protocol):
    """Remembers everything it is told, with times."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.data = bytearray()
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.log.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.log[-1] != "data":
            self.log.append("data")

    def eof_received(self) -> None:
        self.log.append("eof")

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append("lost")
        self.lost.append(exc)


def server_main(protocols: list[Recorder]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def main() -> None:
        def factory() -> Recorder:
            protocols.append(Recorder())
            return protocols[-1]

        server = await asyncio.get_running_loop().create_server(factory, "0.0.0.0", PORT)
        assert server.sockets[0].getsockname()[1] == PORT
        await server.serve_forever()

    return main


def client_main(clients: list[Recorder]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.1)
        _, protocol = await loop.create_connection(Recorder, "b", PORT)
        clients.append(protocol)
        await asyncio.sleep(1000)

    return main


async def connected(world: World) -> tuple[Recorder, Recorder]:
    servers: list[Recorder] = []
    clients: list[Recorder] = []
    world.boot(world.b, server_main(servers))
    world.boot(world.a, client_main(clients))
    await asyncio.sleep(5)
    return clients[0], servers[0]


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("hold", [False, True])
def test_bytes_arrive_once_in_order_however_they_are_split(hostile: bool, hold: bool) -> None:
    world = World(hostile=hostile, split_p=0.5, tail_p=0.2, tail_s=0.05, hold_references=hold)

    async def drive() -> None:
        client, server = await connected(world)
        sent = b""
        for number in range(200):
            piece = bytes([number]) * (number + 1)
            client.transport.writelines([piece[:3], memoryview(piece[3:])])
            sent += piece
            await asyncio.sleep(world.loop.rng.random() * 0.01)
        client.transport.close()
        await asyncio.sleep(10)
        assert bytes(server.data) == sent
        assert server.log[-2:] == ["eof", "lost"]
        assert client.lost == [None]
        assert server.lost == [None]

    world.run(drive())


def test_a_reader_that_pauses_stops_the_writer() -> None:
    world = World(window_bytes=1000)

    async def drive() -> None:
        client, server = await connected(world)
        server.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=2000, low=500)
        client.transport.write(b"x" * 2500)
        assert client.transport.get_write_buffer_size() == 1500
        assert "pause" not in client.log
        client.transport.write(b"y" * 1000)
        assert "pause" in client.log
        await asyncio.sleep(5)
        assert len(server.data) == 0
        server.transport.resume_reading()
        await asyncio.sleep(5)
        assert bytes(server.data) == b"x" * 2500 + b"y" * 1000
        assert client.log[-1] == "resume"

    world.run(drive())


def test_a_slow_link_takes_its_time_for_every_byte_until_it_is_fast_again() -> None:
    world = World(split_p=0.0, window_bytes=2_000)

    async def drive() -> None:
        client, server = await connected(world)
        world.net.slow_down(world.a, world.b, Slowness(1_000.0, 0.5))
        start_s = world.loop.time()
        client.transport.set_write_buffer_limits(high=1_000)
        client.transport.write(b"x" * 10_000)
        assert "pause" in client.log
        server.transport.write(b"y")
        await asyncio.sleep(5)
        assert 2_000 <= len(server.data) < 6_000
        assert client.data == b"y", "the other direction is as fast as ever"
        while len(server.data) < 10_000:  # noqa: ASYNC110  (virtual time)
            await asyncio.sleep(0.01)
        assert world.loop.time() - start_s > 10
        world.net.heal_all()
        client.transport.write(b"z" * 1_000)
        await asyncio.sleep(0.5)
        assert len(server.data) == 11_000

    world.run(drive())


def test_a_cut_holds_bytes_and_delivers_them_after_healing() -> None:
    world = World(give_up_s=100)

    async def drive() -> None:
        client, server = await connected(world)
        world.net.cut(world.a, world.b)
        client.transport.write(b"held")
        server.transport.write(b"other way")
        await asyncio.sleep(10)
        assert bytes(client.data) == b"other way"
        assert not server.data
        world.net.heal(world.a, world.b)
        await asyncio.sleep(2)
        assert bytes(server.data) == b"held"
        assert not client.lost

    world.run(drive())


def test_a_sender_gives_a_cut_connection_up_and_the_other_side_hears_later() -> None:
    world = World(give_up_s=4)

    async def drive() -> None:
        client, server = await connected(world)
        world.net.cut(world.a, world.b)
        world.net.cut(world.b, world.a)
        client.transport.write(b"lost")
        await asyncio.sleep(10)
        assert isinstance(client.lost[0], TimeoutError)
        assert not server.lost, "half open: nothing told the other side"
        world.net.heal_all()
        server.transport.write(b"anybody there?")
        await asyncio.sleep(2)
        assert isinstance(server.lost[0], ConnectionResetError)
        assert not server.data

    world.run(drive())


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_resets_or_ends_its_connections(seed: int) -> None:
    world = World(seed)

    async def drive() -> None:
        client, _ = await connected(world)
        assert world.b.process is not None
        world.loop.kill(world.b.process)
        await asyncio.sleep(1)
        assert client.log[-1] == "lost"

    world.run(drive())


def test_a_dark_machine_is_silent_until_it_is_back() -> None:
    world = World(give_up_s=100)

    async def drive() -> None:
        client, _ = await connected(world)
        assert world.b.process is not None
        world.b.powered = False
        world.loop.kill(world.b.process)
        client.transport.write(b"hello?")
        await asyncio.sleep(20)
        assert not client.lost
        world.b.powered = True
        world.boot(world.b, server_main([]))
        world.net.release_held()
        await asyncio.sleep(3)
        assert isinstance(client.lost[0], ConnectionResetError)

    world.run(drive())


def test_connecting_is_refused_without_a_listener_and_times_out_into_a_cut() -> None:
    world = World(give_up_s=1)
    errors: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            try:
                await loop.create_connection(Recorder, "b", PORT)
            except OSError as error:
                errors.append(error)
            world.net.cut(world.a, world.b)
        try:
            async with asyncio.timeout(0.3):
                await loop.create_connection(Recorder, "b", PORT)
        except TimeoutError as error:
            errors.append(error)

    async def drive() -> None:
        world.boot(world.a, main)
        await asyncio.sleep(30)

    world.run(drive())
    assert [type(error) for error in errors] == [ConnectionRefusedError, TimeoutError, TimeoutError]


def test_two_connections_overtake_each_other() -> None:
    def first(seed: int) -> bytes:
        world = World(seed, latency_s=0.01)
        arrived: list[bytes] = []

        class Arrivals(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                arrived.append(data)

        async def server() -> None:
            await (await world.loop.create_server(Arrivals, "b", PORT)).serve_forever()

        async def client() -> None:
            await asyncio.sleep(1)
            one, _ = await world.loop.create_connection(asyncio.Protocol, "b", PORT)
            two, _ = await world.loop.create_connection(asyncio.Protocol, "b", PORT)
            one.write(b"1")
            two.write(b"2")
            await asyncio.sleep(100)

        async def drive() -> None:
            world.boot(world.b, server)
            world.boot(world.a, client)
            await asyncio.sleep(5)

        world.run(drive())
        assert sorted(arrived) == [b"1", b"2"]
        return arrived[0]

    assert {first(seed) for seed in range(8)} == {b"1", b"2"}


def test_streams_work_and_the_schedule_replays() -> None:
    def once(seed: int) -> tuple[bytes, float, int]:
        world = World(seed, split_p=0.4, tail_p=0.1)
        got: list[bytes] = []

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async def server() -> None:
            await (await asyncio.start_server(echo, "b", PORT)).serve_forever()

        async def client() -> None:
            await asyncio.sleep(1)
            reader, writer = await asyncio.open_connection("b", PORT)
            for number in range(20):
                writer.write(b"line %d\n" % number)
            writer.write_eof()
            got.append(await reader.read())

        async def drive() -> None:
            world.boot(world.b, server)
            process = world.boot(world.a, client)
            await asyncio.wait([process.root])

        world.run(drive())
        return got[0], world.loop.time(), world.loop.digest

    first = once(7)
    assert first[0].count(b"LINE") == 20
    assert once(7) == first
    assert once(8)[2] != first[2]
