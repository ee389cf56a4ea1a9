"""Has a child process do the work of compaction, so that the event loop does not.

The child lives while rounds follow each other, and ends when none is due. It gets bytes and gives
bytes back: it needs neither bookies nor the metadata store, and may be killed at any moment. Then,
or if it does not answer in time, the round under way fails, and is tried again after a pause, with
another child (`core/attempts.py`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from typing import Final

from broker.compaction.core.round_codec import PREFIX, body_bytes, decode_answer, encode_request
from broker.compaction.core.round_messages import BeginRound, Request, WorkDone
from broker.errors import CompactionFailed
from client.node import background

_LOG = logging.getLogger(__name__)

_BUFFER_BYTES: Final = 512 * 1024
_ENVIRON: Final = ("PATH", "LANG", "LC_ALL", "TZ")
"""What the child gets of our environment, in which secrets may stand."""


class ChildWorker:
    """Starts a child when a round begins and there is none."""

    def __init__(self, *, memory_bytes_max: int, timeout_ms: int) -> None:
        """`timeout_ms`: for one answer."""
        self._memory_bytes_max = memory_bytes_max
        self._timeout_s = timeout_ms / 1000
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reaping: dict[asyncio.Task[None], None] = {}

    @property
    def key_bytes(self) -> int:
        """None of this process: the child has a limit of its own, `memory_bytes_max`."""
        return 0

    @property
    def pid(self) -> int:
        """Process id of the child; 0: there is none."""
        return 0 if self._process is None else self._process.pid

    async def do(self, request: Request) -> WorkDone:
        """Have it done. Raises CompactionFailed."""
        try:
            if isinstance(request, BeginRound) and self._process is None:
                await self._start()
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(request)
        except CompactionFailed:
            raise
        except TimeoutError as error:
            self._end()
            raise CompactionFailed(
                f"the child process did not answer within {self._timeout_s:.0f} s"
            ) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            how = self._end()
            raise CompactionFailed(f"the child process has exited: {how or repr(error)}") from error
        except BaseException:
            self._end()  # in the middle of an answer, nothing more can be asked
            raise

    async def close(self) -> None:
        """End the child, if there is one, and wait until it is gone."""
        self._end()
        await asyncio.gather(*self._reaping)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            self._process = _spawn(theirs, self._memory_bytes_max)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_unix_connection(
            sock=ours, limit=2 * _BUFFER_BYTES
        )
        _LOG.info("compaction.child_started pid=%d", self._process.pid)

    async def _ask(self, request: Request) -> WorkDone:
        reader, writer = self._reader, self._writer
        if reader is None or writer is None:
            raise CompactionFailed("the child process has exited")
        writer.writelines(encode_request(request))
        await writer.drain()
        prefix = await reader.readexactly(PREFIX.size)
        return decode_answer(prefix, await reader.readexactly(body_bytes(prefix)))

    def _end(self) -> str:
        """Let go of the child; return how it had ended, if it had."""
        if self._writer is not None:
            self._writer.close()
        process, self._process, self._reader, self._writer = self._process, None, None, None
        if process is None:
            return ""
        code = process.poll()
        if code is not None:
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        process.kill()
        task = background.run(_reap(process), "compaction child")
        self._reaping[task] = None
        task.add_done_callback(self._reaping.pop)
        return ""


def _spawn(end: socket.socket, memory_bytes_max: int) -> subprocess.Popen[bytes]:
    """Start the child with its end of a socket; that takes a millisecond or two."""
    environ = {name: os.environ[name] for name in _ENVIRON if name in os.environ}
    environ["PYTHONPATH"] = os.pathsep.join(path or os.curdir for path in sys.path)
    return subprocess.Popen(  # noqa: S603  (our own interpreter and module)
        [sys.executable, "-P", "-m", "broker.compaction.child", str(memory_bytes_max)],
        stdin=end.fileno(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=environ,
    )


async def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that was killed."""
    await asyncio.to_thread(process.wait)
