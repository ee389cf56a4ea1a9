"""What schedules must have met to mean anything: judged over runs that are long enough.

A change of the options that makes schedules harmless also makes them quick and green. So a long
run fails, too, if a class of faults never struck or the workload hardly did anything. Schedules in
which it did nothing at all are counted apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.bookies import swarm
from tests.simulation.clusters import load as cluster_load
from tests.simulation.clusters import swarm as cluster_swarm
from tests.simulation.clusters.faults import DISTURBED
from tests.simulation.compaction import world as compaction_world
from tests.simulation.groups import world as group_world
from tests.simulation.shares import world as share_world
from tests.simulation.transactions import world as transaction_world

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.result import Result

SCHEDULES_MIN = 1000
"""Fewer schedules are not judged: rare faults may be missing."""

_FAULTS = {
    "ledger": (*swarm.FAULTS, *swarm.LEAVING_FAULTS),
    "cluster": (*cluster_swarm.FAULTS, *cluster_load.FAULTS, DISTURBED),
    "compaction": compaction_world.FAULTS,
    "transactions": transaction_world.FAULTS,
    "groups": group_world.FAULTS,
    "shares": share_world.FAULTS,
}
TRANSACTION_EVENTS: dict[str, float] = {
    "Empty to Ongoing": 2.0,
    "Empty to Empty": 0.5,
    "Empty to PrepareAbort": 0.03,
    "Ongoing to PrepareCommit": 8.0,
    "Ongoing to PrepareAbort": 4.0,
    "PrepareCommit to CompleteCommit": 8.0,
    "PrepareAbort to CompleteAbort": 4.0,
    "CompleteCommit to Ongoing": 6.0,
    "CompleteCommit to Empty": 0.05,
    "CompleteCommit to PrepareAbort": 0.1,
    "CompleteAbort to Ongoing": 1.5,
    "CompleteAbort to Empty": 1.5,
    "CompleteAbort to PrepareAbort": 0.15,
    "transaction.timed_out": 1.5,
    "transaction.fenced": 0.2,
    "transaction.id_expired": 0.1,
    "producer ids used up": 0.04,
    "older connections closed": 2.0,
    "transactions of offsets only": 0.4,
    "partitions of deleted topics": 0.5,
    "plain commits": 2.0,
    "unstable offsets": 8.0,
    "markers": 15.0,
    "takeovers looked at": 5.0,
    "batches hidden": 15.0,
    "batches read committed": 40.0,
    "indexes of sealed segments": 1.5,
    "clients fenced": 0.7,
    "commits": 7.0,
    "aborts": 3.0,
}
"""Every transition of a transactional id, and what else its rules are about."""
GROUP_EVENTS: dict[str, float] = {
    "joins": 5.0,
    "members left": 2.0,
    "members fenced": 0.5,
    "answers lost": 3.0,
    "commits": 150.0,
    "partitions taken over": 25.0,
    "partitions taken from the silent": 2.0,
    "late commits refused": 0.8,
    "late commits stored": 0.5,
    "logs compared": 6.0,
}
"""What rules of consumer groups are about."""
SHARE_EVENTS: dict[str, float] = {
    "deliveries": 50.0,
    "records settled": 60.0,
    "records released": 6.0,
    "renewals": 5.0,
    "acknowledgements refused": 7.0,
    "acknowledgements without an outcome": 1.0,
    "requests for too much refused": 4.0,
    "sessions lost": 2.0,
    "sessions closed": 0.7,
    "members left": 0.7,
    "orders obeyed": 0.2,
    "starts looked at": 30.0,
    "windows looked at": 30.0,
    "transactions aborted": 1.5,
    "trims": 0.2,
    "partitions judged": 0.8,
}
"""What rules of share groups are about."""
_EVENTS_PER_SCHEDULE: dict[str, dict[str, float]] = {
    "ledger": {
        "adds": 2.5,
        "reads": 6.0,
        "recoveries": 1.5,
        "disks filled at recovery adds": 0.03,
        "trace events": 25.0,
        "reads of the past": 0.06,
        "late writes": 0.12,
        "sessions that came back to an older server": 0.12,
    },
    "cluster": {
        "batches acknowledged": 6.0,
        "records consumed": 6.0,
        "takeovers": 1.5,
        "rolls": 0.2,
        "trims": 0.1,
        "appends timed out": 0.03,
        "reads of the past": 0.1,
        "late writes": 0.4,
        "sessions that came back to an older server": 0.4,
        "batches without room": 0.003,
        "clients that stalled": 0.1,
        "clients that sent halves": 0.1,
        "clients that vanished": 0.1,
        "looks at full brokers": 1.0,
        "looks at full links": 5.0,
        "looks at full partitions": 2.0,
        "transactions": 0.8,
        "commits": 0.5,
        "aborts": 0.1,
        "markers": 1.2,
        "batches hidden": 0.8,
        "silent transactions": 0.04,
        "Ongoing to PrepareCommit": 0.5,
        "Ongoing to PrepareAbort": 0.2,
        "CompleteCommit to Ongoing": 0.3,
        "CompleteAbort to Empty": 0.05,
        "requests that were allowed": 0.5,
        "requests that were denied": 1.3,
        "rights changed": 0.8,
        "strangers sent away": 0.05,
        "swaps": 0.7,
        "records missed by readers": 3.0,
        "topics made anew": 0.1,
        "topics deleted": 0.05,
        "admin: configure": 0.05,
        "admin: grow": 0.01,
        "admin: revoke": 0.1,
        "admin: outcome unknown": 0.07,
        "admin: records acknowledged": 0.07,
        "admin: offsets committed": 0.07,
        "facts of a newer release": 0.02,
        "shares: deliveries": 0.3,
        "shares: records settled": 0.3,
        "shares: windows looked at": 0.3,
        "shares: partitions judged": 0.03,
    },
    "compaction": {"readers": 80.0, "swaps": 15.0, "trims": 1.0, "compaction rounds": 4.0},
    "transactions": TRANSACTION_EVENTS,
    "groups": GROUP_EVENTS,
    "shares": SHARE_EVENTS,
}
"""About half of what is usual."""


def is_idle(result: Result) -> bool:
    """Tell whether no bookie was asked to store anything: faults struck before the first ledger."""
    return not result.violation and not result.counts.get("trace events")


def missing(
    world: str, schedules: int, faults: Mapping[str, int], counts: Mapping[str, int]
) -> list[str]:
    """Return, in words, what a run of so many schedules of a world should have met."""
    if schedules < SCHEDULES_MIN:
        return []
    return [
        *(f"no {name!r} struck" for name in _FAULTS[world] if not faults.get(name)),
        *(
            f"only {counts.get(name, 0)} {name}"
            for name, least in _EVENTS_PER_SCHEDULE[world].items()
            if counts.get(name, 0) < least * schedules
        ),
    ]
