"""A broker over fake ledgers, and a client that sends exactly what it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    return await cloud.start_broker(1)


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    yield made
    await made.close()
