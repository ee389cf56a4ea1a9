"""From open to closed without downtime, as the handbook has it: each step under load.

Three brokers in the test's process are restarted one after the other with the next step's settings,
at the same ports, while one client writes and reads at the old listener, and then at the new one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

from broker.security.config import SecurityConfig
from client.kafka_security import security_of
from client.pubsub.brokers import Brokers
from ops.ports import pick_free
from ops.security.roles import READER, WRITER, Role, entries_of
from ops.security.security_admin import SecurityAdmin
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud, until
from tests.fakes.clock import WallClock

IDS = (1, 2, 3)


class Load:
    """Writes numbers, one after the other, and remembers those that were acknowledged."""

    def __init__(self, settings: dict[str, Any], start: int) -> None:
        self.stored: list[int] = []
        self.failed: list[str] = []
        self._next = start
        self._producer = confluent_kafka.Producer(
            {**settings, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 30_000}
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            number = self._next
            self._next += 1

            def on_delivery(error: Any, _message: Any, number: int = number) -> None:
                if error is None:
                    self.stored.append(number)
                else:
                    self.failed.append(str(error))

            self._producer.produce("orders", f"{number}".encode(), on_delivery=on_delivery)
            self._producer.poll(0.01)
        self._producer.flush(40)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


class Steps:
    """The settings of each step, and what clients need."""

    def __init__(self, files: Path) -> None:
        self.files = files
        ports = pick_free(6)
        self.open = dict(zip(IDS, ports[:3], strict=True))
        self.closed = dict(zip(IDS, ports[3:], strict=True))

    def security(self, node: int, step: int) -> SecurityConfig:
        listeners = [f"PLAINTEXT://127.0.0.1:{self.open[node]}"]
        settings: dict[str, Any] = {}
        if step >= 1:
            listeners.append(f"SASL_SSL://127.0.0.1:{self.closed[node]}")
            settings |= {
                "tls_cert": self.files / "broker.pem", "tls_key": self.files / "broker.key",
                "tls_peer_ca": self.files / "authority.pem", "inter_broker_user": "brokers",
                "inter_broker_password": "of brokers", "inter_broker_listener": "PLAINTEXT",
            }  # fmt: skip
        if step >= 2:
            settings |= {
                "inter_broker_listener": "SASL_SSL", "authorization": True,
                "super_users": ("User:brokers",), "allow_everyone_if_no_acl_found": step < 4,
            }  # fmt: skip
        if step >= 4:
            listeners = listeners[1:]
        return SecurityConfig(listeners=tuple(listeners), **settings)

    def client(self, user: str = "", password: str = "") -> dict[str, Any]:
        ports = self.closed if user else self.open
        servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        if not user:
            return {"bootstrap.servers": servers}
        return {
            "bootstrap.servers": servers, "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password,
            "ssl.ca.location": str(self.files / "authority.pem"),
        }  # fmt: skip

    def admin(self) -> SecurityAdmin:
        settings = self.client("brokers", "of brokers")
        return SecurityAdmin(Brokers(settings.pop("bootstrap.servers"), security_of(settings)))


async def restart(cloud: FakeCloud, steps: Steps, step: int) -> None:
    """One broker after the other, the next one when this one leads again."""
    for node in IDS:
        if node in cloud.brokers:
            await cloud.brokers.pop(node).close()
            await cloud.stores.pop(node).close()
        broker = await cloud.start_broker(node, port=9092, security=steps.security(node, step))
        await until(lambda broker=broker: not broker.unready(), 20)  # type: ignore[misc]
        await asyncio.sleep(0.5)


async def test_every_step_under_load(tmp_path: Path) -> None:
    steps = Steps(certificates.write(tmp_path))
    cloud = FakeCloud(clock=WallClock())
    await restart(cloud, steps, 0)
    admin = AdminClient(steps.client())
    new = confluent_kafka.admin.NewTopic("orders", 6)
    await asyncio.to_thread(lambda: admin.create_topics([new])["orders"].result(20))
    old = Load(steps.client(), 0)

    await restart(cloud, steps, 1)
    await asyncio.to_thread(make_users, steps)
    await restart(cloud, steps, 2)
    before = len(old.stored)
    await asyncio.to_thread(give_roles, steps, "anna", "ANONYMOUS")
    await asyncio.sleep(1)
    assert len(old.stored) > before, "whoever has not moved goes on"

    moved = Load(steps.client("anna", "of anna"), 1_000_000)
    await asyncio.sleep(1)
    await asyncio.to_thread(old.stop)
    await asyncio.to_thread(take_roles, steps, "ANONYMOUS")
    await restart(cloud, steps, 4)
    await asyncio.sleep(1)
    await asyncio.to_thread(moved.stop)

    assert not old.failed and not moved.failed
    assert len(old.stored) > 100 and len(moved.stored) > 50
    found = await asyncio.to_thread(consumed, steps, len(old.stored) + len(moved.stored))
    assert found == sorted([*old.stored, *moved.stored])
    await cloud.close()


def make_users(steps: Steps) -> None:
    with steps.admin() as admin:
        admin.set_password("anna", "of anna", ("SCRAM-SHA-512",))


def _roles(user: str) -> list[Role]:
    principal = f"User:{user}"
    return [Role(principal, WRITER, "orders"), Role(principal, READER, "orders", "billing")]


def give_roles(steps: Steps, *users: str) -> None:
    with steps.admin() as admin:
        admin.add(entry for user in users for role in _roles(user) for entry in entries_of(role))


def take_roles(steps: Steps, user: str) -> None:
    with steps.admin() as admin:
        admin.remove({entry for role in _roles(user) for entry in entries_of(role)})


def consumed(steps: Steps, count: int) -> list[int]:
    settings = steps.client("anna", "of anna")
    consumer = confluent_kafka.Consumer(
        {**settings, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    until_s = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until_s:
        found += [int(m.value()) for m in consumer.consume(500, 1.0) if m.error() is None]
    consumer.close()
    return sorted(found)
