"""Attacks on real clusters, and an honest producer that meets no error and no other leader.

Pauses are not judged here: `python -m tests.hostile.attacks` does it, on a machine that does
nothing else.
"""

from __future__ import annotations

import pytest

from tests.hostile.attacks.__main__ import attack_all
from tests.hostile.attacks.table import ATTACKS

LONG = (
    "all costly requests",  # `test_hostile_requests.py` sends them
    "bookie: costly requests",  # `bookie_stalls.py`
    "storm of settings",  # a write to ZooKeeper each, as have the next two
    "many access control entries",  # `unit/broker/front/rights/test_acl_entries.py`
    "many quotas",
    "D1 bookies stopped for 3 s under 200 MB",  # `test_overload.py`
    "D3 little that opens to much",  # `test_hostile_requests.py`
    "D7 many segments",  # `unit/client/segments/test_scale.py`
    "D8 a fast producer",  # `test_overload.py`
    "D9 records as soon as there is a leader",  # `test_first_records.py`
    "D10 partitions that are added",  # the same
    "D10 topics of wrong names",  # the same
)
"""What takes long, and has a test of its own."""


@pytest.mark.timeout(600)
def test_an_honest_producer_beside_attacks() -> None:
    assert {attack.name for attack in ATTACKS} > set(LONG)
    shown: list[str] = []
    rows = attack_all([one for one in ATTACKS if one.name not in LONG], shown.append)
    print("\n".join(shown))
    assert {row.attack.name: row.faults for row in rows if row.faults} == {}
