"""Attacks real clusters, and shows what an honest producer beside it saw.

    python -m tests.hostile.attacks [WORD ...]

makes the attacks whose names hold one of the words (`D1`, `tls`), or all, each on the cluster that
it is for. It fails if the honest producer met an error, or another leader, or waited for more than
half a second (beyond what the attack stops by itself), or if the attacked nodes did wrong.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.hostile.attacks.table import ATTACKS, CLUSTERS
from tests.hostile.attacks.target import HEAD, Attack, Row, run
from tests.integration.cluster import LocalCluster


def attack_all(attacks: Sequence[Attack], tell: Callable[[str], None]) -> list[Row]:
    """Make attacks, cluster by cluster; tell each row."""
    rows = []
    for kind, make in CLUSTERS.items():
        mine = [attack for attack in attacks if attack.cluster == kind]
        if not mine:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cluster: LocalCluster = make(folder)
            with cluster:
                rows += asyncio.run(run(cluster, mine, folder, tell))
    return rows


def main() -> int:
    """Make those that the command line names."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    words = sys.argv[1:]
    chosen = [one for one in ATTACKS if not words or any(w in one.name.split() for w in words)]
    print(HEAD)
    rows = attack_all(chosen, lambda text: print(text, flush=True))
    return 1 if any(row.faults or row.is_slow for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
