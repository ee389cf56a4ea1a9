"""Compresses batches on a thread: that takes milliseconds for each, and would stop the event loop.

Codecs let go of the interpreter while they work, so on a thread of its own this keeps nobody
waiting but those whose batches are compressed. The thread is one, so that it costs one processor at
most, and it opens one batch at a time: what waits is as long as its producer sent it. A connection
has one batch here at most, because its further ones wait behind that one; so connections take
turns, and what waits is bounded by what requests may hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from broker.metrics import Metrics
from broker.partition.core.batch_checks import (
    BatchLimits,
    CheckedBatch,
    is_recompressed,
    recompressed,
)
from client.wire.kafka.batches.records import HEADER_BYTES, parse_header

CODEC_BYTES_MAX: Final = 64 << 20
"""What the thread holds at most, of a batch of 16 MiB that is compressed by zstd at its default
level. At level 19 it is 90 MiB more, at level 22 some 270."""

T = TypeVar("T")

Work = Callable[[], tuple[bytes, CheckedBatch]]
"""Makes a batch's new form, and says what is to be known of it."""


class CodecThread:
    """The thread. It begins with the first batch."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "codecs")

    def begin(
        self, work: Work, then: Callable[[tuple[bytes, CheckedBatch] | BaseException], None]
    ) -> Callable[[], None]:
        """Do `work`, after all that was begun before; call `then`, later, with what it returns or
        raises. Returns a function after which `then` is not called."""
        done = self._begin(work)
        is_wanted = True

        def on_done(done: asyncio.Future[tuple[bytes, CheckedBatch]]) -> None:
            if is_wanted and not done.cancelled():
                error = done.exception()
                then(done.result() if error is None else error)

        done.add_done_callback(on_done)

        def cancel() -> None:
            nonlocal is_wanted
            is_wanted = False  # it may be done, and this call on its way
            done.cancel()

        return cancel

    async def as_wanted(self, batch: bytes, limits: BatchLimits) -> bytes:
        """Return a batch of this broker's as its topic wants it. Raises MessageTooLarge,
        BatchTooLarge."""
        wanted, view = limits.compression, memoryview(batch)
        if wanted is None or not is_recompressed(view, wanted):
            return batch
        known = CheckedBatch(parse_header(batch), False, len(batch) - HEADER_BYTES)
        stored, _ = await self._begin(partial(recompressed, view, known, wanted, limits))
        return stored

    async def do(self, work: Callable[[], T]) -> T:
        """Return what other work with a batch returns. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Begin nothing further."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, work: Work) -> asyncio.Future[tuple[bytes, CheckedBatch]]:
        self._metrics.recompressed_batches += 1
        return asyncio.get_running_loop().run_in_executor(self._thread, work)
