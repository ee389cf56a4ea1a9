"""Receive the next answers in a thread while one is being decoded.

Sockets and decoding both let go of the interpreter lock, so a task fetches and decodes at the same
time. The queue between them bounds what a task holds.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

AHEAD: Final = 2
"""Answers that wait to be decoded, beside the one that is being received."""

_POLL_S: Final = 0.1


class _End:
    """Comes last through the queue, with what ended the producer."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetched(
    items: Iterable[T], interrupt: Callable[[], None], ahead: int = AHEAD
) -> Generator[T, None, None]:
    """Yield `items`, which a thread produces up to `ahead` in advance.

    Errors of the producer come out here, in their place. When the consumer stops early,
    `interrupt` must make a producer that waits for the network give up.
    """
    waiting: queue.Queue[T | _End] = queue.Queue(ahead)
    stopped = threading.Event()

    def put(item: T | _End) -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(_End())
        except BaseException as error:  # it is raised again where the items are used
            put(_End(error))

    thread = threading.Thread(target=produce, name="quire-fetch", daemon=True)
    thread.start()
    finished = False
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                finished = True
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stopped.set()
        if not finished:
            interrupt()
        thread.join()
