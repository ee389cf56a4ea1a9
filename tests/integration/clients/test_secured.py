"""Unmodified clients at listeners with TLS and SASL: they log in, by every mechanism, or may not.

The brokers run in the test's process, over ledgers that are in memory.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka.admin import AdminClient

from broker.app import Broker
from broker.security.config import SecurityConfig
from broker.security.core.scram import PASSWORD_MECHANISMS, Mechanism
from client.kafka_security import read_properties, security_of
from client.pubsub.brokers import Brokers
from client.pubsub.errors import BrokerUnreachable
from client.pubsub.publisher import Publisher
from client.pubsub.subscriber import Subscriber
from client.pubsub.topics import TopicAdmin
from tests.fakes import certificates
from tests.fakes.broker import FakeCloud
from tests.fakes.clock import WallClock
from tests.integration.clients import test_java_tools
from tests.integration.clients.kafka_tools import shared_jvm

MECHANISMS = [str(mechanism) for mechanism in PASSWORD_MECHANISMS]
LISTENERS = tuple(
    f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
)
CONFIGS = "kafka.admin.ConfigCommand"
"""kafka-configs"""
ACLS = "org.apache.kafka.tools.AclCommand"
"""kafka-acls"""
DENIED = {
    confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
}
PASSWORD = "pass,word = 1"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return certificates.write(tmp_path)


@pytest.fixture
async def broker(files: Path) -> AsyncIterator[Broker]:
    """A broker with every kind of listener, and a user made by kafka-configs' API."""
    cloud = FakeCloud(clock=WallClock())
    security = SecurityConfig(
        listeners=LISTENERS,
        sasl_mechanisms=PASSWORD_MECHANISMS,
        tls_cert=files / "broker.pem",
        tls_key=files / "broker.key",
        tls_client_auth="required",
        tls_client_ca=files / "authority.pem",
    )
    broker = await cloud.start_broker(1, port=9092, security=security)
    await in_thread(_add_anna, f"127.0.0.1:{broker.port}")
    yield broker
    await cloud.close()


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a client that blocks beside the broker."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def _add_anna(bootstrap: str) -> None:
    """As librdkafka's admin client does it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rows = [
        confluent_kafka.admin.UserScramCredentialUpsertion(
            "anna", confluent_kafka.admin.ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
        )
        for mechanism in (
            confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256,
            confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512,
        )
    ]
    for done in admin.alter_user_scram_credentials(rows).values():
        done.result(20)
    described = admin.describe_user_scram_credentials(["anna"])["anna"].result(20)
    assert [info.iterations for info in described.scram_credential_infos] == [4096, 4096]


def trusting(files: Path, *, certified: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files / "authority.pem"))
    if certified:
        context.load_cert_chain(files / "anna.pem", files / "anna.key")
    return context


WAYS = [
    "SSL",
    *(f"{protocol} {name}" for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in MECHANISMS),
]
"""Security protocol, and the mechanism if there is one."""


def librdkafka(broker: Broker, files: Path, way: str, password: str = PASSWORD) -> dict[str, Any]:
    protocol, _, mechanism = way.partition(" ")
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{broker.ports[protocol]}",
        "security.protocol": protocol,
        "ssl.ca.location": str(files / "authority.pem"),
    }
    if mechanism:
        settings |= {
            "sasl.mechanism": mechanism, "sasl.username": "anna", "sasl.password": password,
        }  # fmt: skip
    else:
        settings |= {
            "ssl.certificate.location": str(files / "anna.pem"),
            "ssl.key.location": str(files / "anna.key"),
        }
    return settings


@pytest.mark.parametrize("way", WAYS)
async def test_librdkafka(broker: Broker, files: Path, way: str) -> None:
    def traffic() -> list[bytes]:
        settings = librdkafka(broker, files, way)
        producer = confluent_kafka.Producer(settings)
        for number in range(500):
            producer.produce("orders", f"{number}".encode())
        assert producer.flush(30) == 0
        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        found: list[bytes] = []
        while len(found) < 500:
            found += [message.value() for message in consumer.consume(500, 5.0)]
        consumer.close()
        return found

    assert await in_thread(traffic) == [f"{number}".encode() for number in range(500)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_librdkafka_with_a_wrong_password(
    broker: Broker, files: Path, mechanism: str
) -> None:
    settings = librdkafka(broker, files, f"SASL_SSL {mechanism}", "wrong")
    errors: list[Any] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    with pytest.raises(confluent_kafka.KafkaException):
        await in_thread(lambda: producer.list_topics(timeout=2))
    await in_thread(producer.poll, 1)
    assert confluent_kafka.KafkaError._AUTHENTICATION in [error.code() for error in errors]


@pytest.mark.parametrize("way", WAYS)
async def test_aiokafka(broker: Broker, files: Path, way: str) -> None:
    settings = aiokafka_settings(broker, files, way)
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for number in range(20):
            await producer.send_and_wait("orders", f"{number}".encode())
    consumer = aiokafka.AIOKafkaConsumer("orders", auto_offset_reset="earliest", **settings)
    async with consumer:
        found = [(await consumer.getone()).value for _ in range(20)]
    assert found == [f"{number}".encode() for number in range(20)]


def aiokafka_settings(
    broker: Broker, files: Path, way: str, password: str = PASSWORD
) -> dict[str, Any]:
    protocol, _, mechanism = way.partition(" ")
    settings: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{broker.ports[protocol]}",
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        settings["ssl_context"] = trusting(files, certified=not mechanism)
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism, "sasl_plain_username": "anna",
            "sasl_plain_password": password,
        }  # fmt: skip
    return settings


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_with_a_wrong_password(broker: Broker, files: Path, mechanism: str) -> None:
    settings = aiokafka_settings(broker, files, f"SASL_PLAINTEXT {mechanism}", "wrong")
    producer = aiokafka.AIOKafkaProducer(**settings)
    with pytest.raises(AiokafkaError):
        await producer.start()
    await producer.stop()


@pytest.mark.parametrize("way", WAYS)
async def test_kafka_python(broker: Broker, files: Path, way: str) -> None:
    def traffic() -> list[bytes]:
        settings = aiokafka_settings(broker, files, way)
        producer = kafka.KafkaProducer(**settings)
        for number in range(20):
            producer.send("orders", f"{number}".encode())
        producer.flush(30)
        producer.close()
        consumer = kafka.KafkaConsumer(
            "orders", auto_offset_reset="earliest", consumer_timeout_ms=10_000, **settings
        )
        found = [next(consumer).value for _ in range(20)]
        consumer.close()
        return found

    assert await in_thread(traffic) == [f"{number}".encode() for number in range(20)]


# --- Java's tools


def java_properties(broker: Broker, files: Path, way: str, password: str = PASSWORD) -> Path:
    protocol, _, mechanism = way.partition(" ")
    lines = [f"security.protocol={protocol}"]
    if protocol.endswith("SSL"):
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={files / 'authority.pem'}"]
    if mechanism:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        lines += [
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required"
            f' username="anna" password="{password}";',
        ]
    else:
        store = files / "anna.both.pem"
        store.write_text(certificates.ANNA_KEY + certificates.ANNA, encoding="ascii")
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
    path = files / "client.properties"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


async def java(main_class: str, *arguments: str) -> tuple[int, str]:
    """Run one of Kafka's tools beside the broker; return its exit code and what it printed."""
    ended = await in_thread(functools.partial(shared_jvm().run, main_class, *arguments))
    return ended.code, ended.out + ended.err


@pytest.mark.parametrize("way", ["SSL", *(way for way in WAYS if way.startswith("SASL_SSL"))])
async def test_java(broker: Broker, files: Path, way: str) -> None:
    protocol = way.partition(" ")[0]
    code, output = await java(
        test_java_tools.TOPICS, "--bootstrap-server", f"localhost:{broker.ports[protocol]}",
        "--command-config", str(java_properties(broker, files, way)),
        "--create", "--topic", "orders",
    )  # fmt: skip
    assert code == 0, output
    assert "orders" in broker.cluster.topics


async def test_java_with_a_wrong_password(broker: Broker, files: Path) -> None:
    way = "SASL_SSL SCRAM-SHA-512"
    code, output = await java(
        test_java_tools.TOPICS, "--bootstrap-server", f"localhost:{broker.ports['SASL_SSL']}",
        "--command-config", str(java_properties(broker, files, way, "wrong")), "--list",
    )  # fmt: skip
    assert code != 0
    assert "Authentication failed: the user or the password is wrong" in output


async def test_kafka_configs_makes_users(broker: Broker, files: Path) -> None:
    where = ("--bootstrap-server", f"localhost:{broker.port}", "--entity-type", "users")
    code, output = await java(
        CONFIGS, *where, "--entity-name", "bert", "--alter",
        "--add-config", "SCRAM-SHA-512=[iterations=8192,password=b]",
    )  # fmt: skip
    assert code == 0, output
    assert broker.services.users.credentials("bert").keys() == {Mechanism.SCRAM_SHA_512}
    code, output = await java(
        CONFIGS, *where, "--entity-name", "bert", "--alter", "--delete-config", "SCRAM-SHA-512"
    )
    assert code == 0, output
    assert broker.services.users.names() == ["anna"]


async def test_kafka_configs_sets_and_shows_quotas(broker: Broker, files: Path) -> None:
    where = ("--bootstrap-server", f"localhost:{broker.port}")
    for entity, config in (
        (("--entity-type", "users", "--entity-name", "anna"), "producer_byte_rate=1048576"),
        (("--entity-type", "clients", "--entity-default"), "request_percentage=12.5"),
        (("--entity-type", "ips", "--entity-name", "10.0.0.1"), "connection_creation_rate=9"),
    ):
        code, output = await java(CONFIGS, *where, *entity, "--alter", "--add-config", config)
        assert code == 0, output
        code, output = await java(CONFIGS, *where, *entity, "--describe")
        assert code == 0 and config.partition("=")[0] in output, output
    found = {entity: dict(quotas) for entity, quotas in broker.services.quotas.store().all()}
    assert found == {
        (("user", "anna"),): {"producer_byte_rate": 1048576.0},
        (("client-id", None),): {"request_percentage": 12.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 9.0},
    }


async def test_librdkafka_is_told_to_wait_by_its_quota(broker: Broker, files: Path) -> None:
    with_quota = (("user", "anna"),)
    await broker.services.quotas.store().change(with_quota, {"producer_byte_rate": 50_000.0})
    settings = {
        **librdkafka(broker, files, "SASL_SSL SCRAM-SHA-256"),
        "linger.ms": 0,
        "batch.num.messages": 2,  # many requests, and none waits for the answer to another
    }
    throttled: list[float] = []

    def traffic() -> int:
        producer = confluent_kafka.Producer(
            {**settings, "throttle_cb": lambda event: throttled.append(event.throttle_time)}
        )
        stored: list[Any] = []
        for _ in range(70):
            producer.produce("orders", bytes(10_000), on_delivery=lambda e, _: stored.append(e))
            producer.poll(0.01)
        producer.flush(60)
        return stored.count(None)

    began_s = asyncio.get_running_loop().time()
    assert await in_thread(traffic) == 70
    took_s = asyncio.get_running_loop().time() - began_s
    assert throttled and took_s > 2, "700,000 bytes: a window's 500,000, and 4 s for the rest"


# --- access control lists


@pytest.fixture
async def guarded(files: Path) -> AsyncIterator[Broker]:
    """A broker where nobody may do anything but whoever comes by the plain listener."""
    cloud = FakeCloud(clock=WallClock())
    security = SecurityConfig(
        listeners=LISTENERS[:1] + LISTENERS[2:3],
        authorization=True,
        super_users=("User:ANONYMOUS",),
    )
    broker = await cloud.start_broker(1, port=9092, security=security)
    await in_thread(_add_anna, f"127.0.0.1:{broker.port}")
    yield broker
    await cloud.close()


async def acls(broker: Broker, *arguments: str) -> str:
    code, output = await java(ACLS, "--bootstrap-server", f"localhost:{broker.port}", *arguments)
    assert code == 0, output
    return output


async def test_kafka_acls_lets_clients_in(guarded: Broker, files: Path) -> None:
    """librdkafka's producer and consumer, before and after."""
    settings = librdkafka(guarded, files, "SASL_PLAINTEXT SCRAM-SHA-256")

    def produce() -> Any:
        reports: list[Any] = []
        producer = confluent_kafka.Producer({**settings, "message.timeout.ms": 10_000})
        producer.produce("orders", b"v", on_delivery=lambda error, _: reports.append(error))
        producer.flush(20)
        return reports[0] and reports[0].code()

    def consume() -> Any:
        consumer = confluent_kafka.Consumer(
            {**settings, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is None:
                break
            if message.error().code() in DENIED:
                break
        consumer.close()
        return message.error() and message.error().code()

    assert await in_thread(produce) == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    who = ("--allow-principal", "User:anna")
    await acls(guarded, "--add", *who, "--producer", "--topic", "orders")
    assert await in_thread(produce) is None
    assert await in_thread(consume) in DENIED
    await acls(guarded, "--add", *who, "--consumer", "--topic", "orders", "--group", "g")
    assert await in_thread(consume) is None
    shown = await acls(guarded, "--list", "--topic", "orders")
    assert "operation=READ" in shown
    await acls(guarded, "--remove", "--force", *who, "--producer", "--topic", "orders")
    assert await in_thread(produce) in DENIED
    await acls(
        guarded, "--add", *who, "--operation", "All", "--topic", "ord",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert await in_thread(produce) is None
    await acls(guarded, "--add", "--deny-principal", "User:*", "--operation", "Write",
               "--topic", "orders")  # fmt: skip
    assert await in_thread(produce) in DENIED


async def test_aiokafka_and_kafka_python_hear_that_they_may_not(
    guarded: Broker, files: Path
) -> None:
    settings = aiokafka_settings(guarded, files, "SASL_PLAINTEXT SCRAM-SHA-512")
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait("orders", b"v")

    def send() -> None:
        producer = kafka.KafkaProducer(**settings, max_block_ms=5_000)
        try:
            producer.send("orders", b"v").get(10)
        finally:
            producer.close(1)

    with pytest.raises(kafka.errors.KafkaError):
        await in_thread(send)
    assert not guarded.cluster.topics.keys() & {"orders"}


# --- our own clients


@pytest.mark.parametrize("way", WAYS)
async def test_publisher_and_subscriber(broker: Broker, files: Path, way: str) -> None:
    protocol = way.partition(" ")[0]
    security = security_of(read_properties(java_properties(broker, files, way)))
    brokers = Brokers(f"127.0.0.1:{broker.ports[protocol]}", security)
    async with TopicAdmin(brokers) as topics:
        await topics.create("orders")
    async with Publisher(brokers) as publisher:
        await publisher.publish("orders", b"v")
    async with Subscriber("orders", bootstrap_servers=brokers) as subscriber:
        async for record in subscriber:
            assert record.value == b"v"
            break


async def test_a_publisher_with_a_wrong_password(broker: Broker, files: Path) -> None:
    way = "SASL_SSL SCRAM-SHA-256"
    security = security_of(read_properties(java_properties(broker, files, way, "wrong")))
    brokers = Brokers(f"127.0.0.1:{broker.ports['SASL_SSL']}", security)
    with pytest.raises(BrokerUnreachable, match="refuses SASL_SSL with these settings"):
        await Publisher(brokers).start()


async def test_the_command_line(broker: Broker, files: Path) -> None:
    way = "SASL_SSL SCRAM-SHA-256"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ops.cli.main",
        "--client-config", str(java_properties(broker, files, way)),
        "topic", "create", "orders", "-b", f"127.0.0.1:{broker.ports['SASL_SSL']}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()
    assert "orders" in broker.cluster.topics


async def test_transactions_and_groups_where_every_listener_wants_a_login(files: Path) -> None:
    """Three brokers, which have only that listener for each other too."""
    cloud = FakeCloud(clock=WallClock())
    security = SecurityConfig(
        listeners=("SASL_SSL://127.0.0.1:0",),
        tls_cert=files / "broker.pem",
        tls_key=files / "broker.key",
        tls_peer_ca=files / "authority.pem",
        inter_broker_user="brokers",
        inter_broker_password="of brokers",
        authorization=True,
        super_users=("User:brokers", "User:anna"),
        sasl_reauth_max_ms=2_000,
    )
    brokers = [await cloud.start_broker(n, port=9092, security=security) for n in (1, 2, 3)]
    settings = {
        "bootstrap.servers": f"127.0.0.1:{brokers[0].port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files / "authority.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "brokers",
        "sasl.password": "of brokers",
    }

    def traffic() -> list[bytes]:
        admin = AdminClient(settings)
        new = confluent_kafka.admin.NewTopic("orders", 9)
        for done in admin.create_topics([new]).values():
            done.result(20)
        producer = confluent_kafka.Producer({**settings, "transactional.id": "t"})
        producer.init_transactions(20)
        for number in range(12):
            producer.begin_transaction()
            for partition in range(9):
                producer.produce("orders", f"{number}".encode(), partition=partition)
            if number % 3:
                producer.commit_transaction(20)
            else:
                producer.flush(20)
                producer.abort_transaction(20)
        consumer = confluent_kafka.Consumer(
            {
                **settings, "group.id": "g", "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )  # fmt: skip
        consumer.subscribe(["orders"])
        found: list[bytes] = []
        while len(found) < 72:
            found += [message.value() for message in consumer.consume(72, 5.0)]
        consumer.close()
        return found

    found = await in_thread(traffic)
    await cloud.close()
    committed = [f"{number}".encode() for number in range(12) if number % 3]
    assert sorted(found) == sorted(committed * 9)
