"""What listeners, their protocols and addresses say together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.security.core.listeners import Address, Listener, SecurityProtocol, parse_listeners
from client.errors import ConfigError


def test_a_name_that_is_a_protocol_needs_no_entry() -> None:
    assert parse_listeners(["SSL://:9093"], [], []) == (
        Listener("SSL", SecurityProtocol.SSL, Address("", 9093), None),
    )


def test_each_name_has_its_protocol_and_address() -> None:
    found = parse_listeners(
        ["inside://10.0.0.1:9092", "OUTSIDE://[::]:0"],
        ["INSIDE:plaintext", "OUTSIDE:SSL"],
        ["outside://b.example:443"],
    )
    assert found == (
        Listener("INSIDE", SecurityProtocol.PLAINTEXT, Address("10.0.0.1", 9092), None),
        Listener("OUTSIDE", SecurityProtocol.SSL, Address("::", 0), Address("b.example", 443)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listeners", "protocols", "advertised", "message"),
    [
        (["9092"], [], [], "form NAME://host:port"),
        (["SSL://h:99999"], [], [], "form NAME://host:port"),
        (["SSL://h:1", "ssl://h:2"], [], [], "names SSL twice"),
        (["SSL://h:1", "PLAINTEXT://h:1"], [], [], "have the same port"),
        (["INSIDE://h:1"], [], [], "INSIDE has no security protocol"),
        (["INSIDE://h:1"], ["INSIDE:TLS"], [], "no security protocol 'TLS'"),
        (["INSIDE://h:1"], ["INSIDE"], [], "form NAME:PROTOCOL"),
        (["SSL://h:1"], ["SSL:SSL", "SSL:SSL"], [], "names SSL twice"),
        (["SSL://h:1"], ["OUTSIDE:SSL"], [], "OUTSIDE, which is not among"),
        (["SSL://h:1"], [], ["OUTSIDE://h:1"], "OUTSIDE, which is not among"),
        (["SSL://h:1"], [], ["SSL://:1"], "SSL needs a host and a port"),
        (["SSL://h:1"], [], ["SSL://h:0"], "SSL needs a host and a port"),
    ],
)
def test_what_makes_no_sense_is_refused(
    listeners: Sequence[str], protocols: Sequence[str], advertised: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_listeners(listeners, protocols, advertised)
