"""Settings of how bookies and ZooKeeper are reached: what fits together, and what is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.errors import ConfigError
from client.security.cluster_security import ClusterSecurity

USER = {"zookeeper_user": "quire", "zookeeper_password": "of ours"}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"zookeeper_scheme": "sasl"}, "zookeeper_scheme sasl needs zookeeper_user"),
        ({"zookeeper_scheme": "both"}, "zookeeper_scheme both needs zookeeper_user"),
        ({"zookeeper_user": "quire"}, "set together"),
        ({"zookeeper_password": "of ours"}, "set together"),
        (USER | {"zookeeper_user": "a:b"}, "colon"),
        (USER | {"zookeeper_user": "a@b", "zookeeper_scheme": "sasl"}, "an @"),
        (USER | {"zookeeper_user": "a@b", "zookeeper_scheme": "both"}, "an @"),
    ],
)
def test_what_does_not_fit_together(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        ClusterSecurity(**settings)


@pytest.mark.parametrize(
    ("scheme", "by_digest", "by_sasl"),
    [("digest", True, False), ("sasl", False, True), ("both", True, True)],
)
def test_schemes(scheme: Any, by_digest: bool, by_sasl: bool) -> None:
    security = ClusterSecurity(**USER, zookeeper_scheme=scheme)
    assert (security.zookeeper_by_digest, security.zookeeper_by_sasl) == (by_digest, by_sasl)


def test_a_user_of_the_scheme_digest_may_have_any_other_name() -> None:
    assert ClusterSecurity(**USER | {"zookeeper_user": "a@b"}).zookeeper_by_digest


def test_the_password_is_never_shown() -> None:
    assert "of ours" not in repr(ClusterSecurity(**USER, zookeeper_scheme="sasl"))


TLS = {"zookeeper_tls": True}
CA = {"tls_ca": Path("ca.pem")}


@pytest.mark.parametrize(
    ("settings", "servers"),
    [
        (USER, "zk:2181"),
        (USER, "127.0.0.1:2181,zk:2181/root"),
        (USER | TLS, "zk:2281"),  # any certificate that this machine trusts would do
        (USER | CA, "zk:2181"),
        (USER | {"zookeeper_scheme": "both"}, "zk:2181"),
    ],
)
def test_the_password_does_not_go_where_anybody_may_have_told(
    settings: dict[str, Any], servers: str
) -> None:
    with pytest.raises(ConfigError, match="password of quire is not sent there") as refused:
        ClusterSecurity(**settings).check_told(servers, "--zookeeper HOST:PORT")
    assert "name it with --zookeeper HOST:PORT" in str(refused.value)
    assert "of ours" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "servers"),
    [
        ({}, "zk:2181"),
        (USER, "127.0.0.1:2181,[::1]:2181,localhost:2181/root"),
        (USER | TLS | CA, "zk:2281"),
        (USER | {"zookeeper_scheme": "sasl"}, "zk:2181"),
    ],
)
def test_what_brokers_tell_is_used_where_no_password_is_at_risk(
    settings: dict[str, Any], servers: str
) -> None:
    ClusterSecurity(**settings).check_told(servers, "--zookeeper HOST:PORT")
