"""Settings of how bookies and ZooKeeper are reached: what fits together, and what is shown."""

from __future__ import annotations

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
