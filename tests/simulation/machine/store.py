"""The metadata store of a schedule: the in-memory fake behind a link that faults can cut.

`client/metadata/memory.py` holds the semantics (sessions, watches, CAS). This file ties sessions
to simulated processes: a cut between a host and the store suspends its sessions, a pause lets
them expire unseen, a death leaves ephemerals until the timeout. It also draws latencies, lost
requests and lost answers, and lets servers lag.
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

    from client.ids import Clock
    from tests.simulation.machine.net import SimNet

_CHANGES = frozenset({"create", "set", "delete", "multi"})


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
            clock=clock, session_timeout_s=options.session_timeout_s, reconnect_delay_s=0.02
        )
        self.cluster.latency = self._latency
        self.cluster.on_request = self._on_request
        self._stores: dict[MemoryStore, Process] = {}
        self._expired_unseen: dict[MemoryStore, None] = {}

    def _latency(self) -> float:
        options = self.options
        delay = -options.latency_s * math.log(1.0 - self._random())
        if options.tail_p and self._random() < options.tail_p:
            delay -= options.tail_s * math.log(1.0 - self._random())
        return delay

    def _on_request(self, operation: Operation) -> Fault | None:
        options = self.options
        if operation.name not in _CHANGES:
            if not options.lose_read_p or self._random() >= options.lose_read_p:
                return None
            fault = Fault.LOSE_REQUEST
        elif options.lose_request_p and self._random() < options.lose_request_p:
            fault = Fault.LOSE_REQUEST
        elif options.lose_reply_p and self._random() < options.lose_reply_p:
            fault = Fault.LOSE_REPLY
        else:
            return None
        # A stopped process cannot hear of a broken connection: spare it.
        stopped = any(
            process.paused
            for store, process in self._stores.items()
            if store.session_id == operation.session_id
        )
        return None if stopped else fault

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
            self.options, tail_p=0.0, lose_request_p=0.0, lose_reply_p=0.0, lose_read_p=0.0
        )
        self.thaw()

    def expire(self, process: Process) -> None:
        """End a process' sessions at the server."""
        for store, owner in list(self._stores.items()):
            if owner is process and not process.paused:
                self.cluster.expire(store)
