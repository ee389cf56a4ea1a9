"""Spark's sink and source at brokers with TLS and a login.

The broker runs in the test's process, over ledgers that are in memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import Mechanism
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud
from tests.fakes.clock import WallClock
from tests.fakes.sasl_client import add_user
from tests.fakes.wire_client import WireClient

T = TypeVar("T")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
WITH_PASSWORDS = tuple(one for one in Mechanism if one is not Mechanism.OAUTHBEARER)
"""Tokens are in `tests/integration/clients/test_secured_tokens.py`."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return certificates.write(tmp_path)


class BrokerThread:
    """A broker on a loop of its own: Spark's calls block, and want the main thread."""

    def __init__(self, files: Path) -> None:
        self._files = files
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def start(self) -> None:
        self.cloud = FakeCloud(clock=WallClock())
        security = SecurityConfig(
            listeners=tuple(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
            sasl_mechanisms=WITH_PASSWORDS,
            tls_cert=self._files / "broker.pem",
            tls_key=self._files / "broker.key",
            tls_client_auth="required",
            tls_client_ca=self._files / "authority.pem",
            sasl_reauth_max_ms=1_000,
        )
        self.broker = await self.cloud.start_broker(1, port=9092, security=security)
        client = await WireClient.connect(self.broker.port)
        await add_user(client, "anna", "secret")
        await client.close()
        await self.broker.topics.create("orders")

    def stop(self) -> None:
        self.run(self.cloud.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def broker(files: Path) -> Iterator[Broker]:
    thread = BrokerThread(files)
    thread.run(thread.start())
    yield thread.broker
    thread.stop()


def options(broker: Broker, files: Path, way: str, password: str = "secret") -> dict[str, str]:
    protocol, _, mechanism = way.partition(" ")
    found = {
        "kafka.bootstrap.servers": f"127.0.0.1:{broker.ports[protocol]}",
        "kafka.security.protocol": protocol,
        "kafka.ssl.ca.location": str(files / "authority.pem"),
    }
    if mechanism:
        return found | {
            "kafka.sasl.mechanism": mechanism, "kafka.sasl.username": "anna",
            "kafka.sasl.password": password,
        }  # fmt: skip
    return found | {
        "kafka.ssl.certificate.location": str(files / "anna.pem"),
        "kafka.ssl.key.location": str(files / "anna.key"),
    }


@pytest.mark.parametrize("way", ["SSL", *(f"SASL_SSL {one}" for one in WITH_PASSWORDS)])
def test_rows_go_there_and_back(spark: SparkSession, broker: Broker, files: Path, way: str) -> None:
    where = options(broker, files, way)
    rows = spark.range(500).selectExpr("cast(id as string) as value")
    rows.write.format("quire").mode("append").options(**where, topic="orders").save()
    read = spark.read.format("quire").options(**where, subscribe="orders").load()
    found = [int(row.value) for row in read.select("value").collect()]
    assert sorted(found) == list(range(500))


def test_a_wrong_password_is_named(spark: SparkSession, broker: Broker, files: Path) -> None:
    where = options(broker, files, "SASL_SSL SCRAM-SHA-256", "wrong")
    more = {"subscribe": "orders", "fetch.timeoutMs": "2000", "fetchOffset.numRetries": "0"}
    with pytest.raises(PySparkException, match="the user or the password is wrong"):
        spark.read.format("quire").options(**where, **more).load().collect()
