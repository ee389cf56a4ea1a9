"""Serves requests of other brokers over a link: the hello, then requests of the registered kinds.

The first request of a connection must be a hello, addressed to this very process, from a registered
broker: a coordinator whose registration is gone has to wait until it is registered again. Whether
the peer may open a link at all is checked before, in `broker/front/handlers/link.py`.

Requests of a connection are answered in order. Each service bounds its own time. An error that a
service raises becomes a refusal, of which the other side only gets the text: errors that the caller
should act on are values in the answer.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from broker.cluster.core.topology import BrokerInfo
from broker.errors import BrokerError, InvalidRequest, NotCoordinator
from broker.faults import message_of
from broker.link.core.link_api import A, LinkApi, Q
from broker.link.core.link_frames import (
    HELLO_KIND,
    Hello,
    answer_frame,
    decode_hello,
    refusal_frame,
    split_request,
)
from client.errors import QuireError, RemoteProtocolError
from client.ids import BrokerId
from client.node import background

_LOG = logging.getLogger(__name__)

Answer = Callable[[Sequence[bytes]], None]
"""Takes the frame of an answer, once."""


class ClusterView(Protocol):
    """The part of the cluster's view that a hello is checked against."""

    cluster_id: str
    brokers: Mapping[BrokerId, BrokerInfo]


class LinkServices:
    """The services of this broker, for other brokers and for itself."""

    def __init__(self, cluster: ClusterView, me: BrokerId, incarnation: str) -> None:
        self._cluster = cluster
        self.me: Final = me
        self.incarnation: Final = incarnation
        self._served: dict[int, tuple[LinkApi[Any, Any], Callable[..., Awaitable[Any]]]] = {}
        self._senders: weakref.WeakKeyDictionary[object, BrokerId] = weakref.WeakKeyDictionary()
        """By connection: the broker that sent the hello."""
        self._tasks: dict[asyncio.Task[None], None] = {}

    def serve(self, api: LinkApi[Q, A], answer: Callable[[BrokerId, Q], Awaitable[A]]) -> None:
        """Answer requests of a kind by `answer(sender, request)`, which may raise QuireError."""
        self._served[api.kind] = api, answer

    async def call(self, api: LinkApi[Q, A], request: Q) -> A:
        """Answer this broker's own request. Raises what the service raises."""
        _, answer = self._served[api.kind]
        result: A = await answer(self.me, request)
        return result

    async def close(self) -> None:
        """Stop answering."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def receive(
        self, connection: object, correlation_id: int, body: memoryview, answer: Answer
    ) -> None:
        """Serve one request of a connection; `answer` is called once, now or later.

        Raises RemoteProtocolError: the connection must be closed, and `answer` is not called.
        """
        kind, rest = split_request(body)
        if kind == HELLO_KIND:
            self._greet(connection, correlation_id, decode_hello(rest), answer)
            return
        sender = self._senders.get(connection)
        if sender is None:
            raise RemoteProtocolError("the first request on a link must be a hello")
        if kind not in self._served:
            raise RemoteProtocolError(f"this broker serves no link requests of kind {kind}")
        api, service = self._served[kind]
        work = self._answer(api, service(sender, api.decode_request(rest)), correlation_id, answer)
        task = background.begin(work, f"link {api.name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _greet(self, connection: object, correlation_id: int, hello: Hello, answer: Answer) -> None:
        try:
            self._check(hello)
        except BrokerError as error:
            _LOG.warning("link.hello_refused broker=%d reason=%r", hello.sender, str(error))
            answer(refusal_frame(correlation_id, str(error)))
        else:
            self._senders[connection] = hello.sender
            answer(answer_frame(correlation_id, b""))

    def _check(self, hello: Hello) -> None:
        if hello.cluster_id != self._cluster.cluster_id:
            raise InvalidRequest(f"this is a broker of cluster {self._cluster.cluster_id}")
        if (hello.receiver, hello.receiver_incarnation) != (self.me, self.incarnation):
            raise InvalidRequest(f"this is broker {self.me}, incarnation {self.incarnation}")
        sender = self._cluster.brokers.get(hello.sender)
        if sender is None or sender.incarnation != hello.sender_incarnation:
            raise NotCoordinator(
                f"broker {hello.sender} is not registered, as far as this broker knows"
            )

    async def _answer(
        self,
        api: LinkApi[Any, Any],
        result: Awaitable[Any],
        correlation_id: int,
        answer: Answer,
    ) -> None:
        try:
            frame = answer_frame(correlation_id, api.encode_answer(await result))
        except asyncio.CancelledError:
            answer(())
            raise
        except QuireError as error:
            frame = refusal_frame(correlation_id, message_of(error))
        except Exception as error:  # the outermost level of a request: nothing may escape
            _LOG.exception("link.failed kind=%s", api.name)
            frame = refusal_frame(correlation_id, message_of(error))
        answer(frame)
