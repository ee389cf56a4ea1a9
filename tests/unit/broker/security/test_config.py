"""Which settings of listeners and TLS fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config import BrokerConfig
from broker.front.endpoints import endpoints_of
from broker.security.config import SecurityConfig
from client.errors import ConfigError

FILES: dict[str, Any] = {"tls_cert": Path("c"), "tls_key": Path("k")}
TLS: dict[str, Any] = {"listeners": ("SSL://h:1",), **FILES}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listener_protocols": ("A:SSL",)}, "no effect without listeners"),
        ({"advertised_listeners": ("A://h:1",)}, "no effect without listeners"),
        ({"inter_broker_listener": "A"}, "no effect without listeners"),
        (FILES, "no effect without listeners"),
        ({"listeners": ("SSL://h:1",)}, "SSL listeners need"),
        ({"listeners": ("PLAINTEXT://h:1",), **FILES}, "no listener speaks TLS"),
        ({**TLS, "tls_key": None}, "must be set together"),
        ({**TLS, "tls_client_auth": "required"}, "needs security.tls_client_ca"),
        ({**TLS, "tls_client_ca": Path("a")}, "no effect with tls_client_auth none"),
        ({**TLS, "tls_principal_rules": "X"}, "must be RULE"),
        ({**TLS, "inter_broker_listener": "INSIDE"}, "INSIDE is not among the listeners"),
        ({**TLS, "tls_handshakes_max": 0}, "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SecurityConfig(**settings)


@pytest.mark.parametrize("name", ["listen_host", "port", "advertised_host", "advertised_port"])
def test_listeners_replace_the_settings_of_the_one_listener(name: str) -> None:
    value: Any = "h" if name.endswith("host") else 1
    with pytest.raises(ConfigError, match=f"{name} has no effect beside"):
        BrokerConfig(security=SecurityConfig(**TLS), **{name: value})


def test_lists_beside_an_open_admin_api_are_refused() -> None:
    security = SecurityConfig(authorization=True)
    with pytest.raises(ConfigError, match="needs admin_token"):
        BrokerConfig(security=security, admin_host="0.0.0.0")
    for settings in ({}, {"admin_token": "t", "admin_host": "0.0.0.0"}, {"admin_port": -1}):
        assert BrokerConfig(security=security, **settings).security.authorization


def test_a_short_password_of_brokers_is_refused_where_other_machines_may_guess() -> None:
    def config(host: str, password: str) -> BrokerConfig:
        return BrokerConfig(
            security=SecurityConfig(
                listeners=(f"SASL_PLAINTEXT://{host}:9092",),
                inter_broker_user="brokers", inter_broker_password=password,
            )
        )  # fmt: skip

    config("127.0.0.1", "short")
    config("0.0.0.0", "x" * 16)
    with pytest.raises(ConfigError, match="inter_broker_password has 15 characters"):
        config("0.0.0.0", "x" * 15)


def test_what_is_registered_of_several_listeners() -> None:
    security = SecurityConfig(
        listeners=("SSL://:0", "INSIDE://0.0.0.0:9092"),
        listener_protocols=("INSIDE:PLAINTEXT",),
        advertised_listeners=("SSL://broker.example.org:443",),
        inter_broker_listener="inside",
        **FILES,
    )
    config = BrokerConfig(security=security, hostname="box")
    found = endpoints_of(config, {"SSL": 5, "INSIDE": 9092})
    assert found == {
        "SSL": ("broker.example.org", 443, True, "SSL"),
        "INSIDE": ("box", 9092, False, "PLAINTEXT"),
    }
    assert config.security.inter_broker_name == "INSIDE"


APART: dict[str, Any] = {
    "listeners": ("INSIDE://h:1", "OUTSIDE://h:2"),
    "inter_broker_listener": "INSIDE",
    "authorization": True,
}
SUPER: dict[str, Any] = {"super_users": ("User:ANONYMOUS",)}
MUTUAL: dict[str, Any] = {**FILES, "tls_client_auth": "required", "tls_client_ca": Path("a")}


@pytest.mark.parametrize(
    ("protocols", "more", "is_refused"),
    [
        (("INSIDE:PLAINTEXT", "OUTSIDE:SSL"), FILES, True),
        (("INSIDE:PLAINTEXT", "OUTSIDE:SSL"), {**MUTUAL, "tls_client_auth": "requested"}, True),
        (("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"), {}, True),
        (("INSIDE:PLAINTEXT", "OUTSIDE:SSL"), MUTUAL, False),
        (("INSIDE:PLAINTEXT", "OUTSIDE:SASL_PLAINTEXT"), {}, False),
    ],
)
def test_anonymous_is_no_super_user_of_several_listeners(
    protocols: tuple[str, ...], more: dict[str, Any], is_refused: bool
) -> None:
    config = {**APART, **more, "listener_protocols": protocols}
    assert SecurityConfig(**config).links_by_listener, "it is not needed either"
    if is_refused:
        with pytest.raises(ConfigError, match="which every client of listener OUTSIDE is"):
            SecurityConfig(**config, **SUPER)
    else:
        SecurityConfig(**config, **SUPER)


@pytest.mark.parametrize(
    "settings",
    [
        {"authorization": True},
        {"listeners": ("PLAINTEXT://h:1",), "inter_broker_listener": "PLAINTEXT"},
        {**APART, "listener_protocols": ("INSIDE:SSL", "OUTSIDE:PLAINTEXT"), **MUTUAL},
        {
            **APART, "listener_protocols": ("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
            "inter_broker_listener": None,
        },
    ],
)  # fmt: skip
def test_no_listener_that_clients_use_or_that_knows_names_is_a_right(
    settings: dict[str, Any],
) -> None:
    assert not SecurityConfig(**settings).links_by_listener
