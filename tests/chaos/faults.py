"""Every kind of fault: how it strikes, and how it ends.

A fault strikes a node or a link for some seconds and then heals, on its own clock, while others
are at work. What cannot be done on this machine is not armed, which is counted and reported. A
fault that finds nothing to strike, because another one has its victim down, is no fault.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.clocks import Clocks
from tests.chaos.cluster import SESSION_MS, ChaosCluster, Member
from tests.chaos.forgetful import ForgetfulDisks, Fullness
from tests.chaos.nodes import Node

Undo = Callable[[], None]

OUTAGE_S_MAX = 6.0
"""Longer than a session, so that some outages cost one and some do not."""

CLOCK_JUMPS_S = (-3000, -60, -3, 3, 60, 3000)
"""Less than an hour: `message.timestamp.after.max.ms` would refuse what clients send."""

FULL_DISKS_MAX = 3
"""How many disks are full at most when everything loses power."""

FILLING_S_MAX = 15.0
"""How long it may take until LevelDB has a table to write on each of them."""

CLASSES = (
    *("broker_kill", "broker_pause", "broker_restart", "broker_cut", "broker_hold"),
    *("broker_one_way", "bookie_kill", "bookie_pause", "bookie_restart", "bookie_cut"),
    *("bookie_hold", "bookie_one_way", "bookie_slow", "session_loss", "zookeeper_kill"),
    *("zookeeper_outage", "reconnect_storm", "kill_everything", "bit_flip", "sync_error"),
    *("power_loss", "bookie_power_loss", "disk_full", "full_disk_power_loss", "clock_jump"),
    *("certificate_renewal",),
)


def nothing() -> None:
    """Undo nothing."""


class Strike(NamedTuple):
    """One fault that happened."""

    text: str
    undo: Undo
    for_s: float


class Faults:
    """All that can be done to a cluster. Each public method is a class of faults."""

    def __init__(
        self,
        cluster: ChaosCluster,
        rng: random.Random,
        disks: ForgetfulDisks | str,
        clocks: Clocks | str,
    ) -> None:
        """`disks`, `clocks`: or why there are none."""
        self._cluster = cluster
        self._rng = rng
        self._rotten: Member | None = None
        self.unarmed: dict[str, str] = {}
        """Class -> why it cannot be done here."""
        if isinstance(disks, str):
            for name in ("power_loss", "bookie_power_loss", "disk_full", "full_disk_power_loss"):
                self.unarmed[name] = disks
        else:
            self._disks = disks
        if isinstance(clocks, str):
            self.unarmed["clock_jump"] = clocks
        else:
            self._clocks = clocks
        if cluster.security is None:
            self.unarmed["certificate_renewal"] = "nothing is secured: see --secured"
        if not _can_trace():
            self.unarmed["sync_error"] = "strace may not trace processes here, or is not installed"

    def armed(self) -> dict[str, Callable[[], Strike | None]]:
        """Return what can be done here, by class; None is returned if it found no victim."""
        return {name: getattr(self, name) for name in CLASSES if name not in self.unarmed}

    # Brokers

    def broker_kill(self) -> Strike | None:
        return self._killed(self._running(self._cluster.brokers))

    def broker_pause(self) -> Strike | None:
        return self._paused(self._running(self._cluster.brokers))

    def broker_restart(self) -> Strike | None:
        return self._restarted(self._running(self._cluster.brokers))

    def broker_cut(self) -> Strike | None:
        return self._cut(self._running(self._cluster.brokers))

    def broker_hold(self) -> Strike:
        return self._held(self._any(self._cluster.brokers), requests=True, answers=True)

    def broker_one_way(self) -> Strike:
        return self._one_way(self._any(self._cluster.brokers))

    def reconnect_storm(self) -> Strike:
        """Every connection of every broker is reset; the next ones are welcome."""
        links = [member.link for member in self._cluster.brokers]
        self._cluster.links.do(lambda: [link.reset() for link in links] and None)
        return Strike("all broker connections reset", nothing, 0.0)

    def certificate_renewal(self) -> Strike:
        """Every node has a new certificate, and every connection of brokers has to be made anew."""
        security = self._cluster.security
        assert security is not None
        security.renew()
        return self.reconnect_storm()._replace(text="certificates renewed, connections reset")

    # Bookies

    def bookie_kill(self) -> Strike | None:
        return self._killed(self._running(self._cluster.bookies))

    def bookie_pause(self) -> Strike | None:
        return self._paused(self._running(self._cluster.bookies))

    def bookie_restart(self) -> Strike | None:
        return self._restarted(self._running(self._cluster.bookies))

    def bookie_cut(self) -> Strike | None:
        return self._cut(self._running(self._cluster.bookies))

    def bookie_hold(self) -> Strike:
        return self._held(self._any(self._cluster.bookies), requests=True, answers=True)

    def bookie_one_way(self) -> Strike:
        return self._one_way(self._any(self._cluster.bookies))

    def bookie_slow(self) -> Strike:
        member = self._any(self._cluster.bookies)
        delay_s = self._rng.choice((0.02, 0.1, 0.4))

        def slow_down() -> None:
            member.link.delay_s = delay_s

        self._cluster.links.do(slow_down)
        return Strike(f"{member.node.name} slow, {delay_s} s", self._healing(member), self._time())

    def bit_flip(self) -> Strike | None:
        """A bit of a log file rots while its bookie is down. Always the same bookie: with two,
        entries might lose both of the copies that their acknowledgement promised."""
        member = self._rotten = self._rotten or self._any(self._cluster.bookies)
        logs = sorted((member.data / "log").glob("*.log"))
        if not logs:
            return None
        member.node.kill()
        path = self._rng.choice(logs)
        at = self._rng.randrange(max(1, path.stat().st_size))
        try:
            with path.open("r+b") as file:
                file.seek(at)
                byte = file.read(1) or b"\0"
                file.seek(at)
                file.write(bytes([byte[0] ^ 1 << self._rng.randrange(8)]))
        except OSError:  # its disk is full: even rot finds no room there
            member.node.start()
            return None
        text = f"bit of {member.node.name} flipped, {path.name} at {at}"
        return Strike(text, member.node.start, 0.5)

    def sync_error(self) -> Strike | None:
        """The next fdatasync of a bookie fails: nobody knows what is durable, so it must end."""
        member = self._running(self._cluster.bookies)
        if member is None:
            return None
        tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-o", "/dev/null", "-p", str(member.node.pid)),
                *("-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def undo() -> None:
            tracer.terminate()
            tracer.wait()
            member.node.kill()  # it may be on its way down already
            member.node.start()

        return Strike(f"EIO for every sync of {member.node.name}", undo, 2.0)

    # Disks that forget what was not synced

    def bookie_power_loss(self) -> Strike:
        member = self._any(self._cluster.bookies)
        self._lose_power([member])
        return Strike(f"{member.node.name} lost power", member.node.start, self._time())

    def power_loss(self) -> Strike:
        """All bookies and brokers at once: the acid test of "acknowledged"."""
        self._lose_power(self._cluster.members)
        nodes = [member.node for member in self._cluster.members]
        return Strike("everything lost power", lambda: [n.start() for n in nodes] and None, 1.0)

    def disk_full(self) -> Strike:
        index = self._rng.randrange(len(self._cluster.bookies))
        self._disks.set_fullness(index, Fullness.FULL)
        name = self._cluster.bookies[index].node.name
        return Strike(f"disk of {name} full", lambda: self._make_room([index]), self._time())

    def full_disk_power_loss(self) -> Strike | None:
        """Everything loses power while some disks are full, and comes back before there is room.

        First LevelDB's tables do not fit any more, while logs go on, its own too: entries are
        acknowledged that no table has, so the logs that have them are to be synced all the same.
        Then nothing fits.
        """
        at_work = [
            index
            for index, bookie in enumerate(self._cluster.bookies)
            if bookie.node.is_running and not bookie.node.is_paused
        ]
        count = self._rng.randint(1, FULL_DISKS_MAX)
        filling = self._rng.sample(at_work, min(len(at_work), count))
        for index in filling:
            self._disks.set_fullness(index, Fullness.NO_TABLES)
        full = self._wait_for_refused_tables(filling)
        if not full:
            self._make_room(filling)
            return None
        refused = sum(self._disks.refused(index).tables for index in full)
        for index in filling:
            self._disks.set_fullness(index, Fullness.FULL)
        time.sleep(self._rng.uniform(0.0, 1.0))
        self._lose_power(self._cluster.members)
        time.sleep(1.0)
        for member in self._cluster.members:
            member.node.start()
        names = ", ".join(self._cluster.bookies[index].node.name for index in filling)
        return Strike(
            f"everything lost power while the disks of {names} were full, {refused} writes of"
            f" tables refused on {len(full)} of them",
            lambda: self._make_room(filling),
            self._time(),
        )

    # Clocks

    def clock_jump(self) -> Strike:
        """The wall clock of a node is set, and later set right again."""
        member = self._any(self._cluster.members)
        name, ahead_s = member.node.name, self._rng.choice(CLOCK_JUMPS_S)
        self._clocks.set(name, ahead_s)
        undo = self._clocks.set
        return Strike(f"clock of {name} {ahead_s:+} s", lambda: undo(name, 0), self._time())

    # The metadata store

    def session_loss(self) -> Strike:
        """A node cannot reach the metadata store until after its session is gone."""
        member = self._any(self._cluster.members)
        self._cluster.links.do(lambda: [link.cut() for link in member.to_store] and None)
        return Strike(
            f"{member.node.name} without ZooKeeper",
            self._healing(member),
            SESSION_MS / 1000 * self._rng.uniform(1.1, 1.6),
        )

    def zookeeper_kill(self) -> Strike:
        node = self._rng.choice(self._cluster.zookeepers)
        node.kill()
        return Strike(f"{node.name} killed", node.start, self._time())

    def zookeeper_outage(self) -> Strike:
        nodes = self._cluster.zookeepers
        for node in nodes:
            node.pause()
        return Strike(
            "ZooKeeper away",
            lambda: [node.resume() for node in nodes] and None,
            self._rng.uniform(0.5, 6.0),
        )

    def kill_everything(self) -> Strike:
        """kill -9 of every bookie and broker at once."""
        nodes = [member.node for member in self._cluster.members]
        for node in nodes:
            node.kill()
        return Strike("everything killed", lambda: [n.start() for n in nodes] and None, 0.5)

    # What several have in common

    def _any(self, members: list[Member]) -> Member:
        return self._rng.choice(members)

    def _running(self, members: list[Member]) -> Member | None:
        running = [m for m in members if m.node.is_running and not m.node.is_paused]
        return self._rng.choice(running) if running else None

    def _time(self) -> float:
        return self._rng.uniform(0.3, OUTAGE_S_MAX)

    def _healing(self, member: Member) -> Undo:
        links = (member.link, *member.to_store)
        return lambda: self._cluster.links.do(lambda: [link.heal() for link in links] and None)

    def _wait_for_refused_tables(self, filling: list[int]) -> list[int]:
        """Return the disks on which a table did not fit, once that is all or time is up."""
        deadline_s = time.monotonic() + FILLING_S_MAX
        while True:
            full = [index for index in filling if self._disks.refused(index).tables]
            if len(full) == len(filling) or time.monotonic() > deadline_s:
                return full
            time.sleep(0.02)

    def _make_room(self, indexes: list[int]) -> None:
        for index in indexes:
            self._disks.set_fullness(index, Fullness.ROOM)

    def _killed(self, member: Member | None) -> Strike | None:
        if member is None:
            return None
        member.node.kill()
        return Strike(f"{member.node.name} killed", member.node.start, self._time())

    def _paused(self, member: Member | None) -> Strike | None:
        if member is None:
            return None
        member.node.pause()
        return Strike(f"{member.node.name} paused", member.node.resume, self._time())

    def _restarted(self, member: Member | None) -> Strike | None:
        if member is None:
            return None
        member.node.resume()
        took_s = member.node.stop()
        return Strike(
            f"{member.node.name} restarted, down in {took_s:.1f} s", member.node.start, 0.0
        )

    def _cut(self, member: Member | None) -> Strike | None:
        if member is None:
            return None
        self._cluster.links.do(member.link.cut)
        return Strike(f"{member.node.name} cut off", self._healing(member), self._time())

    def _held(self, member: Member, *, requests: bool, answers: bool) -> Strike:
        self._cluster.links.do(lambda: member.link.hold(requests=requests, answers=answers))
        what = "silent" if requests and answers else "deaf" if requests else "mute"
        return Strike(f"{member.node.name} {what}", self._healing(member), self._time())

    def _one_way(self, member: Member) -> Strike:
        requests = self._rng.random() < 0.5
        return self._held(member, requests=requests, answers=not requests)

    def _lose_power(self, members: list[Member]) -> None:
        bookies: list[Node] = [bookie.node for bookie in self._cluster.bookies]
        for member in members:
            member.node.kill()
        for member in members:
            if member.node in bookies:
                self._disks.forget(bookies.index(member.node))


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    probe: subprocess.CompletedProcess[Any] = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "true"],
        capture_output=True,
        check=False,
    )
    return probe.returncode == 0 and Path("/proc/self/status").exists()
