"""Probes tell a serving node from silence and from nonsense."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

from ops import probes, zookeeper
from ops.ports import pick_free

Answer = Callable[[bytes], bytes]


async def ask(probe: Callable[[str, int], Awaitable[bool]], answer: Answer) -> bool:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.read(1024)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await probe("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def test_api_versions() -> None:
    def good(request: bytes) -> bytes:
        length, key, version, correlation_id, client_id = struct.unpack(">ihhih", request)
        assert (length, key, version, client_id) == (10, 18, 0, -1)
        return struct.pack(">iihi", 10, correlation_id, 0, 0)

    assert await ask(probes.kafka_answers, good)
    assert not await ask(probes.kafka_answers, lambda request: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert not await ask(probes.kafka_answers, lambda request: good(request)[:9])
    assert not await ask(probes.kafka_answers, lambda request: good(request)[:8] + b"\0\x23" * 3)
    assert not await probes.kafka_answers("127.0.0.1", pick_free(1)[0])


async def test_which_brokers_are_known() -> None:
    async def known(body: bytes) -> frozenset[int]:
        found: list[frozenset[int]] = []

        async def probe(host: str, port: int) -> bool:
            found.append(await probes.kafka_brokers(host, port))
            return True

        def answer(request: bytes) -> bytes:
            length, key, version, correlation_id, client_id, topics = struct.unpack(
                ">ihhihi", request
            )
            assert (length, key, version, client_id, topics) == (14, 3, 1, -1, 0)
            return struct.pack(">ii", 4 + len(body), correlation_id) + body

        assert await ask(probe, answer)
        return found[0]

    two = b"".join(struct.pack(">ih9sih", broker, 9, b"127.0.0.1", 9092, -1) for broker in (0, 7))
    assert await known(struct.pack(">i", 2) + two + b"controller and topics") == {0, 7}
    assert await known(struct.pack(">i", 3) + two) == frozenset()
    assert await known(b"") == frozenset()
    assert await probes.kafka_brokers("127.0.0.1", pick_free(1)[0]) == frozenset()


async def test_a_listening_port() -> None:
    assert await ask(probes.accepts, lambda request: b"")
    assert not await probes.accepts("127.0.0.1", pick_free(1)[0])


async def test_ruok() -> None:
    assert await ask(zookeeper.answers, lambda request: b"imok" if request == b"ruok" else b"?")
    assert not await ask(zookeeper.answers, lambda request: b"no!!")
    assert not await zookeeper.answers("127.0.0.1", pick_free(1)[0])
