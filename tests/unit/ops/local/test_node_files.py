"""What `quire up` writes for its nodes is what the programs read."""

from pathlib import Path

from bookie.config import BookieConfig
from broker.config import BrokerConfig
from client.config import load
from ops.local.node_files import AT_ONCE, bookie_settings, broker_settings, write_toml


def test_a_broker_reads_its_file(tmp_path: Path) -> None:
    file = tmp_path / "broker-1.toml"
    write_toml(
        file,
        broker_settings(
            node_id=1, port=9093, admin_port=9641, zookeeper=["a:1", "b:2"], bookie_count=2
        ),
    )
    config = load(BrokerConfig, toml_path=file, env_prefix="QUIRE_BROKER_", environ={})
    assert (config.node_id, config.port, config.admin_port) == (1, 9093, 9641)
    assert config.zookeeper == ("a:1", "b:2")
    assert (config.default_replication_factor, config.default_min_insync_replicas) == (2, 2)


def test_a_bookie_reads_its_file(tmp_path: Path) -> None:
    file = tmp_path / "bookie-0.toml"
    data_dir = tmp_path / "bookie-0"
    write_toml(
        file,
        bookie_settings(
            port=3181, admin_port=9740, data_dir=data_dir, zookeeper=["a:1"], auto_recovery=True
        ),
    )
    config = load(BookieConfig, toml_path=file, env_prefix="QUIRE_BOOKIE_", environ={})
    assert (config.host, config.port, config.admin_port) == ("127.0.0.1", 3181, 9740)
    assert (config.data_dir, config.zookeeper) == (data_dir, ("a:1",))
    assert config.auto_recovery
    assert config.recovery.lost_bookie_delay_ms > 6_000, "longer than a restart takes"


def test_a_single_bookie_means_single_copies(tmp_path: Path) -> None:
    settings = broker_settings(node_id=0, port=1, admin_port=2, zookeeper=["z:1"], bookie_count=1)
    assert settings["default_replication_factor"] == 1
    assert settings["default_min_insync_replicas"] == 1


def test_a_first_consumer_of_quire_up_waits_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "broker-0.toml"
    write_toml(file, AT_ONCE)
    config = load(BrokerConfig, toml_path=file, env_prefix="Q_", environ={})
    assert config.internal_topics_at_start
    assert config.group_initial_rebalance_delay_ms == 0


def test_awkward_text_survives(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    write_toml(file, {"rack": 'a"b\\c é', "node_id": 3})
    config = load(BrokerConfig, toml_path=file, env_prefix="Q_", environ={})
    assert (config.rack, config.node_id) == ('a"b\\c é', 3)
