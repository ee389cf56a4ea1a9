"""What stands in the way of a start is one sentence that says what to change."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ops import ports
from ops.local.cluster import LocalConfig
from ops.local.preflight import CannotStart, DataLock, PortUse, check_disk, check_ports


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_disk(tmp_path)

    def usage(path: Path) -> Any:
        return shutil._ntuple_diskusage(10**12, 10**12, 100 * 1024 * 1024)  # type: ignore[attr-defined]

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(CannotStart) as caught:
        check_disk(tmp_path)
    assert str(caught.value) == (
        f"the disk of {tmp_path} has only 100 MiB free and Quire needs 512:"
        " make room, or choose another directory with --data"
    )


def test_ports_that_collide_or_do_not_exist() -> None:
    free = ports.pick_free(1)[0]
    check_ports([PortUse(free, "broker-0", "--kafka-port")])
    with pytest.raises(
        CannotStart,
        match=re.escape(
            f"port {free} is needed twice, for broker-0 and for bookie-0:"
            " move one with --kafka-port or --bookie-port"
        ),
    ):
        check_ports(
            [PortUse(free, "broker-0", "--kafka-port"), PortUse(free, "bookie-0", "--bookie-port")]
        )
    with pytest.raises(CannotStart, match="port 65536 for broker-1 is out of range: see --kafka"):
        check_ports([PortUse(65536, "broker-1", "--kafka-port")])


def test_the_default_ports_do_not_collide_with_each_other() -> None:
    uses = LocalConfig(bookies=99, brokers=99).port_uses()
    assert len({use.port for use in uses}) == len(uses)
    assert LocalConfig(zookeeper="zk:2181").port_uses()[0].purpose != "ZooKeeper"


def test_the_lock_is_exclusive_and_returns(tmp_path: Path) -> None:
    first, second = DataLock(tmp_path / "data"), DataLock(tmp_path / "data")
    first.acquire()
    with pytest.raises(CannotStart, match=r"is in use by another `quire up` \(pid \d+\)"):
        second.acquire()
    assert (first.held, second.held) == (True, False)
    first.release()
    second.acquire()
    second.release()
