"""From a frame to its handler and back: version check, order, last-resort errors.

Covers how requests of one connection are ordered. Kafka serves one request of a
connection at a time. Here the same order of effects is kept with less waiting:

- Produce is started in arrival order and many may be under way; starting one assigns offsets
  at once, so the order of appends is the order of arrival.
- A plain handler (`def handle`) answers at once.
- An asynchronous handler (`async def handle`) and Fetch mute the connection: the next request
  starts when they have answered.

A request with thousands of items is decoded in steps, one in each turn of the loop, and so is such
an answer encoded; the connection is muted meanwhile. One with more than `request_items_max` items
is not decoded any further. Handlers that go through a request's items take turns themselves.

Answers leave in request order in any case (`client/wire/kafka/connection.py`).

What only asks ends with its connection: it may wait for a leader or for the metadata store, and
would hold the memory of its request for as long. What changes something is finished all the same.

An unknown API or version closes the connection without an answer, as Kafka does, except that
ApiVersions of a version we do not know is answered in version 0 with UNSUPPORTED_VERSION and our
range, so that the client can try again (KIP-511).

When a handler raises: OldConnection closes the connection without an answer; another error of ours
becomes the response's top-level error code if it has one; anything else is a bug, is logged with
its traceback, and becomes UNKNOWN_SERVER_ERROR in the same place. Where a response has no such
place the connection is closed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from broker.errors import InvalidRequest, OldConnection
from broker.faults import Code, code_of, message_of
from broker.front.core.group_requests import GroupRequests
from broker.front.pause import Pause
from broker.front.services import Call, Peer, Services
from broker.security.login import Login
from client.errors import LocalProtocolError, QuireError, RemoteProtocolError, TooManyItems
from client.fast_tuple import new_tuple
from client.histogram import Stopwatch
from client.ids import ConnectionId
from client.node.turns import Turns
from client.wire.kafka import codec
from client.wire.kafka.apis import API_VERSIONS_KEY, ApiKey
from client.wire.kafka.connection import Buffer, Slot, peek_header, split_header
from client.wire.steps import Steps

log = logging.getLogger(__name__)

_PRODUCE: Final = int(ApiKey.PRODUCE)
_LIMITED: Final = frozenset(ApiKey) - {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
"""APIs whose clients wait if their quotas say so: all but logins, and what brokers ask."""

_ASKING: Final = frozenset({
    ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
})  # fmt: skip
"""APIs of which nothing is left once nobody waits for the answer. A topic that is made because it
was asked for is made by a task of its own."""

CLIENT_ID_CHARS_MAX: Final = 255
"""A client that calls itself more is known by so much of it: quotas, groups, metrics and what is
remembered of consumers keep it, for each of their clients."""

Fields = Mapping[str, Any]

T = TypeVar("T")


class Channel(Protocol):
    """What dispatch needs of a connection; `broker/front/server.py` has the real one."""

    @property
    def peer(self) -> Peer:
        """Both ends."""
        ...

    @property
    def login(self) -> Login | None:
        """How the client logs in; None: it need not."""
        ...

    @property
    def number(self) -> ConnectionId:
        """Grows with each connection that the listener accepts."""
        ...

    @property
    def pause(self) -> Pause:
        """Whether the next request may begin."""
        ...

    def open(self, api_key: int, request_size: int) -> Slot:
        """Reserve the next place in the order of answers.

        The bytes of the request count as held until it is answered, also if the connection goes
        before. Who will not answer calls the slot's `release`.
        """
        ...

    def answer(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """Send buffers, or nothing if empty, once it is the slot's turn."""
        ...

    def mute(self) -> None:
        """Start no further request until `unmute`."""
        ...

    def unmute(self) -> None:
        """Go on with the next request."""
        ...

    def on_lost(self, call: Callable[[], None] | None) -> None:
        """Call this once the connection is gone; None takes it back."""
        ...

    def fail(self, reason: str, *, is_replaced: bool = False) -> None:
        """Close the connection because of what the client sent; or because it has another one."""
        ...


class Handler(NamedTuple):
    """One API: which versions, and what answers it. One of `handle` and `start` is there."""

    key: int
    versions: tuple[int, int]
    handle: Callable[[Services, Call, Any], Fields | Awaitable[Fields]] | None
    """Takes the decoded request and returns the response's fields."""
    start: Callable[[Services, Call, memoryview, Channel, int], None] | None
    """Takes the request's bytes (and its size on the wire) and answers through the channel, by
    callbacks: for the hot paths."""
    needs_rights: bool = False
    """Whether it asks what the sender may do."""


class Dispatcher:
    """Starts handlers; keeps the tasks of the asynchronous ones."""

    def __init__(self, services: Services, handlers: Sequence[Handler]) -> None:
        self._services = services
        self._handlers = {handler.key: handler for handler in handlers}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._group_requests = GroupRequests(services.config.group_requests_bytes_max)
        services.metrics.provide_one(
            "quire_broker_group_requests_bytes", lambda: self._group_requests.size
        )

    @property
    def turns(self) -> Turns:
        """Where long work waits."""
        return self._services.turns

    async def close(self) -> None:
        """Cancel what still runs and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def dispatch(self, frame: memoryview, channel: Channel) -> None:
        """Start one request. Raises RemoteProtocolError: then the connection must be closed."""
        key, version, correlation_id = peek_header(frame)
        handler = self._handlers.get(key)
        if handler is None or not handler.versions[0] <= version <= handler.versions[1]:
            if key != API_VERSIONS_KEY:
                raise RemoteProtocolError(f"api {key} version {version} is not served")
            self._answer_unknown_api_versions(correlation_id, len(frame), channel)
            return
        login = channel.login
        if login is not None and (refusal := login.refusal(key)):
            raise RemoteProtocolError(refusal)
        if key != _PRODUCE and len(frame) > self._services.config.control_request_bytes_max:
            raise RemoteProtocolError(
                f"request of api {key} has {len(frame)} bytes, more than control_request_bytes_max"
            )
        client_id, body = split_header(frame, key, version)
        if client_id is not None and len(client_id) > CLIENT_ID_CHARS_MAX:
            client_id = client_id[:CLIENT_ID_CHARS_MAX]
        call: Call = new_tuple(
            Call, (key, version, correlation_id, client_id, channel.peer, channel.number, login)
        )
        if not self._services.quotas.are_times_limited:
            if handler.start is not None:  # nearly always: without a call more
                handler.start(self._services, call, body, channel, len(frame))
            else:
                self._begin(handler, call, body, channel, len(frame))
            return
        now_s = self._services.metrics.now_s
        began_s = now_s()
        try:
            self._begin(handler, call, body, channel, len(frame))
        finally:
            if key in _LIMITED:
                self._services.quotas.worked(call, now_s() - began_s)

    def _begin(
        self, handler: Handler, call: Call, body: memoryview, channel: Channel, size: int
    ) -> None:
        if handler.start is not None:
            handler.start(self._services, call, body, channel, size)
            return
        key, version = call.api_key, call.version
        items_max = self._services.config.request_items_max
        steps = codec.request_steps(key, version, body, items_max)
        try:
            next(steps)
        except StopIteration as stop:
            self._start(handler, call, stop.value, channel, channel.open(key, size))
        except TooManyItems as error:
            self._answer_error(_refusal(error), call, channel.open(key, size), channel)
        else:
            slot = channel.open(key, size)
            channel.mute()
            work = self._finish_decoding(steps, handler, call, slot, channel)
            self._run(work, call, slot, channel)

    def _answer_unknown_api_versions(
        self, correlation_id: int, size: int, channel: Channel
    ) -> None:
        low, high = self._services.served[API_VERSIONS_KEY]
        fields = {
            "error_code": Code.unsupported_version,
            "api_keys": [{"api_key": API_VERSIONS_KEY, "min_version": low, "max_version": high}],
        }
        buffers = codec.encode_response(API_VERSIONS_KEY, 0, correlation_id, fields)
        channel.answer(channel.open(API_VERSIONS_KEY, size), buffers)

    def _run(
        self, work: Coroutine[Any, Any, None], call: Call, slot: Slot, channel: Channel
    ) -> None:
        def on_done(done: asyncio.Task[None]) -> None:
            del self._tasks[done]
            if done.cancelled():  # perhaps before it began
                slot.release()

        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=f"api {call.api_key}")
        self._tasks[task] = None
        task.add_done_callback(on_done)
        if call.api_key in _ASKING:

            def end() -> None:
                loop.call_soon(task.cancel)  # once it has begun: what it was to await is awaited

            channel.on_lost(end)

    async def _finish_decoding(
        self, steps: Steps[Any], handler: Handler, call: Call, slot: Slot, channel: Channel
    ) -> None:
        turns = self._services.turns
        await turns.next()
        try:
            request = await turns.run(steps)
        except TooManyItems as error:
            self._answer_error(_refusal(error), call, slot, channel)
        except RemoteProtocolError as error:
            slot.release()
            channel.fail(str(error))
            return
        except Exception as error:  # as in `_start`
            self._answer_error(error, call, slot, channel)
        else:
            await turns.next()
            try:
                result = self._handle(handler, call, request, slot)
                del request  # its handler has it, and may let go of it before it is done
            except Exception as error:  # as in `_start`
                self._answer_error(error, call, slot, channel)
            else:
                await self._finish(_awaitable(result), call, slot, channel)
                return
        _go_on(channel)

    def _start(
        self, handler: Handler, call: Call, request: Any, channel: Channel, slot: Slot
    ) -> None:
        try:
            result = self._handle(handler, call, request, slot)
        except Exception as error:  # the outermost loop of a request: nothing may escape
            self._answer_error(error, call, slot, channel)
            return
        if inspect.isawaitable(result):
            channel.mute()
            self._run(self._finish(result, call, slot, channel), call, slot, channel)
            return
        steps = self._encode(result, call, slot)
        try:
            next(steps)
        except StopIteration as stop:
            channel.answer(slot, stop.value)
        except LocalProtocolError as error:
            self._answer_error(error, call, slot, channel)
        else:
            channel.mute()
            self._run(self._finish_answer(steps, call, slot, channel), call, slot, channel)

    def _handle(
        self, handler: Handler, call: Call, request: Any, slot: Slot
    ) -> Fields | Awaitable[Fields]:
        assert handler.handle is not None, "an API has a handle or a start"
        if handler.needs_rights:
            self._services.rights.require_known(call.peer, call.api_key)
        self._group_requests.admit(call.api_key, slot)
        result = handler.handle(self._services, call, request)
        quotas = self._services.quotas
        if quotas.are_times_limited and inspect.isawaitable(result):
            return TimedWork(result, self._services.metrics.now_s, partial(quotas.worked, call))
        return result

    async def _finish(
        self, result: Awaitable[Fields], call: Call, slot: Slot, channel: Channel
    ) -> None:
        try:
            fields = await result
        except Exception as error:  # as above
            self._answer_error(error, call, slot, channel)
        else:
            await self._finish_answer(self._encode(fields, call, slot), call, slot, channel)
            return
        _go_on(channel)

    def _encode(self, fields: Fields, call: Call, slot: Slot) -> Steps[list[Buffer]]:
        if self._services.quotas.is_on and call.api_key in _LIMITED:
            wait_ms = self._services.quotas.throttle_ms(call)
            wait_ms = max(wait_ms, fields.get("throttle_time", 0))
            if wait_ms:
                fields = {**fields, "throttle_time": wait_ms}
                slot.throttle_ms = wait_ms
        return codec.response_steps(call.api_key, call.version, call.correlation_id, fields)

    async def _finish_answer(
        self, steps: Steps[list[Buffer]], call: Call, slot: Slot, channel: Channel
    ) -> None:
        try:
            buffers = await self._services.turns.run(steps)
        except LocalProtocolError as error:
            self._answer_error(error, call, slot, channel)
        else:
            channel.answer(slot, buffers)
        _go_on(channel)

    def _answer_error(self, error: Exception, call: Call, slot: Slot, channel: Channel) -> None:
        if isinstance(error, OldConnection):
            slot.release()
            channel.fail(str(error), is_replaced=True)
            return
        expected = isinstance(error, QuireError) and not isinstance(error, LocalProtocolError)
        if expected:
            log.debug(
                "request.refused api=%d version=%d reason=%s",
                call.api_key, call.version, message_of(error),
            )  # fmt: skip
        else:
            errors = self._services.metrics.request_failures
            errors[call.api_key] = errors.get(call.api_key, 0) + 1
            log.error(
                "request.failed api=%d version=%d client=%s",
                call.api_key, call.version, call.client_id, exc_info=error,
            )  # fmt: skip
        code = code_of(error) if expected else int(Code.unknown_server_error)
        buffers = codec.encode_error(call.api_key, call.version, call.correlation_id, code)
        if buffers is None:
            slot.release()
            channel.fail(f"api {call.api_key} failed: {message_of(error)}")
        else:
            channel.answer(slot, buffers)


class TimedWork(Generic[T]):
    """Awaits something, and hands the seconds of each of its steps to a function."""

    def __init__(
        self, work: Awaitable[T], now_s: Stopwatch, spent: Callable[[float], None]
    ) -> None:
        self._work = work
        self._now_s = now_s
        self._spent = spent

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        sent: Any = None
        raised: BaseException | None = None
        while True:
            began_s = self._now_s()
            try:
                waits_for = steps.send(sent) if raised is None else steps.throw(raised)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                self._spent(self._now_s() - began_s)
            raised = None
            try:
                sent = yield waits_for
            except BaseException as error:  # for what is awaited to deal with
                raised = error


def _go_on(channel: Channel) -> None:
    """A request under way is done: begin the next one of its connection."""
    channel.on_lost(None)
    channel.unmute()


def _refusal(error: TooManyItems) -> InvalidRequest:
    return InvalidRequest(f"request_items_max: {error}")


async def _awaitable(result: Fields | Awaitable[Fields]) -> Fields:
    return await result if inspect.isawaitable(result) else result
