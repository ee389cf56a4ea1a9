"""The metadata store of a schedule: the in-memory fake behind a link that faults can cut.

`client/metadata/memory.py` holds the semantics (sessions, watches, CAS). This file ties sessions
to simulated processes: a cut between a host and the store suspends its sessions, a pause lets
them expire unseen, a death leaves ephemerals until the timeout. It also draws latencies, requests
and answers that are lost, writes that take place late, and how far each session's server lags.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from client.metadata.memory import Fault, MemoryCluster, MemoryStore, Operation
from client.metadata.store import SessionState
from tests.simulation.machine.hosts import PROCESS, Host, Process

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from client.ids import Clock
    from tests.simulation.machine.net import SimNet

_CHANGES = frozenset({"create", "set", "delete", "multi"})
_READS = frozenset({"get", "get_many", "exists"})
_RECONNECT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """How the servers of an ensemble fall behind its leader, and what becomes of writes."""

    lag_s: float
    """Mean time by which a change comes late to a session's server, if it does."""
    lag_p: float
    """Probability that it does."""
    behind_p: float
    """Probability that a session which comes back finds a server that lacks some of what the
    session has not seen."""
    behind_s: float
    """Mean time until that server has applied it."""
    late_p: float
    """Probability that a change's connection breaks before the change is made, but it is later."""
    late_s: float
    """How much later, on average."""
    away_s: float
    """Mean time until a session whose connection broke has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How the metadata store behaves in one schedule."""

    session_timeout_s: float = 4.0
    latency_s: float = 0.001
    tail_p: float = 0.0
    tail_s: float = 0.3
    lose_request_p: float = 0.0
    """Probability that a change's connection breaks before the change is made."""
    lose_reply_p: float = 0.0
    """Probability that it breaks after the change was made: the outcome is unknown."""
    lose_read_p: float = 0.0
    """Probability that a read's connection breaks."""
    lag: LagOptions | None = None
    """None: servers lag only where a fault lets them, and no change comes late."""


class SimMetadata:
    """All sessions of a schedule and the host the store runs on."""

    def __init__(
        self, net: SimNet, rng: random.Random, options: StoreOptions, clock: Clock
    ) -> None:
        self.net = net
        self.host = net.add_host("store")
        self.options = options
        self._random = rng.random
        self.cluster = MemoryCluster(
            clock=clock, session_timeout_s=options.session_timeout_s, reconnect_delay_s=_RECONNECT_S
        )
        self.cluster.latency = self._latency
        self.cluster.on_request = self._on_request
        self.on_event: Callable[[str], None] = lambda what: None
        """Told of what sessions had to bear, to be counted."""
        self.on_lost: Callable[[Operation], None] = lambda operation: None
        """Told of a change whose answer will be lost, before it is made, if it is."""
        if options.lag is not None:
            self.cluster.lag = self._lag
            self.cluster.landing = self._landing
            self.cluster.late_s = self._late_s
        self._stores: dict[MemoryStore, Process] = {}
        self._expired_unseen: dict[MemoryStore, None] = {}

    def _latency(self) -> float:
        options = self.options
        delay = -options.latency_s * math.log(1.0 - self._random())
        if options.tail_p and self._random() < options.tail_p:
            delay -= options.tail_s * math.log(1.0 - self._random())
        return delay

    def _exponential(self, mean_s: float) -> float:
        return -mean_s * math.log(1.0 - self._random())

    def _lag(self, store: MemoryStore) -> float:
        """Return how late a change comes to a session's server."""
        lag = self.options.lag
        if lag is None or store not in self._stores or self._random() >= lag.lag_p:
            return 0.0
        return self._exponential(lag.lag_s)

    def _landing(self, store: MemoryStore, count: int) -> tuple[int, float]:
        """Return how many changes the server lacks to which a session comes back, and how long."""
        lag = self.options.lag
        if lag is None or store not in self._stores or self._random() >= lag.behind_p:
            return 0, 0.0
        self.on_event("sessions that came back to an older server")
        return 1 + int(self._random() * count), self._exponential(lag.behind_s)

    def _late_s(self) -> float:
        lag = self.options.lag
        return 0.0 if lag is None else self._exponential(lag.late_s)

    def _on_request(self, operation: Operation) -> Fault | None:
        fault = self._fault(operation)
        lag = self.options.lag
        if lag is not None:
            if fault is None and operation.name in _READS:
                if self.cluster.shows_the_past(operation.session_id, operation.path):
                    self.on_event("reads of the past")
            elif fault is not None:
                self.cluster.reconnect_delay_s = _RECONNECT_S + self._exponential(lag.away_s)
        return fault

    def _fault(self, operation: Operation) -> Fault | None:
        options = self.options
        if operation.name not in _CHANGES:
            if not options.lose_read_p or self._random() >= options.lose_read_p:
                return None
            fault = Fault.LOSE_REQUEST
        elif options.lose_request_p and self._random() < options.lose_request_p:
            fault = Fault.LOSE_REQUEST
        elif options.lose_reply_p and self._random() < options.lose_reply_p:
            fault = Fault.LOSE_REPLY
        elif options.lag and options.lag.late_p and self._random() < options.lag.late_p:
            fault = Fault.DELAY_REQUEST
        else:
            return None
        # A stopped process cannot hear of a broken connection: spare it.
        stopped = any(
            process.paused
            for store, process in self._stores.items()
            if store.session_id == operation.session_id
        )
        if stopped:
            return None
        if fault is Fault.DELAY_REQUEST:
            self.on_event("late writes")
        if operation.name in _CHANGES:
            self.on_lost(operation)
        return fault

    def session(self) -> MemoryStore:
        """Open a session of the current process."""
        process = PROCESS.get()
        assert process is not None and process.host is not None
        store = self.cluster.session()
        self._stores[store] = process
        process.on_death.append(lambda: self._died(store))
        if self._is_cut(process.host):
            self.cluster.suspend(store)
        return store

    def _died(self, store: MemoryStore) -> None:
        del self._stores[store]
        self._expired_unseen.pop(store, None)
        self.cluster.kill(store)

    def _is_cut(self, host: Host) -> bool:
        return self.net.is_cut(host, self.host) or self.net.is_cut(self.host, host)

    def links_changed(self) -> None:
        """Suspend and resume sessions as the cuts now say; call it after every cut and heal."""
        for store, process in list(self._stores.items()):
            if process.paused:
                continue
            assert process.host is not None
            cut = self._is_cut(process.host)
            connected = store.state is SessionState.CONNECTED
            if cut and connected:
                self.cluster.suspend(store)
            elif not cut and not connected:
                self.cluster.resume(store)

    def paused(self, process: Process) -> None:
        """A process stopped: unless it runs again in time, the server expires its sessions."""
        pauses = process.pauses

        def expire() -> None:
            if not process.paused or process.pauses != pauses:
                return
            for store, owner in list(self._stores.items()):
                if owner is process:
                    self.cluster.expire_unseen(store)
                    self._expired_unseen[store] = None

        loop = self.net.loop
        loop.kernel_at(loop.time() + self.options.session_timeout_s, expire)

    def resuming(self, process: Process) -> None:
        """A zombie is about to run again: it will hear of what happened to its sessions."""
        for store, owner in list(self._stores.items()):
            if owner is process and store in self._expired_unseen:
                del self._expired_unseen[store]
                self.cluster.suspend(store)

    def freeze(self, process: Process) -> None:
        """Let the server behind a process' sessions lag."""
        for store, owner in self._stores.items():
            if owner is process and store.state is SessionState.CONNECTED:
                self.cluster.freeze(store)

    def thaw(self) -> None:
        """Let every server catch up."""
        for store in self._stores:
            self.cluster.thaw(store)

    def calm_down(self) -> None:
        """From now on, no request or answer is lost or very late."""
        self.options = replace(
            self.options,
            tail_p=0.0,
            lose_request_p=0.0,
            lose_reply_p=0.0,
            lose_read_p=0.0,
            lag=None,
        )
        self.cluster.reconnect_delay_s = _RECONNECT_S
        self.thaw()

    def expire(self, process: Process) -> None:
        """End a process' sessions at the server."""
        for store, owner in list(self._stores.items()):
            if owner is process and not process.paused:
                self.cluster.expire(store)
