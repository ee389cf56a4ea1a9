"""Runs kazoo's connection thread: its sockets are ours, and it calls back at once.

kazoo's own handler has a thread for answers and one for watches, which loses the order in which
they came; and sockets that ask the kernel more often than it need be (`zookeeper_io.py`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

from client.metadata.zookeeper_io import BufferedSocket, Readable, TlsSocket, Wake, select_ready
from client.security.tls_contexts import FreshContext

_log = logging.getLogger(__name__)


class _InlineQueue:
    def put(self, call: Callable[[], None]) -> None:
        call()


class NumberedConnection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, whose requests have numbers that no earlier one of the session had.

    A server knows what it owes a session by such a number. kazoo counts from 1 again in every
    connection. So when a session has moved while the leader still held a write of it, the new
    server took the outcome of that write for the answer to the request that had its number by then:
    the answer to another request than the oldest, or, far worse, a success that was none.
    """

    _last_xid = 0

    def __init__(self, client: KazooClient, **options: Any) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger, **options)

    @property
    def _xid(self) -> int:
        return self._last_xid

    @_xid.setter
    def _xid(self, xid: int | None) -> None:
        if xid:  # else kazoo begins a connection
            self._last_xid = xid


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
