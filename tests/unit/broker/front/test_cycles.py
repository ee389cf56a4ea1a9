"""What a connection leaves behind is gone with it, and does not wait for the collector of cycles.

Old objects are looked at late, and all at once, for as long as a second: whoever comes and goes as
often as it likes would pile up hundreds of MiB, and then stop the loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import PASSWORD_MECHANISMS
from client.wire.kafka.apis import ApiKey
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud, until
from tests.fakes.sasl_client import add_user, log_in
from tests.fakes.wire_client import WireClient
from tests.unit.broker.security.test_listeners import trusting

COUNT = 5
OURS = (
    *("broker.front.server", "broker.front.pause", "broker.security"),
    *("client.node.framed_server", "client.node.tls.transport", "client.wire"),
)
"""Modules of what a connection is made of."""


@contextmanager
def left_to_the_collector(found: Counter[str]) -> Iterator[None]:
    """Count what of ours only the collector of cycles could release, by class.

    What was there before is left out: another test's broker may become garbage just now.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        for one in gc.garbage:
            if type(one).__module__.startswith(OURS):
                found[type(one).__qualname__] += 1
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


async def visit(broker: Broker, listener: str, mechanism: str, password: str, folder: Path) -> None:
    """Come, log in or not, ask for something, and go."""
    tls = trusting(folder) if listener.endswith("SSL") else None
    client = await WireClient.connect(broker.ports[listener], tls=tls)
    if mechanism:
        answer = await log_in(client, mechanism, "anna", password)
        assert bool(answer.error_code) == (password == "wrong")
    if password == "wrong":
        assert await client.is_closed()
    else:
        await client.call(ApiKey.METADATA, 9, topics=[])
    await client.close()


@pytest.mark.parametrize(
    ("listener", "mechanism", "password"),
    [
        ("PLAINTEXT", "", ""),
        ("SASL_PLAINTEXT", "PLAIN", "secret"),
        ("SASL_PLAINTEXT", "PLAIN", "wrong"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", "secret"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", "wrong"),
        ("SASL_SSL", "SCRAM-SHA-512", "secret"),
        ("SASL_SSL", "SCRAM-SHA-512", "wrong"),
    ],
)
async def test_a_connection_is_in_no_cycle(
    listener: str, mechanism: str, password: str, tmp_path: Path
) -> None:
    certificates.write(tmp_path)
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
    security = SecurityConfig(
        listeners=tuple(f"{name}://127.0.0.1:0" for name in names),
        sasl_mechanisms=PASSWORD_MECHANISMS,
        sasl_failure_delay_ms=0,
        tls_cert=tmp_path / "broker.pem",
        tls_key=tmp_path / "broker.key",
    )
    cloud = FakeCloud()
    broker = await cloud.start_broker(1, port=9092, security=security)
    inside = await WireClient.connect(broker.port)
    await add_user(inside, "anna", "secret")
    await inside.close()

    async def come_and_go() -> None:
        await visit(broker, listener, mechanism, password, tmp_path)
        await until(lambda: not broker.server.connection_count)
        await asyncio.sleep(0)

    await come_and_go()
    found: Counter[str] = Counter()
    with left_to_the_collector(found):
        for _ in range(COUNT):
            await come_and_go()
    assert found == {}
    await cloud.close()
