"""Where the ledgers are: as the option says, or as the brokers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.errors import ConfigError
from client.spark.brokers import kafka_cluster
from client.spark.plan import metadata_address
from tests.unit.client.spark.test_options import parse


class Told:
    """Brokers that say where their metadata store is, and count how often they are asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked = 0

    def setting(self, name: str) -> str:
        assert name == "zookeeper.connect"
        self.asked += 1
        return self.answer


def use(monkeypatch: pytest.MonkeyPatch, answer: str) -> Told:
    brokers = Told(answer)
    monkeypatch.setattr(kafka_cluster, "shared", lambda _brokers, _timeout_ms: brokers)
    monkeypatch.setattr(metadata_address, "_told", {})
    return brokers


def test_brokers_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = use(monkeypatch, "zk:2181")
    options = parse(subscribe="t", readMode="ledger")
    assert metadata_address.metadata_service_uri(options) == "zk:2181"
    assert metadata_address.metadata_service_uri(options) == "zk:2181"
    assert brokers.asked == 1


def test_the_option_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = use(monkeypatch, "zk:2181")
    options = parse(subscribe="t", readMode="ledger", metadataServiceUri="mine:1")
    assert metadata_address.metadata_service_uri(options) == "mine:1"
    assert brokers.asked == 0


def test_brokers_that_do_not_know_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, "")
    with pytest.raises(ConfigError, match="metadataServiceUri has to name"):
        metadata_address.metadata_service_uri(parse(subscribe="t", readMode="auto"))


def test_no_password_goes_where_anybody_may_have_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text('[cluster_security]\nzookeeper_user = "q"\nzookeeper_password = "p"\n')
    use(monkeypatch, "zk:2181")
    with pytest.raises(ConfigError, match="name it with option metadataServiceUri"):
        metadata_address.metadata_service_uri(
            parse(subscribe="t", readMode="ledger", **{"ledger.securityFile": str(file)})
        )
