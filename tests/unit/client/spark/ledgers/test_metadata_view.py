"""The data source looks at the metadata store and cannot change it."""

from __future__ import annotations

import pytest

from client.errors import ConfigError, LocalProtocolError
from client.metadata.store import Create
from client.spark.ledgers.metadata_view import MetadataView, parse_uri


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("zk1:2181", "zk1:2181"),
        (" zk1:2181,zk2:2181 ", "zk1:2181,zk2:2181"),
        ("zk://zk1:2181;zk2:2181/ledgers", "zk1:2181,zk2:2181"),
        ("zk+hierarchical://zk1:2181/", "zk1:2181"),
    ],
)
def test_servers(uri: str, hosts: str) -> None:
    assert parse_uri(uri) == hosts


@pytest.mark.parametrize("uri", ["", "zk1:2181/other", "etcd://zk1:2181"])
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="metadataServiceUri"):
        parse_uri(uri)


async def test_nothing_can_be_changed() -> None:
    view = MetadataView("127.0.0.1:1")
    for change in (
        view.create("/a"), view.set("/a", b""), view.delete("/a"), view.multi([Create("/a")])
    ):  # fmt: skip
        with pytest.raises(LocalProtocolError, match="/a"):
            await change
    await view.close()
