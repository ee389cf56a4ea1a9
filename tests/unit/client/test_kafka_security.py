"""Security settings of Kafka's clients, by the names that Java and librdkafka give them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from client.errors import ConfigError
from client.kafka_security import PLAIN_TEXT, ClientSecurity, read_properties, security_of
from client.pubsub.brokers import Brokers
from tests.fakes import certificates

SASL = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "anna",
    "sasl.password": "secret",
}  # fmt: skip
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="anna" '


def test_without_any_it_is_plain_text() -> None:
    assert security_of({"bootstrap.servers": "x", "group.id": "g"}) == PLAIN_TEXT
    assert Brokers.of("h:1").settings() == {
        "bootstrap_servers": "h:1", "security_protocol": "PLAINTEXT",
    }  # fmt: skip


def test_names_of_librdkafka_and_of_java_mean_the_same() -> None:
    ours = security_of({**SASL, "ssl.ca.location": "ca.pem"})
    java = security_of(
        {
            "security.protocol": "sasl_ssl", "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS + 'password="secret";', "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
        }
    )  # fmt: skip
    assert ours == java
    assert ours == ClientSecurity(
        protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="anna", password="secret",
        ca=Path("ca.pem"),
    )  # fmt: skip
    assert "secret" not in repr(ours)


def test_quotes_in_a_jaas_password() -> None:
    found = security_of({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS + r'password="a\"b;c d" ;',
    })  # fmt: skip
    assert found.password == 'a"b;c d'


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"ssl.ca.location": "x"}, "ssl.ca.location has no effect"),
        ({"security.protocol": "SSL", "sasl.username": "x"}, "sasl.username has no effect"),
        ({"security.protocol": "SSL", "ssl.protocol": "TLSv1"}, "ssl.protocol is not supported"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism must be one of"),
        ({**SASL, "sasl.password": ""}, "needs sasl.mechanism"),
        ({"security.protocol": "SASL_SSL"}, "needs sasl.mechanism"),
        ({**SASL, "sasl.jaas.config": JAAS + "password=x;"}, "excludes sasl.username"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": "secret"}, "sasl.jaas.config must"),
        ({"security.protocol": "SSL", "ssl.key.location": "k"}, "must be set together"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "must be a PEM file"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "x.jks"}, "must be a PEM file"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "https"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        security_of(settings)
    assert "secret" not in str(caught.value)


def test_files_become_a_context(tmp_path: Path) -> None:
    certificates.write(tmp_path)
    security = ClientSecurity(
        protocol="SSL", ca=tmp_path / "authority.pem", certificate=tmp_path / "anna.pem",
        key=tmp_path / "anna.key",
    )  # fmt: skip
    assert security.context().check_hostname
    lax = ClientSecurity(protocol="SSL", ca=tmp_path / "authority.pem", checks_name=False)
    assert not lax.context().check_hostname
    assert lax.context().verify_mode is ssl.CERT_REQUIRED
    missing = ClientSecurity(protocol="SSL", ca=tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        missing.context()


def test_properties(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# c\n\n a.b = 1 = 2\nc:d\n! x\nlong=one \\\n   two\nempty=\n")
    assert read_properties(path) == {"a.b": "1 = 2", "c": "d", "long": "one two", "empty": ""}
    path.write_text("a=1\njust words\n")
    with pytest.raises(ConfigError, match="line 2"):
        read_properties(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_properties(tmp_path / "absent")
