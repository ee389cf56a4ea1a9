"""One end of a simulated TCP connection, as an asyncio transport.

What is written goes onto the wire (`pipe.py`) as long as the other side has at most a window of
bytes unread; beyond it, writes stay in the transport's buffer and the protocol is told to pause.

Everything a protocol hears goes through one queue per end (`_events`), taken one at a time by
handles of its process, so the order made-data-eof-lost holds even when the loop shuffles.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.machine.loop import Handle
from tests.simulation.machine.pipe import Buffer, Pipe, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.machine.hosts import Host, Process
    from tests.simulation.machine.net import SimNet

_HIGH_WATER_DEFAULT = 64 * 1024


class Tap(Protocol):
    """What may listen on an end."""

    def received(self, data: bytes) -> None: ...

    def written(self, data: Buffer) -> None: ...


class SimSocket:
    """What `get_extra_info("socket")` returns: addresses and harmless option calls."""

    def __init__(self, sockname: tuple[str, int], peername: tuple[str, int] | None = None) -> None:
        self._sockname = sockname
        self._peername = peername

    def getsockname(self) -> tuple[str, int]:
        """Return the local address."""
        return self._sockname

    def getpeername(self) -> tuple[str, int]:
        """Return the remote address."""
        if self._peername is None:
            raise OSError("not connected")
        return self._peername

    def setsockopt(self, *args: object) -> None:
        """Accept and ignore an option."""

    def fileno(self) -> int:
        """Return no descriptor."""
        return -1


class SimTransport(asyncio.Transport):
    """One end of a connection, owned by the process that opened or accepted it."""

    __slots__ = (
        "_closing",
        "_eof_written",
        "_events",
        "_handle",
        "_high",
        "_lost",
        "_low",
        "_outbox",
        "_outbox_size",
        "_paused_reading",
        "_paused_writing",
        "_protocol",
        "_pump_queued",
        "_received_size",
        "_unread",
        "dead",
        "host",
        "local",
        "net",
        "number",
        "peer",
        "pipe",
        "process",
        "remote",
        "tap",
    )

    def __init__(
        self,
        net: SimNet,
        number: int,
        process: Process,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__(
            {
                "peername": remote,
                "sockname": local,
                "socket": SimSocket(local, remote),
            }
        )
        assert process.host is not None
        self.net = net
        self.number = number
        self.process = process
        self.host: Host = process.host
        self.local, self.remote = local, remote
        self.peer: SimTransport = self  # set by the network before any use
        self.dead = False
        """The kernel no longer knows this end (killed process, lost power, aborted)."""
        self.tap: Tap | None = None
        """Hears what this end's process is given and what it writes."""
        self.pipe = Pipe(self)
        self._protocol: Any = None
        self._events: deque[tuple[str, Any]] = deque()
        self._handle = Handle(self._pump, (), process.context, process)
        self._pump_queued = False
        self._outbox: deque[Buffer] = deque()
        self._outbox_size = 0
        self._unread = 0
        """Bytes sent that the peer's protocol has not been given yet."""
        self._received_size = 0
        self._closing = False
        self._lost = False
        self._eof_written = False
        self._paused_reading = False
        self._paused_writing = False
        self._high, self._low = _HIGH_WATER_DEFAULT, _HIGH_WATER_DEFAULT // 4

    def __repr__(self) -> str:
        return f"conn{self.number}({self.process.name}:{self.local[1]}->{self.remote})"

    # ---------------------------------------------------------------- the transport interface

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def is_reading(self) -> bool:
        return not self._paused_reading and not self._closing

    def pause_reading(self) -> None:
        self._paused_reading = True

    def resume_reading(self) -> None:
        if self._paused_reading and not self._closing:
            self._paused_reading = False
            self._wake()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_DEFAULT if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low
        self._check_high()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._outbox_size

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Buffer) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be bytes-like, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._lost or self._closing or not self.process.alive:
            return
        if self.dead:
            self._notice_loss()
            return
        if not self.net.options.hold_references:
            data = bytes(data)
        elif isinstance(data, memoryview):
            data = data.cast("B") if data.format != "B" else data
        if not len(data):
            return
        if self.tap is not None:
            self.tap.written(data)
        room = self.net.options.window_bytes - self._unread
        if self._outbox or room <= 0:
            self._enqueue(data)
        elif len(data) <= room:
            self._transmit(data)
        else:
            view = memoryview(data)
            self._transmit(view[:room])
            self._enqueue(view[room:])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self.net.options.hold_references:
            for data in list_of_data:
                self.write(data)
        else:
            self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._eof_written or self._closing or self._lost:
            return
        self._eof_written = True
        if not self._outbox:
            self.pipe.send_flag("fin")

    def close(self) -> None:
        if self._closing or self._lost:
            return
        self._closing = True
        if not self._outbox:
            self._finish_close(None)

    def abort(self) -> None:
        self._force_close(None)

    # ---------------------------------------------------------------- sending

    def _enqueue(self, data: Buffer) -> None:
        self._outbox.append(data)
        self._outbox_size += len(data)
        self._check_high()

    def _check_high(self) -> None:
        if self._outbox_size > self._high and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def _transmit(self, data: Buffer) -> None:
        self._unread += len(data)
        self.pipe.send(data)

    def _room_again(self) -> None:
        """Kernel: the peer has read something; move waiting bytes onto the wire."""
        if self.dead or self._lost:
            return
        window = self.net.options.window_bytes
        while self._outbox and self._unread < window:
            data = self._outbox.popleft()
            room = window - self._unread
            if len(data) > room:
                view = memoryview(data)
                self._outbox.appendleft(view[room:])
                data = view[:room]
            self._outbox_size -= len(data)
            self._transmit(data)
        if self._paused_writing and self._outbox_size <= self._low:
            self._push("resume", None)
        if not self._outbox:
            if self._closing:
                self._finish_close(None)
            elif self._eof_written:
                self.pipe.send_flag("fin")

    # ---------------------------------------------------------------- the kernel's side

    def take(self, segment: Segment) -> None:
        """Kernel: a segment has reached this machine."""
        if segment.flag == "rst":
            if not self.dead:
                self.lose(ConnectionResetError("connection reset by peer"))
            return
        if self.dead or self._lost or (self._closing and segment.size):
            if not self.peer.dead:
                self.net.send_reset(self.peer)
            return
        if segment.flag == "fin":
            self._push("eof", None)
            return
        self._received_size += segment.size
        self._push("data", segment)

    def lose(self, error: Exception | None) -> None:
        """Kernel: the connection is gone on this side; the protocol will hear `error`."""
        if self.dead or self._lost:
            return
        self.dead = True
        self._outbox.clear()
        self._outbox_size = 0
        self.pipe.clear()
        self._push("lost", error)

    def die(self, *, power_loss: bool) -> None:
        """Kernel: the owning process ended. A killed one says goodbye, a dark machine does not."""
        if self.dead:
            return
        self.dead = True
        self._outbox.clear()
        self._outbox_size = 0
        self._events.clear()
        if power_loss:
            self.pipe.lose_some()
        else:
            reset = self._received_size or self.net.random() < 0.5
            self.pipe.send_flag("rst" if reset else "fin")

    def _notice_loss(self) -> None:
        """A write into a broken connection tells a protocol that has paused reading."""
        if self._paused_reading and self._events and self._events[-1][0] == "lost":
            lost = self._events[-1]
            self._events.clear()
            self._push(*lost)

    # ---------------------------------------------------------------- closing

    def _finish_close(self, error: Exception | None) -> None:
        self.pipe.send_flag("fin")
        if not self._lost:
            self._push("lost", error)

    def _force_close(self, error: Exception | None) -> None:
        if self._lost or self.dead:
            return
        self._closing = True
        self._outbox.clear()
        self._outbox_size = 0
        self.pipe.send_flag("rst")
        self.dead = True
        self._push("lost", error)

    # ---------------------------------------------------------------- what the protocol hears

    def _push(self, kind: str, value: Any) -> None:
        if self.process.alive:
            self._events.append((kind, value))
            self._wake()

    def accepted(self, factory: Callable[[], Any]) -> None:
        """Let the listening process make a protocol for this end."""
        self._push("accepted", factory)

    def made(self, connected: Callable[[], None] | None) -> None:
        """Tell the protocol that the connection is there, then call `connected`."""
        self._push("made", connected)

    def _wake(self) -> None:
        if not self._pump_queued and self._events and not self._blocked():
            self._pump_queued = True
            self.net.loop.queue_for(self.process, self._handle)

    def _blocked(self) -> bool:
        if not self._paused_reading or self._closing:
            return False
        return self._events[0][0] in ("data", "eof")

    def _pump(self) -> None:
        """Give the protocol its next event (one handle of the owning process)."""
        self._pump_queued = False
        if not self._events or self._blocked():
            return
        kind, value = self._events.popleft()
        if self._events:
            self._wake()
        getattr(self, f"_on_{kind}")(value)
        if self._events:
            self._wake()

    def _on_made(self, connected: Callable[[], None] | None) -> None:
        self._protocol.connection_made(self)
        if connected is not None:
            connected()

    def _on_accepted(self, factory: Callable[[], Any]) -> None:
        self._protocol = factory()
        self._protocol.connection_made(self)

    def _on_data(self, segment: Segment) -> None:
        chunks, size = segment.chunks, segment.size
        events, limit = self._events, self.net.options.receive_bytes_max
        while events and events[0][0] == "data" and size + events[0][1].size <= limit:
            more = events.popleft()[1]
            chunks += more.chunks
            size += more.size
        self._received_size -= size
        peer = self.peer
        peer._unread -= size
        if peer._outbox or peer._paused_writing:
            self.net.acknowledge(peer)
        if self._closing or self._lost:
            return
        data = bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)
        if self.tap is not None:
            self.tap.received(data)
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._feed_buffered(data)
        else:
            self._protocol.data_received(data)

    def _feed_buffered(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._lost:
            buffer = self._protocol.get_buffer(len(view))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]

    def _on_eof(self, _: None) -> None:
        if self._closing or self._lost:
            return
        if self._protocol is None or not self._protocol.eof_received():
            self.close()

    def _on_resume(self, _: None) -> None:
        if self._paused_writing and self._outbox_size <= self._low and not self._lost:
            self._paused_writing = False
            self._protocol.resume_writing()

    def _on_lost(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._events.clear()
        self.net.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)
