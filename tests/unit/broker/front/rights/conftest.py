"""A broker with authorization, and a client of it that may do nothing yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.app import Broker
from tests.fakes.broker import FakeCloud
from tests.fakes.wire_client import WireClient
from tests.unit.broker.front.rights.authorized_broker import start


@pytest.fixture
async def cloud() -> AsyncIterator[FakeCloud]:
    made = FakeCloud()
    yield made
    await made.close()


@pytest.fixture
async def broker(cloud: FakeCloud) -> Broker:
    """With nobody who may do anything."""
    return await start(cloud, "User:root")


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(broker.port)
    yield made
    await made.close()
