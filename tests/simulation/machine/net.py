"""The simulated network: addresses, listeners, links that can be cut, delays with heavy tails.

Links are directed pairs of hosts. A cut holds what is in flight (TCP retransmits) and delivers
it after healing, or the sender gives up after a while and sees a reset. Connections between the
same two hosts have independent delays, so messages on two channels overtake each other; that is
what lets a late add arrive after a fence.
"""

from __future__ import annotations

import asyncio
import math
import socket
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.machine.hosts import PROCESS, Host, Process
from tests.simulation.machine.pipe import Pipe, Segment
from tests.simulation.machine.transport import SimSocket, SimTransport

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.machine.loop import SimLoop

_EPHEMERAL_PORTS_FROM = 40_000
_CALM_WINDOW_BYTES = 256 * 1024
_LOCAL_NAMES = frozenset({None, "", "0.0.0.0", "127.0.0.1", "localhost", "::"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NetOptions:
    """How the network behaves in one schedule; drawn from the seed by `bookies/swarm.py`."""

    latency_s: float = 0.0005
    """Mean of each connection's base delay."""
    jitter_s: float = 0.0002
    """Mean of what each segment adds."""
    tail_p: float = 0.0
    """Probability that a segment adds a draw of `tail_s`."""
    tail_s: float = 0.1
    slow_p: float = 0.0
    """Probability that a connection's base delay is drawn around `tail_s`."""
    split_p: float = 0.1
    """Probability that a write is cut in two at a random byte."""
    coalesce_s: float = 0.00002
    """Writes this close together share a segment."""
    window_bytes: int = 256 * 1024
    receive_bytes_max: int = 256 * 1024
    give_up_s: float = 8.0
    """Mean time after which a sender gives a held connection up."""
    hold_references: bool = False
    """Keep references to written buffers until delivery, as uvloop may: finds reused buffers."""


class Slowness(NamedTuple):
    """What a slow link does to each connection over it, in one direction."""

    bytes_per_s: float
    delay_s: float


class SimServer(asyncio.AbstractServer):
    """A listening port of one process."""

    def __init__(
        self, net: SimNet, process: Process, port: int, factory: Callable[[], Any]
    ) -> None:
        self._net = net
        self.process = process
        self.factory = factory
        assert process.host is not None
        self.address = (process.host.ip, port)
        self.sockets = (SimSocket(self.address),)

    def close(self) -> None:
        self._net.stop_listening(self)

    async def wait_closed(self) -> None:
        return

    def is_serving(self) -> bool:
        return self._net.listener(self.address) is self

    async def start_serving(self) -> None:
        return

    async def serve_forever(self) -> None:
        await self._net.loop.create_future()

    def get_loop(self) -> Any:
        return self._net.loop

    async def __aenter__(self) -> SimServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class _Syn:
    """A connection attempt under way."""

    __slots__ = ("address", "done", "end", "factory", "process", "target")

    def __init__(self, process: Process, target: Host, address: tuple[str, int]) -> None:
        self.process = process
        self.target = target
        self.address = address
        self.end: SimTransport | None = None
        self.done: asyncio.Future[SimTransport] | None = None


class SimNet:
    """All links, listeners and connections of one schedule."""

    def __init__(self, loop: SimLoop, rng: random.Random, options: NetOptions) -> None:
        self.loop = loop
        loop.net = self
        self.options = options
        self.coalesce_s = options.coalesce_s
        self.random = rng.random
        self._hosts: dict[str, Host] = {}
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._ports: dict[str, int] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], Slowness] = {}
        self._connections: dict[int, SimTransport] = {}
        self.held: dict[Pipe, None] = {}
        self._waiting: dict[_Syn, None] = {}
        self._numbers = 0
        self.segments = 0
        self.on_accept: Callable[[SimTransport, Process], None] | None = None
        """Called with the accepting end and the process that connects; may set `end.tap`."""

    # ---------------------------------------------------------------- hosts

    def add_host(self, name: str) -> Host:
        """Make a machine, reachable by its name and by an IP address of its own."""
        host = Host(name, f"10.0.0.{len(self._hosts) // 2 + 1}")
        self._hosts[name] = self._hosts[host.ip] = host
        return host

    def resolve(self, name: Any, here: Host) -> Host:
        """Find a machine by name or address; loopback names mean the asking machine."""
        if name in _LOCAL_NAMES:
            return here
        try:
            return self._hosts[name]
        except KeyError:
            raise socket.gaierror(socket.EAI_NONAME, f"unknown host {name}") from None

    def getaddrinfo(self, name: Any, port: Any) -> list[Any]:
        """Answer as `socket.getaddrinfo` does for one IPv4 stream address."""
        host = self.resolve(name, self._here())
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host.ip, port))]

    def _here(self) -> Host:
        process = PROCESS.get()
        assert process is not None and process.host is not None, "not inside a simulated process"
        return process.host

    def bind(self, process: Process) -> None:
        """Disconnect a process' connections and listeners when it dies."""
        process.on_death.append(lambda: self._process_died(process))

    def _process_died(self, process: Process) -> None:
        host = process.host
        assert host is not None
        for server in [s for s in self._listeners.values() if s.process is process]:
            self.stop_listening(server)
        for end in [c for c in self._connections.values() if c.process is process]:
            end.die(power_loss=not host.powered)
            self.forget(end)
        for syn in [s for s in self._waiting if s.process is process]:
            del self._waiting[syn]

    # ---------------------------------------------------------------- listening and connecting

    def listen(self, factory: Callable[[], Any], host: Any, port: Any, **_: Any) -> SimServer:
        """Open a listening port of the current process (0 or None picks one)."""
        process = PROCESS.get()
        here = self._here()
        assert process is not None
        if isinstance(host, (list, tuple)):
            host = host[0]
        if self.resolve(host, here) is not here:
            raise OSError(99, f"cannot assign requested address {host}")
        number = int(port or 0) or self._next_port(here)
        address = (here.ip, number)
        if address in self._listeners:
            raise OSError(98, f"address in use {address}")
        server = SimServer(self, process, number, factory)
        self._listeners[address] = server
        return server

    def _next_port(self, host: Host) -> int:
        port = self._ports.get(host.ip, _EPHEMERAL_PORTS_FROM) + 1
        self._ports[host.ip] = port
        return port

    def listener(self, address: tuple[str, int]) -> SimServer | None:
        """Return who listens on an address."""
        return self._listeners.get(address)

    def stop_listening(self, server: SimServer) -> None:
        """Close a port; accepted connections stay."""
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    async def connect(
        self, factory: Callable[[], Any], host: Any, port: Any, **_: Any
    ) -> tuple[SimTransport, Any]:
        """Open a connection from the current process. Raises OSError as a kernel would."""
        process = PROCESS.get()
        assert process is not None
        target = self.resolve(host, self._here())
        syn = _Syn(process, target, (target.ip, int(port)))
        syn.done = self.loop.create_future()
        self._waiting[syn] = None
        self.loop.kernel_at(self.loop.time() + self._hop(), lambda: self._syn_arrived(syn))
        limit_s = 4 * self.give_up_s()
        self.loop.kernel_at(
            self.loop.time() + limit_s,
            lambda: self._syn_failed(
                syn, TimeoutError(110, f"connection to {syn.address} timed out")
            ),
        )
        try:
            end = await syn.done
        except BaseException:
            self._waiting.pop(syn, None)
            if syn.end is not None:
                self.send_reset(syn.end)
            raise
        if end.dead or end.is_closing():
            raise ConnectionResetError(104, "connection reset by peer")
        protocol = factory()
        end.set_protocol(protocol)
        connected = self.loop.create_future()
        end.made(lambda: connected.done() or connected.set_result(None))
        await connected
        return end, protocol

    def _hop(self) -> float:
        return self.connection_delay() + self.jitter()

    def _syn_arrived(self, syn: _Syn) -> None:
        """Kernel of the target: accept, refuse, or hear nothing (cut, or no power)."""
        source = syn.process.host
        assert source is not None
        if syn not in self._waiting:
            return
        if not syn.target.powered or self.is_cut(source, syn.target):
            self._retry_syn(syn)
            return
        server = self._listeners.get(syn.address)
        if server is None or not server.process.alive:
            self.loop.kernel_at(
                self.loop.time() + self._hop(),
                lambda: self._syn_failed(
                    syn, ConnectionRefusedError(111, f"connection to {syn.address} refused")
                ),
            )
            return
        if self.is_cut(syn.target, source):
            self._retry_syn(syn)
            return
        self._accept(syn, server)

    def _retry_syn(self, syn: _Syn) -> None:
        delay = 0.2 + self.random()
        self.loop.kernel_at(self.loop.time() + delay, lambda: self._syn_arrived(syn))

    def _syn_failed(self, syn: _Syn, error: OSError) -> None:
        if self._waiting.pop(syn, syn) is None and syn.done is not None and not syn.done.done():
            syn.done.set_exception(error)

    def _accept(self, syn: _Syn, server: SimServer) -> None:
        source = syn.process.host
        assert source is not None
        local = (source.ip, self._next_port(source))
        self._numbers += 2
        near = SimTransport(self, self._numbers - 1, syn.process, local, syn.address)
        far = SimTransport(self, self._numbers, server.process, syn.address, local)
        near.peer, far.peer = far, near
        self._connections[near.number] = near
        self._connections[far.number] = far
        syn.end = near
        if self.on_accept is not None:
            self.on_accept(far, syn.process)
        far.accepted(server.factory)
        self.loop.kernel_at(self.loop.time() + self._hop(), lambda: self._syn_answered(syn))

    def _syn_answered(self, syn: _Syn) -> None:
        if self._waiting.pop(syn, syn) is None and syn.done is not None and not syn.done.done():
            syn.done.set_result(syn.end)

    def forget(self, end: SimTransport) -> None:
        """Drop an end that has told its protocol that it is lost."""
        self._connections.pop(end.number, None)

    # ---------------------------------------------------------------- delays

    def connection_delay(self) -> float:
        """Draw the base delay of one direction of a connection."""
        options = self.options
        mean = options.latency_s
        if options.slow_p and self.random() < options.slow_p:
            mean = options.tail_s
        return -mean * math.log(1.0 - self.random())

    def jitter(self) -> float:
        """Draw what one segment adds to its connection's base delay."""
        options = self.options
        delay = -options.jitter_s * math.log(1.0 - self.random())
        if options.tail_p and self.random() < options.tail_p:
            delay -= options.tail_s * math.log(1.0 - self.random())
        return delay

    def give_up_s(self) -> float:
        """Draw how long a sender waits on a silent link."""
        return self.options.give_up_s * (0.5 + self.random())

    def acknowledge(self, end: SimTransport) -> None:
        """Tell a sender, one hop later, that the other side has read."""
        if not self.is_cut(end.peer.host, end.host):
            self.loop.kernel_at(self.loop.time() + self._hop(), end._room_again)
        else:
            self.loop.kernel_at(self.loop.time() + 0.2, lambda: self.acknowledge(end))

    def note_segment(self, end: SimTransport, segment: Segment) -> None:
        """Count a delivered segment and stir it into the schedule's digest."""
        self.segments += 1
        loop = self.loop
        digest = zlib.crc32(segment.flag.encode(), loop.digest) ^ hash(loop.time()) ^ end.number
        for chunk in segment.chunks:
            digest = zlib.crc32(chunk, digest & 0xFFFFFFFF)
        loop.digest = digest & 0xFFFFFFFF

    # ---------------------------------------------------------------- faults

    def is_cut(self, source: Host, target: Host) -> bool:
        """Whether nothing gets from one host to another (a dark machine hears nothing)."""
        return not target.powered or (bool(self._cuts) and (source.name, target.name) in self._cuts)

    def cut(self, source: Host, target: Host) -> None:
        """Cut one direction."""
        self._cuts.add((source.name, target.name))

    def heal(self, source: Host, target: Host) -> None:
        """Mend one direction and let what it held come through."""
        self._cuts.discard((source.name, target.name))
        self.release_held()

    def slow_down(self, source: Host, target: Host, slowness: Slowness) -> None:
        """Make one direction slow; what is on its way comes as it would have."""
        self._slow[source.name, target.name] = slowness

    def speed_up(self, source: Host, target: Host) -> None:
        """Make one direction as fast as others again."""
        self._slow.pop((source.name, target.name), None)

    def slowness(self, source: Host, target: Host) -> Slowness | None:
        """Return how slow one direction is; None: it is not."""
        return self._slow.get((source.name, target.name)) if self._slow else None

    def heal_all(self) -> None:
        """Mend every link."""
        self._cuts.clear()
        self._slow.clear()
        self.release_held()

    def calm_down(self) -> None:
        """From now on, no delay has a heavy tail and no window is tiny."""
        self.options = replace(
            self.options, tail_p=0.0, slow_p=0.0, window_bytes=_CALM_WINDOW_BYTES
        )
        slowest_s = 4 * self.options.latency_s
        for end in self._connections.values():
            end.pipe.delay_base_s = min(end.pipe.delay_base_s, slowest_s)

    def release_held(self) -> None:
        """Schedule retransmission of everything that no longer has a cut in its way."""
        now = self.loop.time()
        for pipe in list(self.held):
            if not pipe.is_cut:
                del self.held[pipe]
                since = pipe.held_since
                outage = 0.0 if since is None else now - since
                pipe.release(now + self.random() * min(outage + 0.001, 1.0))

    def send_reset(self, end: SimTransport) -> None:
        """Let `end` hear a reset one hop from now, if it can be reached."""

        def arrive() -> None:
            if self.is_cut(end.peer.host, end.host):
                self.loop.kernel_at(self.loop.time() + 0.2, arrive)
            else:
                end.lose(ConnectionResetError("connection reset by peer"))

        self.loop.kernel_at(self.loop.time() + self._hop(), arrive)

    def connections(self) -> list[SimTransport]:
        """Return all live ends, in order of their making."""
        return list(self._connections.values())

    def reset(self, end: SimTransport) -> None:
        """Break a connection under both its ends; what is in flight is lost."""
        end.lose(ConnectionResetError("connection reset"))
        end.peer.lose(ConnectionResetError("connection reset"))
