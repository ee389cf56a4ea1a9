"""The nemesis of whole clusters: what it can do to brokers and their clients, on top."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from tests.simulation.bookies.faults import Nemesis, World
from tests.simulation.machine.net import Slowness

if TYPE_CHECKING:
    import random

    from tests.simulation.machine.hosts import Host


DISTURBED = "disturbed in a change"


class ClusterLevers(World, Protocol):
    """What the nemesis needs to know about a cluster with brokers."""

    brokers: list[Host]

    def close_broker(self, host: Host) -> None:
        """Stop the broker on a host in peace; its supervisor starts another."""
        ...

    def leading(self) -> list[Host]:
        """Return the hosts of brokers that lead a partition of the topic, or think so."""
        ...

    def forget_broker(self, host: Host) -> None:
        """Delete the registration of the broker on a host."""
        ...

    def roll(self, host: Host) -> None:
        """Let the broker on a host roll the partitions that it leads."""
        ...

    def spoil_a_node(self) -> bool:
        """Let something in the metadata store be unreadable for a while; False: nothing is."""
        ...

    def break_a_task(self, host: Host, which: int) -> None:
        """Let a background task of the broker on a host run into a bug, once."""
        ...

    def break_a_request(self, host: Host) -> None:
        """Let a request of the broker on a host to the metadata store run into a bug, once."""
        ...

    def break_an_effect(self, host: Host) -> bool:
        """Let an effect of a leader on a host run into a bug, once; False if it leads nothing."""
        ...

    def break_a_callback(self, host: Host, which: int) -> bool:
        """Let whoever hears of an add of the broker on a host run into a bug, once; False if
        nobody waits for one."""
        ...


class ClusterNemesis(Nemesis):
    """Makes faults in one whole-cluster schedule."""

    def __init__(self, world: ClusterLevers, rng: random.Random, weights: dict[str, int]) -> None:
        super().__init__(world, rng, weights)
        self._cluster = world

    def _kill_broker(self) -> bool:
        return self._kill_one(self._cluster.brokers)

    def _pause_broker(self) -> bool:
        return self._pause_one(self._cluster.brokers)

    def _close_broker(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None or host.process is None or host.process.paused:
            return False
        self._note("close %s", host.name)
        self._cluster.close_broker(host)
        return True

    def _cut_broker_from_store(self) -> None:
        """Perhaps for longer than sessions last: then it is replaced and does not know."""
        leading = self._cluster.leading()
        host = self._any(leading if leading and self._rng.random() < 0.7 else self._cluster.brokers)
        self._cut(host, self._cluster.store.host, self._mean_s(0.1, 0.5, 5.0))

    def _expire_broker(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None or host.process is None or host.process.paused:
            return False
        self._note("expire session of %s", host.name)
        self._cluster.store.expire(host.process)
        return True

    def _roll_everything(self) -> None:
        self._note("roll everything")
        for host in self._cluster.brokers:
            self._cluster.roll(host)

    def _pause_in_a_roll(self) -> bool:
        """Stop a leader between the steps of a roll, for longer than its session may last."""
        host = self._running(self._cluster.brokers)
        if host is None or host.process is None or host.process.paused:
            return False
        process, loop = host.process, self._cluster.loop
        self._note("%s rolls, and pauses", process.name)
        self._cluster.roll(host)

        def pause() -> None:
            if process.alive and not process.paused and not self._over:
                self._pause(process)

        loop.kernel_at(loop.time() + self._rng.random() * self._mean_s(0.005, 0.02, 0.1), pause)
        return True

    def _lose_a_bookie(self) -> bool:
        """Take a bookie away for longer than auto recovery waits; one at a time."""
        bookies = self._cluster.bookies
        host = self._running(bookies)
        if host is None or not all(bookie.running for bookie in bookies):
            return False
        self._note("lose %s", host.name)
        assert host.process is not None
        self._cluster.loop.kill(host.process)
        self._later(4.0, lambda: self._restart(host))
        return True

    def _full_bookies(self) -> bool:
        """Let all bookies, or all but one, take no more entries for a while: no ledger can be
        created then, and reads go on."""
        bookies = [
            host
            for host in self._cluster.bookies
            if host.running and host.process is not None and not host.process.paused
        ]
        for host in self._rng.sample(bookies, max(0, len(bookies) - self._rng.randrange(2))):
            self._note("%s is full", host.name)
            self._set_read_only_for(host, self._mean_s(0.3, 1.0, 3.0))
        return bool(bookies)

    def _wrong_guess(self) -> bool:
        """A peer takes a live broker for dead and deletes its registration, perhaps unheard."""
        host = self._running(self._cluster.brokers)
        if host is None or host.process is None or host.process.paused:
            return False
        loop = self._cluster.loop
        self._note("%s is taken for dead", host.name)
        if self._rng.random() < 0.8:
            self._cluster.store.freeze(host.process)
            self._later(0.5, self._cluster.store.thaw)
        self._cluster.forget_broker(host)
        for _ in range(3):
            delay_s = self._rng.random() * self._mean_s(0.03, 0.1, 0.3)
            loop.kernel_at(loop.time() + delay_s, functools.partial(self._cluster.roll, host))
        return True

    # ---------------------------------------------------------------- overload

    def _slow_link(self) -> None:
        """Make the link between two hosts slow, in both directions."""
        pair = self._pair()
        self._make_slow([pair, pair[::-1]], self._mean_s(0.3, 1.0, 3.0))

    def _slow_bookie(self) -> None:
        """Make the disk of a bookie slow, and every link to it."""
        host = self._any(self._cluster.bookies)
        mean_s = self._mean_s(0.3, 1.0, 3.0)
        self._cluster.slow_down(host, self._rng.choice((5.0, 50.0)))
        self._later(mean_s, lambda: self._cluster.slow_down(host, 1.0))
        pairs = [(broker, host) for broker in self._cluster.brokers]
        self._make_slow([*pairs, *(pair[::-1] for pair in pairs)], mean_s)

    def _make_slow(self, links: list[tuple[Host, Host]], mean_s: float) -> None:
        net, rng = self._cluster.net, self._rng
        slowness = Slowness(rng.choice((5_000.0, 20_000.0)), rng.choice((0.0, 0.005, 0.05)))
        for link in links:
            self._note("slow %s -> %s: %s", link[0].name, link[1].name, slowness)
            net.slow_down(*link, slowness)

        def speed_up() -> None:
            for link in links:
                net.speed_up(*link)

        self._later(mean_s, speed_up)

    def _failing_task(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None:
            return False
        self._note("a task of %s will fail", host.name)
        self._cluster.break_a_task(host, self._rng.randrange(2))
        return True

    def _failing_callback(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None or not self._cluster.break_a_callback(host, self._rng.randrange(2)):
            return False
        self._note("a callback of %s will fail", host.name)
        return True

    def _failing_request(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None:
            return False
        self._note("a request of %s will fail", host.name)
        self._cluster.break_a_request(host)
        return True

    def _failing_effect(self) -> bool:
        host = self._running(self._cluster.brokers)
        if host is None or not self._cluster.break_an_effect(host):
            return False
        self._note("an effect of %s will fail", host.name)
        return True

    def _spoiled_node(self) -> bool:
        return self._cluster.spoil_a_node()

    def disturb(self, host: Host, within_s: float) -> None:
        """Disturb a broker while something changes: it stops, it does not hear of what happens
        from then on, or it loses the store and asks again for what it had asked for."""
        self._disturb_soon(host, within_s, self._rng.randrange(3))

    def interrupt(self, host: Host, within_s: float) -> None:
        """Stop a broker between what it has read and what it makes of that, or take the store from
        it."""
        self._disturb_soon(host, within_s, self._rng.randrange(1, 3))

    def _disturb_soon(self, host: Host, within_s: float, action: int) -> None:
        loop = self._cluster.loop
        if not self._over and self._names and host.running:
            strike = functools.partial(self._disturb_now, host, action)
            loop.kernel_at(loop.time() + self._rng.random() * within_s, strike)

    def _disturb_now(self, host: Host, action: int) -> None:
        process = host.process
        if self._over or process is None or not process.alive or process.paused:
            return
        self._note("%s is disturbed in a change", host.name)
        self.counts[DISTURBED] = self.counts.get(DISTURBED, 0) + 1
        if action == 0:
            self._cluster.store.freeze(process)
            self._later(self._mean_s(0.03, 0.2), self._cluster.store.thaw)
        elif action == 1:
            self._pause(process)
        else:
            self._cut(host, self._cluster.store.host, self._mean_s(0.02, 0.1, 0.5))

    def _ambush(self, what: str, who: str) -> None:
        """After a change of a list, half of the time: its leader may not hear of its success.

        Cut off from the store, its registration gone, it is overtaken while it tries to find out.
        """
        host = self._any(self._cluster.brokers)
        if what != "list changed" or self._over or self._rng.random() < 0.5:
            super()._ambush(what, who)
        elif host.running:
            self._note("ambush at %s: %s is cut off and forgotten", what, host.name)
            self._cut(host, self._cluster.store.host)
            self._cluster.forget_broker(host)
            self.counts["ambush"] = self.counts.get("ambush", 0) + 1

    def _pair(self) -> tuple[Host, Host]:
        """A client and the broker it talks to, two brokers, or a broker and a bookie."""
        broker = self._any(self._cluster.brokers)
        other = self._any([*self._cluster.bookies, *self._cluster.clients])
        return (broker, other) if other is not broker else (broker, self._cluster.bookies[0])
