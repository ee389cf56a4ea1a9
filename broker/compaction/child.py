"""`python -m broker.compaction.child`: the work of compaction in a process of its own.

    python -m broker.compaction.child MEMORY_BYTES_MAX

The broker that starts it talks to it over its standard input, a socket (`core/round_codec.py`), and
it ends with the broker: whoever holds the other end is gone. It reads no file, opens no connection
and knows no secret; what it gets is records, and what it gives back is records. It is as nice as
can be, and has no more memory than it is told: beyond that a request fails, and the round with it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from typing import Final

from broker.compaction.core.round_codec import (
    PREFIX,
    body_bytes,
    decode_request,
    encode_answer,
    encode_failure,
)
from broker.compaction.core.round_messages import BeginRound, Request
from broker.compaction.core.round_work import RoundWork
from broker.errors import CompactionFailed
from client.node.process import keep_freed_memory
from client.wire.kafka.batches.records import Buffer
from client.wire.steps import finish

_NICE: Final = 10


class _Child:
    """One round after the other."""

    def __init__(self) -> None:
        self._work: RoundWork | None = None

    def answer(self, request: Request) -> list[Buffer]:
        """Do what is asked; return the frame that says what came of it."""
        try:
            if isinstance(request, BeginRound):
                self._work = None  # its memory first
                self._work = RoundWork(request)
            if self._work is None:
                return encode_failure("no round has begun")
            return encode_answer(finish(self._work.do(request)))
        except CompactionFailed as error:
            self._work = None
            return encode_failure(str(error))
        except MemoryError:
            self._work = None
            return encode_failure("it needs more memory than compaction.child_memory_bytes_max")


def main() -> int:
    """Serve whoever holds the other end of standard input, until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    keep_freed_memory()
    broker, child = socket.socket(fileno=0), _Child()
    while True:
        prefix = _receive(broker, PREFIX.size)
        body = None if prefix is None else _receive(broker, body_bytes(prefix))
        if prefix is None or body is None:
            return 0
        frame = child.answer(decode_request(prefix, body))
        try:
            broker.sendall(b"".join(frame))
        except OSError:
            return 0


def _receive(broker: socket.socket, size: int) -> bytearray | None:
    """Return this many bytes; None: the other end is closed."""
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        try:
            count = broker.recv_into(view[got:])
        except OSError:
            return None
        if not count:
            return None
        got += count
    return data


if __name__ == "__main__":
    sys.exit(main())
