"""The nemesis: breaks things at random times, repairs them later, and heals everything at the end.

One method per fault class of `swarm.FAULTS`; which classes exist in a schedule, and how often
each strikes, is drawn by the swarm. Every fault ends by itself after a random while; `heal_all`
ends all of them at once, restarts what is down and is the beginning of the healed phase.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from tests.simulation.bookies.ledger_books import ledger_of
from tests.simulation.machine.hosts import Host, Process

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from client.metadata.memory import Operation
    from tests.simulation.ledgers.oracle import LedgerOracle
    from tests.simulation.machine.index import LevelStore
    from tests.simulation.machine.loop import SimLoop
    from tests.simulation.machine.net import SimNet
    from tests.simulation.machine.store import SimMetadata
    from tests.simulation.machine.volume import Volume


FREE_BYTES_MIN = 20_000
"""What simulated bookies keep back for fences, index and checkpoints."""


_LIST_WEIGHT = 6
"""Lists of ledgers change seldom, and each change is a moment of its own."""


class World(Protocol):
    """What the nemesis needs to know about a cluster."""

    loop: SimLoop
    net: SimNet
    store: SimMetadata
    oracle: LedgerOracle
    bookies: list[Host]
    clients: list[Host]
    copies_to_spare: bool
    """Whether one bookie may lose what it has without a loss of acknowledged entries."""

    def boot(self, host: Host) -> None:
        """Start the program that belongs on a host."""
        ...

    def volume(self, host: Host) -> Volume | None:
        """Return a host's disk."""
        ...

    def bookie_id(self, host: Host) -> str:
        """Return the name of the bookie on a host."""
        ...

    def power_lost(self, host: Host) -> None:
        """Let a host's disk lose what was not durable."""
        ...

    def wipe(self, host: Host) -> None:
        """Replace a host's disk by an empty one."""
        ...

    def index(self, host: Host) -> LevelStore | None:
        """Return a host's index."""
        ...

    def slow_down(self, host: Host, factor: float) -> None:
        """Make a host's disk slower by a factor (1 is normal)."""
        ...

    def calm_disk(self, host: Host) -> None:
        """Make a host's disk normal and without heavy tails."""
        ...

    def set_read_only(self, host: Host, *, read_only: bool) -> None:
        """Let an operator turn the bookie on a host read-only, or take it back."""
        ...


class Nemesis:
    """Makes faults in one schedule."""

    def __init__(self, world: World, rng: random.Random, weights: dict[str, int]) -> None:
        self._world = world
        self._rng = rng
        self._names = list(weights)
        self._weights = [weights[name] for name in self._names]
        self.counts: dict[str, int] = {}
        self._over = False
        self._destroyed: Host | None = None
        """The bookie whose copies may be damaged or gone."""

    async def run(self, duration_s: float, every_s: float) -> None:
        """Make faults for a while."""
        loop = self._world.loop
        end = loop.time() + duration_s
        while True:
            pause = self._rng.expovariate(1 / every_s) if every_s else duration_s
            if loop.time() + pause >= end or not self._names:
                await asyncio.sleep(end - loop.time())
                return
            await asyncio.sleep(pause)
            name = self._rng.choices(self._names, self._weights)[0]
            if self.strike(name):
                self.counts[name] = self.counts.get(name, 0) + 1

    def lie_in_ambush(self, probability: float) -> None:
        """Strike now and then right after an answer, a fence, or a metadata change."""
        if not probability:
            return
        random_ = self._rng.random
        loop = self._world.loop

        def spring(what: str, who: str) -> None:
            often = _LIST_WEIGHT if what == "list changed" else 1
            if random_() < probability * often and not self._over:
                loop.kernel_at(loop.time() + random_() * 0.002, lambda: self._ambush(what, who))

        self._world.oracle.on_hot = spring

    def sow_doubt(self, probability: float) -> None:
        """Take every spare bookie away, now and then, when the answer to a change of a ledger is
        lost: whoever finds out what came of it has no other to choose."""
        if not probability:
            return

        def leave(operation: Operation) -> None:
            ledger_id = ledger_of(operation.path)
            if ledger_id is None or self._over or self._rng.random() >= probability:
                return
            metadata = self._world.oracle.ledger(ledger_id).metadata
            for host in self._world.bookies:
                if metadata and self._world.bookie_id(host) not in metadata.last_fragment.ensemble:
                    self._note("%s leaves: ledger %d is in doubt", host.name, ledger_id)
                    self._set_read_only_for(host, self._mean_s(0.3, 1.0))
                    self.counts["doubt"] = self.counts.get("doubt", 0) + 1

        self._world.store.on_lost = leave

    def _set_read_only_for(self, host: Host, mean_s: float) -> None:
        self._world.set_read_only(host, read_only=True)
        self._later(mean_s, lambda: self._world.set_read_only(host, read_only=False))

    def _ambush(self, what: str, who: str) -> None:
        if self._over:
            return
        host = next((h for h in self._world.bookies if who.startswith(f"{h.name}:")), None)
        host = host or self._any(self._everybody())
        if not host.running or host.process is None or host.process.paused:
            return
        self._note("ambush at %s", what)
        action = self._rng.randrange(5)
        if action == 4:
            self._deliver_everything()
        elif action < 2:
            self._kill(host, power_loss=action == 0 and host in self._world.bookies)
        elif action == 2:
            self._pause(host.process)
        else:
            for end in self._world.net.connections():
                if end.host is host and not end.dead:
                    self._world.net.reset(end)
        self.counts["ambush"] = self.counts.get("ambush", 0) + 1

    def _deliver_everything(self) -> None:
        """What cuts and pauses held back arrives now, however late."""
        self._heal()
        for host in self._everybody():
            if host.process is not None:
                self._resume(host.process)

    def strike(self, name: str) -> bool:
        """Make one fault of a class; False when there was nothing to break."""
        return getattr(self, "_" + name.replace(" ", "_").replace("-", "_"))() is not False

    def heal_all(self) -> None:
        """Mend everything and start everything."""
        world = self._world
        self._over = True
        world.oracle.note("healing everything")
        for host in [*world.bookies, *world.clients]:
            host.powered = True
            host.wall_offset_ms = 0
            volume = world.volume(host)
            if volume is not None:
                volume.capacity_bytes = 1 << 40
                volume.flip_read_p = 0.0
                volume.fail_syncs = 0
                volume.stops_in = -1
                index = world.index(host)
                assert index is not None, "who has a disk has an index"
                index.fail_tables = 0
                index.fails_in = -1
                world.calm_disk(host)
                world.set_read_only(host, read_only=False)
            process = host.process
            if process is not None and process.alive and process.paused:
                self._resume(process)
            if not host.running:
                world.boot(host)
        world.net.heal_all()
        world.net.calm_down()
        world.store.calm_down()
        world.store.links_changed()

    # ---------------------------------------------------------------- choosing

    def _any(self, hosts: list[Host]) -> Host:
        return hosts[self._rng.randrange(len(hosts))]

    def _running(self, hosts: list[Host]) -> Host | None:
        running = [host for host in hosts if host.running]
        return self._any(running) if running else None

    def _later(self, mean_s: float, then: Callable[[], None]) -> None:
        loop = self._world.loop

        def act() -> None:
            if not self._over:
                then()

        loop.kernel_at(loop.time() + self._rng.expovariate(1 / mean_s), act)

    def _mean_s(self, *choices: float) -> float:
        return self._rng.choice(choices)

    def _note(self, text: str, *values: object) -> None:
        self._world.oracle.note("NEMESIS " + text, *values)

    # ---------------------------------------------------------------- processes and machines

    def _kill(self, host: Host, power_loss: bool = False) -> None:
        self._note("%s %s", "power loss of" if power_loss else "kill", host.name)
        process = host.process
        if power_loss:
            host.powered = False
        if process is not None and process.alive:
            self._world.loop.kill(process)
        if power_loss:
            self._world.power_lost(host)
        self._later(self._mean_s(0.02, 0.2, 1.0), lambda: self._restart(host))

    def _restart(self, host: Host) -> None:
        if host.running:
            return
        self._note("start %s", host.name)
        host.powered = True
        self._world.boot(host)
        self._world.net.release_held()
        self._world.store.links_changed()

    def _kill_bookie(self) -> bool:
        return self._kill_one(self._world.bookies)

    def _kill_client(self) -> bool:
        return self._kill_one(self._world.clients)

    def _kill_one(self, hosts: list[Host]) -> bool:
        host = self._running(hosts)
        if host is None:
            return False
        self._kill(host)
        return True

    def _power_loss_of_a_bookie(self) -> bool:
        host = self._running(self._world.bookies)
        if host is None:
            return False
        self._kill(host, power_loss=True)
        return True

    def _power_loss_of_all_bookies(self) -> None:
        for host in self._world.bookies:
            if host.powered:
                self._kill(host, power_loss=True)

    def _power_loss_of_everything(self) -> None:
        for host in [*self._world.bookies, *self._world.clients]:
            if host.powered:
                self._kill(host, power_loss=True)

    def _pause_bookie(self) -> bool:
        return self._pause_one(self._world.bookies)

    def _pause_client(self) -> bool:
        return self._pause_one(self._world.clients)

    def _pause_one(self, hosts: list[Host]) -> bool:
        host = self._running(hosts)
        if host is None or host.process is None or host.process.paused:
            return False
        self._pause(host.process)
        return True

    def _pause(self, process: Process) -> None:
        self._note("pause %s", process.name)
        self._world.loop.pause(process)
        self._world.store.paused(process)
        self._later(self._mean_s(0.05, 0.5, 3.0), lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if process.alive and process.paused:
            self._note("resume %s", process.name)
            self._world.store.resuming(process)
            self._world.loop.resume(process)
            self._world.store.links_changed()

    # ---------------------------------------------------------------- links

    def _everybody(self) -> list[Host]:
        return [*self._world.bookies, *self._world.clients]

    def _cut(self, source: Host, target: Host, mean_s: float = 0.0) -> None:
        self._note("cut %s -> %s", source.name, target.name)
        self._world.net.cut(source, target)
        self._world.store.links_changed()
        mean_s = mean_s or self._mean_s(0.05, 0.5, 2.0)
        self._later(mean_s, lambda: self._mend(source, target))

    def _mend(self, source: Host, target: Host) -> None:
        self._note("mend %s -> %s", source.name, target.name)
        self._world.net.heal(source, target)
        self._world.store.links_changed()

    def _pair(self) -> tuple[Host, Host]:
        """Draw two hosts that talk to each other."""
        return self._any(self._world.clients), self._any(self._world.bookies)

    def _cut_two_way(self) -> None:
        source, target = self._pair()
        self._cut(source, target)
        self._cut(target, source)

    def _cut_one_way(self) -> None:
        pair = list(self._pair())
        self._rng.shuffle(pair)
        self._cut(pair[0], pair[1])

    def _isolate(self) -> None:
        host = self._any(self._everybody())
        for other in [*self._everybody(), self._world.store.host]:
            if other is not host:
                self._cut(host, other)
                self._cut(other, host)

    def _cut_from_store(self) -> None:
        host = self._any(self._everybody())
        self._cut(host, self._world.store.host)

    def _heal(self) -> None:
        self._note("heal all links")
        self._world.net.heal_all()
        self._world.store.links_changed()

    def _reset_connections(self) -> None:
        keep = self._rng.choice((0.0, 0.5, 0.9))
        self._note("reset connections, keep %s", keep)
        for end in self._world.net.connections():
            if not end.dead and self._rng.random() >= keep:
                self._world.net.reset(end)

    # ---------------------------------------------------------------- disks

    def _disk(self) -> tuple[Host, Volume] | None:
        host = self._any(self._world.bookies)
        volume = self._world.volume(host)
        return None if volume is None else (host, volume)

    def _slow_disk(self) -> bool:
        chosen = self._disk()
        if chosen is None:
            return False
        host, _ = chosen
        self._note("slow disk %s", host.name)
        self._world.slow_down(host, self._rng.choice((5.0, 50.0, 500.0)))
        self._later(self._mean_s(0.1, 1.0), lambda: self._world.slow_down(host, 1.0))
        return True

    def _read_only_bookie(self) -> bool:
        """It takes no more, and its slow disk stores what it took: its answers come late."""
        chosen = self._disk()
        if chosen is None:
            return False
        host, _ = chosen
        self._note("read-only bookie %s", host.name)
        self._world.slow_down(host, self._rng.choice((1.0, 2.0, 5.0)))
        # Until then adds gather at its disk.
        self._later(0.001, lambda: self._world.set_read_only(host, read_only=True))

        def back() -> None:
            self._world.slow_down(host, 1.0)
            self._world.set_read_only(host, read_only=False)

        self._later(0.03, back)
        return True

    def _full_disk(self) -> bool:
        chosen = self._disk()
        if chosen is None:
            return False
        host, volume = chosen
        self._note("full disk %s", host.name)
        left = self._rng.choice((0, 100, 1000, 10_000, FREE_BYTES_MIN, FREE_BYTES_MIN + 3000))
        volume.capacity_bytes = volume.used_bytes + left

        def free() -> None:
            volume.capacity_bytes = 1 << 40

        self._later(self._mean_s(0.1, 1.0), free)
        return True

    def _failed_sync(self) -> bool:
        chosen = self._disk()
        if chosen is None:
            return False
        host, volume = chosen
        self._note("failed sync %s", host.name)
        volume.fail_syncs = 1
        return True

    def _power_loss_in_a_step(self) -> bool:
        return self._stop_in_a_step(power_loss=True)

    def _kill_in_a_step(self) -> bool:
        return self._stop_in_a_step(power_loss=False)

    def _stop_in_a_step(self, *, power_loss: bool) -> bool:
        """Let a bookie end between two elementary disk operations."""
        chosen = self._disk()
        if chosen is None:
            return False
        host, volume = chosen
        self._note("%s will %s in a step", host.name, "lose power" if power_loss else "be killed")
        volume.stops_in = self._rng.randrange(self._rng.choice((3, 30)))

        def stop() -> None:
            if not self._over:
                self._kill(host, power_loss=power_loss)

        volume.on_stop = stop
        if self._rng.random() < 0.5 and host.running:
            self._kill(host)
        return True

    def _index(self) -> tuple[Host, LevelStore] | None:
        host = self._any(self._world.bookies)
        index = self._world.index(host)
        return None if index is None else (host, index)

    def _failed_table(self) -> bool:
        """LevelDB cannot write its next table, and says so to nobody before the next write."""
        chosen = self._index()
        if chosen is None:
            return False
        host, index = chosen
        self._note("failed table %s", host.name)
        index.fail_tables = 1
        return True

    def _failed_index_call(self) -> bool:
        """Some call of LevelDB fails, soon."""
        chosen = self._index()
        if chosen is None:
            return False
        host, index = chosen
        index.fails_in = self._rng.randrange(self._rng.choice((3, 30)))
        self._note("call %d of the index of %s fails", index.fails_in, host.name)
        return True

    def _damage_index(self, host: Host) -> None:
        """Let a bookie's index not open any more."""
        index = self._world.index(host)
        if index is not None:
            index.corrupt = True

    def _lost_index(self) -> bool:
        """Make the index of a bookie unusable at its next start."""
        host = self._any(self._world.bookies)
        self._note("index of %s is damaged", host.name)
        self._damage_index(host)
        if host.running:
            self._kill(host)
        return True

    def _flipped_reads(self) -> bool:
        chosen = self._disk()
        if chosen is None:
            return False
        host, volume = chosen
        self._note("flipped reads %s", host.name)
        volume.flip_read_p = self._rng.choice((0.01, 0.2, 1.0))

        def stop() -> None:
            volume.flip_read_p = 0.0

        self._later(self._mean_s(0.05, 0.5), stop)
        return True

    def _one_copy_may_go(self, host: Host) -> bool:
        """Whether a copy on this host may be destroyed: one bookie in a schedule, if Qa > 1."""
        if not self._world.copies_to_spare or self._destroyed not in (None, host):
            return False
        self._destroyed = host
        return True

    def _rotten_byte(self) -> bool:
        """Change a byte of a file for good, in the cache as on the device.

        Once per schedule, and not in the newest group of a log: without a later group that proves
        it was durable, no bookie can tell rot from what a power loss tore. Where a byte rots the
        index may be lost as well: then the whole log is read again.
        """
        host = self._any(self._world.bookies)
        volume = self._world.volume(host)
        if volume is None or self._destroyed is not None or not self._one_copy_may_go(host):
            return False
        logs = [
            (file, min(len(file.durable), file.newest_sync_at))
            for name, file in sorted(volume.files.items())
            if name.startswith("log/")
        ]
        others = [
            (file, len(file.durable))
            for name, file in sorted(volume.files.items())
            if not name.startswith("log/")
        ]
        chosen = [(f, n) for f, n in (others if self._rng.random() < 0.1 else logs) if n > 0]
        if not chosen:
            return False
        file, size = self._rng.choice(chosen)
        at = self._rng.randrange(size)
        self._note("rotten byte in %s of %s at %d", file.name, host.name, at)
        file.rot(at, 1 << self._rng.randrange(8))
        self._world.oracle.bookie(self._world.bookie_id(host)).rotten = True
        if self._rng.random() < 0.3:
            self._damage_index(host)
        if self._rng.random() < 0.5 and host.running:
            self._kill(host)
        return True

    def _lost_disk(self) -> bool:
        """Give a machine an empty disk."""
        host = self._any(self._world.bookies)
        if not self._one_copy_may_go(host):
            return False
        self._kill(host, power_loss=True)
        self._note("%s has an empty disk", host.name)
        self._world.wipe(host)
        return True

    # ---------------------------------------------------------------- the store and clocks

    def _expire_session(self) -> bool:
        host = self._running(self._everybody())
        if host is None or host.process is None or host.process.paused:
            return False
        self._note("expire session of %s", host.name)
        self._world.store.expire(host.process)
        return True

    def _lagging_store(self) -> bool:
        host = self._running(self._everybody())
        if host is None or host.process is None:
            return False
        process = host.process
        self._note("store lags for %s", host.name)
        self._world.store.freeze(process)
        self._later(self._mean_s(0.05, 0.5), self._world.store.thaw)
        return True

    def _clock_jump(self) -> None:
        host = self._any(self._everybody())
        host.wall_offset_ms = self._rng.choice((-3_600_000, -1000, 1000, 86_400_000))
        self._note("clock of %s off by %s", host.name, host.wall_offset_ms)
