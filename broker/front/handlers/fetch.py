"""Fetch (1), versions 4-18: long polls for whole batches, byte for byte as they were stored.

Behaviour: the answer begins with the batch that holds the asked offset, also if the offset is in
its middle. A fetch that finds less than `min_bytes` waits for the high watermarks of its
partitions until `max_wait_ms`, and for one that this broker is about to lead to be led
(`awaited_partitions.py`); other errors never wait. Recent batches come from memory without
leaving this call; older ones are read from bookies, and then what was read is the answer,
whatever `min_bytes` says. Limits: see `broker/front/batches/fetch_round.py`.

A read_committed consumer gets nothing at or above the last stable offset, waits for that instead,
and is told what is aborted in what it gets: of these records only, by first offset.

A consumer may have a session (`broker/front/core/fetch_sessions.py`): then its requests and the
answers have only what changed. One for which there is no room goes on without, which all clients
accept. From version 13 on topics are named by their ids; one that this broker does not know gets
UNKNOWN_TOPIC_ID.

A partition that is named twice is answered once, as the last of its names asks, and in one piece
with the others of its topic. A request of very many partitions is read, collected and answered some
hundreds in each turn of the loop; one of more than `request_items_max` gets INVALID_REQUEST.

Deviations from Kafka: errors carry the real watermarks where they are known. Brokers do not fetch
from each other, so what followers say in a request is passed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from broker.access.rights import READ_TOPIC
from broker.errors import BrokerError, FetchSessionError, InvalidRequest
from broker.faults import code_of
from broker.front.batches.fetch_round import FetchRound
from broker.front.core.fetch_sessions import NO_SESSION, Asked, FetchTurn
from broker.front.dispatch import Channel
from broker.front.endpoints import leader_endpoints
from broker.front.services import Call, Services
from broker.front.throttling import fetched_ms
from client.errors import RemoteProtocolError, TooManyItems
from client.wire.kafka import fetch as wire
from client.wire.kafka.answer_parts import Topic
from client.wire.kafka.apis import ApiKey
from client.wire.kafka.codec import Buffer, response_head
from client.wire.kafka.fetch import FetchRequest, PartitionData
from client.wire.steps import ItemCount, Steps

T = TypeVar("T")

log = logging.getLogger(__name__)

KEY: Final = ApiKey.FETCH
VERSIONS: Final = (wire.VERSION_MIN, wire.VERSION_MAX)
NEEDS: Final = (READ_TOPIC,)

_ERROR_FROM: Final = 7
"""The version from which the answer has an error code of its own."""
_NOT_BEGUN: Final = FetchTurn(())


def start(services: Services, call: Call, body: memoryview, channel: Channel, size: int) -> None:
    """Answer at once, or wait for data; the connection is muted meanwhile."""
    _Fetch(services, call, channel, size).begin(body)


class _Fetch:
    """One request under way."""

    __slots__ = (
        "_call",
        "_cancel_turn",
        "_cancels",
        "_channel",
        "_loop",
        "_may_wait",
        "_muted",
        "_request",
        "_retry_planned",
        "_services",
        "_slot",
        "_task",
        "_timer",
        "_turn",
    )

    _request: FetchRequest

    def __init__(self, services: Services, call: Call, channel: Channel, size: int) -> None:
        self._services = services
        self._call = call
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._slot = channel.open(KEY, size)
        self._turn = _NOT_BEGUN
        self._cancel_turn: Callable[[], None] = _nothing
        """Of the turn that this request waits for."""
        self._cancels: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry_planned = False
        self._muted = False
        self._may_wait = False

    def begin(self, body: memoryview) -> None:
        """Read the request and make the first attempt. Raises RemoteProtocolError."""
        items_max = self._services.config.request_items_max
        self._take(wire.request_steps(self._call.version, body, items_max), self._on_request)

    def _take(self, steps: Steps[T], call: Callable[[T], None]) -> None:
        """Take a step now, and the others a turn each; call with what they return."""
        try:
            next(steps)
        except StopIteration as stop:
            call(stop.value)
            return
        except TooManyItems as error:
            if self._call.version < _ERROR_FROM:
                raise
            self._refuse(InvalidRequest(str(error)))
            return
        self._mute()
        self._cancel_turn = self._services.turns.on_turn(partial(self._take_more, steps, call))

    def _take_more(self, steps: Steps[T], call: Callable[[T], None]) -> None:
        try:
            self._take(steps, call)
        except RemoteProtocolError as error:
            self._slot.release()
            self._channel.fail(str(error))
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()

    def _on_request(self, request: FetchRequest) -> None:
        self._request = request
        topics = request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:  # what most of them ask for
            self._on_asked((Asked(topics[0].topic, topics[0].partitions[0]),))
        else:
            self._take(_asked(request), self._on_asked)

    def _on_asked(self, asked: Sequence[Asked]) -> None:
        request = self._request
        if request.session_epoch == NO_SESSION and not request.session_id:
            self._turn = FetchTurn(asked)
        else:
            try:
                self._turn = self._services.fetch_sessions.begin(
                    request.session_id,
                    request.session_epoch,
                    asked,
                    request.forgotten,
                    by_id=self._call.version >= wire.TOPIC_IDS_FROM,
                    now_s=self._loop.time(),
                )
            except FetchSessionError as error:
                self._refuse(error)
                return
        self._attempt(may_wait=request.wait_ms_max > 0)

    def _attempt(self, *, may_wait: bool) -> None:
        self._may_wait = may_wait
        self._slot.split_s = self._services.metrics.now_s()
        found = FetchRound(self._services, self._request, self._turn.asked, self._call)
        self._take(found.collect(), lambda _: self._on_collected(found))

    def _on_collected(self, found: FetchRound) -> None:
        if found.needs_reading:
            self._mute()
            self._task = self._loop.create_task(self._read(found), name="fetch")
        elif self._may_wait and found.asked and not found.failed and not self._is_enough(found):
            self._wait(found)
        else:
            self._answer(found)

    def _is_enough(self, found: FetchRound) -> bool:
        return found.size >= self._request.bytes_min

    async def _read(self, found: FetchRound) -> None:
        try:
            await found.read()
            self._task = None
            if found.read_bytes:
                self._slot.on_gone = partial(self._services.reading.give, found.read_bytes)
            if found.size or found.failed or not self._may_wait:
                self._answer(found)
            else:
                self._wait(found)
        except Exception:  # the outermost loop of a request: nothing may escape
            self._break()

    def _wait(self, found: FetchRound) -> None:
        """Park until a high watermark moves, a leadership ends, or the time is up."""
        self._mute()
        if self._timer is None:
            self._timer = self._loop.call_later(self._request.wait_ms_max / 1000, self._expire)
        self._cancels = found.on_news(self._on_news)

    def _on_news(self) -> None:
        """Look again, once for all partitions that moved in this turn of the loop."""
        if not self._retry_planned:
            self._retry_planned = True
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        self._retry_planned = False
        if self._cancels:  # neither expired nor lost meanwhile
            self._stop_waiting()
            self._attempt(may_wait=True)

    def _expire(self) -> None:
        self._may_wait = False  # for a collecting or a reading that is under way
        if self._cancels:
            self._stop_waiting()
            self._attempt(may_wait=False)

    def _stop_waiting(self) -> None:
        for cancel in self._cancels:
            cancel()
        self._cancels = []

    def _mute(self) -> None:
        if not self._muted:
            self._muted = True
            self._channel.mute()
            self._channel.on_lost(self._on_lost)

    def _break(self) -> None:
        log.exception("fetch.failed client=%s", self._call.client_id)
        self._slot.release()
        self._channel.fail("fetch failed")

    def _on_lost(self) -> None:
        self._stop_waiting()
        self._cancel_turn()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._slot.release()

    def _refuse(self, error: BrokerError) -> None:
        """Answer that nothing was fetched."""
        steps = wire.response_steps(self._call.version, (), error_code=code_of(error))
        self._take(steps, self._send)

    def _answer(self, found: FetchRound) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._take(self._answer_steps(found), self._send)

    def _answer_steps(self, found: FetchRound) -> Steps[tuple[list[Buffer], int]]:
        services, version = self._services, self._call.version
        session_id, told = yield from services.fetch_sessions.finish(
            self._turn, found.results, self._loop.time()
        )
        by_topic: dict[Topic, list[PartitionData]] = {}
        leaders: dict[int, None] = {}
        for topic, data in told:
            by_topic.setdefault(topic, []).append(data)
            if data.size:
                found.count_fetched(topic, data.size)
            elif data.leader is not None:
                leaders[data.leader[0]] = None
        endpoints = leader_endpoints(services, leaders, self._call.peer) if leaders else ()
        topics = list(by_topic.items())
        wait_ms = fetched_ms(services, self._call, self._slot, found.size)
        steps = wire.response_steps(
            version, topics, endpoints, session_id=session_id, throttle_ms=wait_ms
        )
        return (yield from steps)

    def _send(self, built: tuple[list[Buffer], int]) -> None:
        body, size = built
        call = self._call
        head = response_head(KEY, call.version, call.correlation_id, size)
        self._channel.answer(self._slot, [head, *body])
        if self._muted:
            self._channel.on_lost(None)
            self._channel.unmute()


def _asked(request: FetchRequest) -> Steps[Sequence[Asked]]:
    """Return the partitions that a request asks for, each once: the last one counts, in the place
    of the first, as Kafka has it."""
    found: dict[tuple[Topic, int], Asked] = {}
    items = ItemCount()
    for topic in request.topics:
        for fetch in topic.partitions:
            if items.is_step_over():
                yield
            found[topic.topic, fetch.partition] = Asked(topic.topic, fetch)
    return list(found.values())


def _nothing() -> None:
    """There is no turn to take back."""
