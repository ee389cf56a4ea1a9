"""Ledger ids become the paths that Apache BookKeeper's hierarchical layout uses."""

import pytest

from client.ids import BookieId, BrokerId, LedgerId
from client.metadata import paths


@pytest.mark.parametrize(
    ("ledger_id", "path"),
    [
        (0, "/ledgers/00/0000/L0000"),
        (12345, "/ledgers/00/0001/L2345"),
        (123456789, "/ledgers/01/2345/L6789"),
        (2**31 - 2, "/ledgers/21/4748/L3646"),
        (2**31 - 1, "/ledgers/000/0000/0021/4748/L3647"),
    ],
)
def test_ledger_paths(ledger_id: int, path: str) -> None:
    assert paths.ledger(LedgerId(ledger_id)) == path


def test_bookkeeper_paths_hang_below_their_root() -> None:
    bookie = BookieId("10.0.0.1:3181")
    assert paths.layout("/l") == "/l/LAYOUT"
    assert paths.instance_id("/l") == "/l/INSTANCEID"
    assert paths.available_bookie(bookie, "/l") == "/l/available/10.0.0.1:3181"
    assert paths.readonly_bookie(bookie, "/l") == "/l/available/readonly/10.0.0.1:3181"
    assert paths.cookie(bookie, "/l") == "/l/cookies/10.0.0.1:3181"
    assert paths.ledger_id_prefix("/l") == "/l/idgen/ID-"


def test_quire_paths() -> None:
    assert paths.broker(BrokerId(2)) == "/quire/brokers/2"
    assert paths.topic("orders") == "/quire/topics/orders"
    assert paths.partition("T", 3) == "/quire/partitions/T/3"
    assert paths.partition_owner("T", 3) == "/quire/partitions/T/3/owner"
