"""Fills the disk of a bookie at the moment when a recovery writes an entry to it again.

A disk that fills at a random time seldom refuses the copy of an entry that the bookie has already,
and the index has caught up by then: an hour of that met the defect which this finds at once. So
here the disk is full from the arrival of the add on, for a short while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.simulation.bookies.machines import Machines

_ROOMY_BYTES = 1 << 40


def fill_at_recovery_adds(world: Machines, rng: random.Random, probability: float) -> None:
    """Let disks be full when recovery adds arrive, with a probability, until all is healed."""
    if not probability:
        return
    oracle, before = world.oracle, world.oracle.on_hot
    hosts = {world.bookie_id(host): host for host in world.bookies}

    def fill(what: str, who: str) -> None:
        before(what, who)
        if what != "recovery add" or world.healed or rng.random() >= probability:
            return
        volume = world.volume(hosts[who])
        assert volume is not None, "bookies have disks"
        oracle.note("NEMESIS full disk %s, at a recovery add", who)
        oracle.count("disks filled at recovery adds")
        volume.capacity_bytes = volume.used_bytes + rng.choice((0, 0, 100))

        def free() -> None:
            volume.capacity_bytes = _ROOMY_BYTES

        world.loop.kernel_at(world.loop.time() + rng.expovariate(1 / rng.choice((0.02, 0.1))), free)

    oracle.on_hot = fill
