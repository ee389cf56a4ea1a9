"""Attacks on a broker that wants TLS and a login, before and after it got them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from typing import Any, Final

from kio.schema.errors import ErrorCode

from client.wire.kafka.apis import ApiKey
from tests.fakes.wire_client import WireClient
from tests.fuzz.mutate import mutate
from tests.hostile.attacks.failed_logins import failed_logins
from tests.hostile.attacks.target import Attack, Target, until
from tests.integration.memory_crowd import crowd

_CROWD: Final = 2_000
_LOGINS: Final = 200
_MANGLED: Final = 600
_TOKENS: Final = (
    b"n,,n=nobody,r=nonce", b"c=biws,r=nonce,p=AAAA", b"", b"\0a\0b", b"n" * 9_000,
)  # fmt: skip
_ENTRIES: Final = 2_000
_AT_ONCE: Final = 1_000
_HELLO: Final = bytes.fromhex("16030101ff010001fb0303")
"""How a ClientHello begins, of which no more comes."""


async def handshakes(target: Target) -> str:
    """Two thousand connections whose handshake has begun, or not, and never ends: of one address,
    beside which others get in, and then of many."""
    loop = asyncio.get_running_loop()
    stalled = []
    for _ in range(_CROWD // 2):
        with contextlib.suppress(ConnectionError):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, "127.0.0.1", target.port, local_addr=("127.0.0.9", 0)
            )
            transport.write(_HELLO)
            stalled.append(transport)
    client = await target.connect()
    await client.close()
    for transport in stalled:
        transport.abort()
    async with crowd([b"", _HELLO, b"\x16\x03\x01"], target.port, _CROWD) as members:
        await asyncio.sleep(2.0)

    async def is_open() -> bool:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await (await target.connect()).close()
            return True
        return False

    await until(is_open, 10)
    return f"{len(stalled)} of one address, others log in; {len(members)} of many"


async def endless_logins(target: Target) -> str:
    """Clients that claim a token, and send it byte by byte, or claim one that is too large."""
    clients = await _handshaken(target, _LOGINS)
    said = 0
    claim = struct.pack(">ihhih", 60_000, ApiKey.SASL_AUTHENTICATE, 1, 1, -1)
    for at, client in enumerate(clients):
        client.send_raw(claim if at % 2 else struct.pack(">i", 1 << 30))
    for _ in range(20):
        for client in clients[1::2]:
            client.send_raw(b"\x00")
            said += 1
        await asyncio.sleep(0.1)
    assert all([await client.is_closed() for client in clients[::2]]), "too large, and not closed"
    async with asyncio.timeout(20):
        for client in clients[1::2]:
            assert await client.is_closed(20), "no login, and not closed"
    return f"{_LOGINS} connections, all closed by themselves"


async def mangled(target: Target) -> str:
    """Handshakes and logins that are mangled, cut, out of order and repeated, from a fixed seed."""
    rng = random.Random(5)
    before = await target.connect()
    frames = [
        before.frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": target.settings["sasl.mechanism"]}),
        before.frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "none of these"}),
        *(before.frame(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": token}) for token in _TOKENS),
    ]
    await before.close()
    ended = 0
    for at in range(_MANGLED):
        sent = rng.choices(frames, k=rng.randint(1, 4))
        data = mutate([b"".join(sent)], rng) if at % 3 else b"".join(sent)
        if at % 2:  # on the bare port, where a ClientHello is due
            client = await WireClient.connect(target.port)
            data = mutate([_HELLO, data], rng)
        else:
            client = await WireClient.connect(target.port, tls=target.tls())
        client.send_raw(data[: rng.randint(1, len(data) + 1)])
        if at % 5:
            await client.close()
        else:
            with contextlib.suppress(TimeoutError):
                ended += await client.is_closed(0.2)
            await client.close()
    await target.log_in()  # from the same address, which has failed so often that it has to wait
    return (
        f"{_MANGLED} connections, of {_MANGLED // 5} that waited {ended} were closed by the broker"
    )


async def wrong_passwords(target: Target) -> str:
    """Many logins of a user who does not exist, at once."""
    clients = await _handshaken(target, _LOGINS)

    async def guess(client: WireClient) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            mechanism = target.settings["sasl.mechanism"]
            await client.call(ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
            client.send(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"n,,n=nobody,r=nonce")
            first = await client.receive(20)
            if first.error_code is ErrorCode.none:
                proof = b"c=biws,r=nonce,p=" + b"A" * 88
                client.send(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=proof)
                assert (await client.receive(20)).error_code is not ErrorCode.none
        await client.close()

    await asyncio.gather(*map(guess, clients))
    return f"{_LOGINS} failed logins"


async def _handshaken(target: Target, count: int) -> list[WireClient]:
    context, found = target.tls(), []
    for at in range(0, count, 20):
        some = (WireClient.connect(target.port, tls=context) for _ in range(min(20, count - at)))
        found += await asyncio.gather(*some)
    return found


async def many_entries(target: Target) -> str:
    """Thousands of access control entries, each about another resource, and lists of them."""
    client = await target.connect()
    refused = 0
    for first in range(0, _ENTRIES, _AT_ONCE):
        rows = [_entry(at) for at in range(first, first + _AT_ONCE)]
        client.send(ApiKey.CREATE_ACLS, 1, creations=rows)
        answer = await client.receive(120)
        refused += sum(row.error_code is not ErrorCode.none for row in answer.results)
    for _ in range(5):
        client.send(ApiKey.DESCRIBE_ACLS, 1, **_every(resource_type_filter=2))
        listed = len((await client.receive(60)).resources)
    assert listed >= _ENTRIES - refused
    client.send(
        ApiKey.DELETE_ACLS, 1, filters=[_every(resource_type_filter=2, principal_filter="User:u")]
    )
    await client.receive(120)
    await client.close()
    return f"{_ENTRIES} entries, {refused} refused"


def _entry(at: int) -> dict[str, Any]:
    return {
        "resource_type": 2, "resource_name": f"n{at}", "resource_pattern_type": 3,
        "principal": "User:u", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip


def _every(**more: Any) -> dict[str, Any]:
    return {
        "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1, **more,
    }  # fmt: skip


async def many_quotas(target: Target) -> str:
    """Quotas of thousands of users."""
    client = await target.connect()
    refused = 0
    for first in range(0, _ENTRIES, _AT_ONCE):
        rows = [
            {
                "entity": [{"entity_type": "user", "entity_name": f"u{at}"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
            for at in range(first, first + _AT_ONCE)
        ]  # fmt: skip
        client.send(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=rows, validate_only=False)
        answer = await client.receive(120)
        refused += sum(row.error_code is not ErrorCode.none for row in answer.entries)
    client.send(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    listed = len((await client.receive(60)).entries or ())
    await client.close()
    assert listed >= _ENTRIES - refused
    return f"{_ENTRIES} entities, {refused} refused"


ATTACKS: Final = (
    Attack("tls handshakes that never end", handshakes, "secured"),
    Attack("tls logins that never end", endless_logins, "secured"),
    Attack("tls handshakes and logins that are mangled", mangled, "secured"),
    Attack("tls logins with wrong passwords", wrong_passwords, "secured"),
    Attack("tls very many failed logins", failed_logins, "secured"),
    Attack("many access control entries", many_entries, "secured"),
    Attack("many quotas", many_quotas, "secured"),
)
