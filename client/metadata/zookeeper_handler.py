"""Runs kazoo's connection thread: its sockets are ours, and it calls back at once.

kazoo's own handler has a thread for answers and one for watches, which loses the order in which
they came; and sockets that ask the kernel more often than it need be (`zookeeper_io.py`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from client.metadata.zookeeper_io import BufferedSocket, Readable, TlsSocket, Wake, select_ready
from client.security.tls_contexts import FreshContext

_log = logging.getLogger(__name__)


class _InlineQueue:
    def put(self, call: Callable[[], None]) -> None:
        call()


class InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Runs callbacks in the connection thread at once: ours only hand over to the loop."""

    def __init__(self, contexts: FreshContext[ssl.SSLContext] | None) -> None:
        """`contexts`: of TLS; None: plain text."""
        super().__init__()
        self._contexts = contexts

    def start(self) -> None:
        self.completion_queue = self.callback_queue = _InlineQueue()
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> BufferedSocket:
        made = super().create_connection(*args, **options)
        if self._contexts is None:
            return BufferedSocket(made)
        try:
            return TlsSocket(made, self._contexts.get(), options["hostname"])
        except OSError as error:
            _log.warning("metadata.tls_failed host=%s error=%r", options["hostname"], error)
            raise

    def create_socket_pair(self) -> tuple[Wake, Wake]:
        wake = Wake()
        return wake, wake

    def select(
        self,
        readers: Sequence[Readable],
        writers: Sequence[BufferedSocket],
        _others: Sequence[Readable],
        timeout_s: float | None = None,
    ) -> tuple[list[Readable], list[BufferedSocket], list[Readable]]:
        """Tell who is ready. The connection always takes requests: it gathers them."""
        if writers:
            return [], list(writers), []
        try:
            return select_ready(readers, timeout_s), [], []
        except TimeoutError as error:
            raise self.timeout_exception(str(error)) from None
