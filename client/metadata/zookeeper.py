"""The metadata store on a real ZooKeeper, over kazoo.

kazoo runs one connection thread; everything else here runs on the event loop. The thread is kept
thin (`zookeeper_io.py`): it hands each answer, watch event and state change to the loop, in
the order in which they came off the socket, so the loop sees what ZooKeeper promises: a watch
before the read that shows its change. (kazoo's own handler has one thread for answers and one for
watches, which loses that order; `InlineHandler` replaces it.) A burst wakes the loop once. One
order is left to chance: kazoo tells of an answer only who asked for that, which is done after the
request left; an event right behind a quick answer can overtake it (`_Armed`).

Operations are pipelined: each call writes its request at once and waits alone. kazoo fires every
watch when the connection drops and forgets it; here those events are ignored, and the watches
fire when a session is there again, because only then can their owner look again.

kazoo's thread ends for good at anything it did not expect, such as an answer to another request
than the oldest (seen when a session had moved to another server); here it is started again, with
a new session.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent
from kazoo.security import Permissions

from client import callbacks
from client.errors import (
    AuthFailed,
    ConfigError,
    ConnectionLoss,
    MetadataError,
    NodeExists,
    NoNode,
    SessionExpired,
)
from client.histogram import Histogram
from client.metadata.store import (
    Change,
    Changed,
    SessionListener,
    SessionState,
    Versioned,
    Watcher,
    check_path,
    check_size,
)
from client.metadata.tree import parent_of
from client.metadata.unreadable import UnreadableNodes
from client.metadata.zookeeper_errors import translate
from client.metadata.zookeeper_handler import InlineHandler, NumberedConnection
from client.metadata.zookeeper_login import SaslConnection, credentials
from client.metadata.zookeeper_multi import (
    Hook,
    begin_multi,
    begin_reads,
    begin_watches,
    changed,
    check_changes,
    read,
)
from client.security.cluster_security import OPEN_CLUSTER, ClusterSecurity

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

SESSION_TIMEOUT_MS: Final = 10_000
START_TIMEOUT_MS: Final = 15_000
CLOSE_TIMEOUT_S: Final = 2.0
_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_REVIVE_PAUSE_S: Final = 0.1
_PARENT_RACES_MAX: Final = 8
"""How often parents may vanish under a `create(make_parents=True)` before it gives up."""


class _Kind(enum.Enum):
    NODE = "node"
    DIRECTORY = "directory"


class _Watch(NamedTuple):
    kind: _Kind
    path: str
    call: Watcher


@dataclasses.dataclass(slots=True, eq=False)
class _Armed:
    """A watch that one request leaves behind."""

    watch: _Watch
    fired: bool = False
    """It will not fire again; maybe the answer to its request was not looked at yet."""


class _Operation(NamedTuple):
    path: str
    begin: Callable[[], Any]
    """Writes the request and returns kazoo's asynchronous result."""
    answer: asyncio.Future[Any]
    armed: tuple[_Armed, ...]
    """The watches that it leaves."""


class ZooKeeperStore:
    """One session with a ZooKeeper ensemble. Implements `MetadataStore`; see there."""

    def __init__(
        self,
        hosts: str | Sequence[str],
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        start_timeout_ms: int = START_TIMEOUT_MS,
        security: ClusterSecurity = OPEN_CLUSTER,
    ) -> None:
        """`hosts`: `host:port` of each server, in a sequence or with commas between.

        `security`: how they are reached, and as whom; nodes then belong to that user alone.
        Raises ConfigError when that is not what `hosts` holds, or files cannot be read.
        """
        self._hosts = hosts if isinstance(hosts, str) else ",".join(hosts)
        self._session_timeout_s = session_timeout_ms / 1000
        self._start_timeout_s = start_timeout_ms / 1000
        self.request_seconds = Histogram()
        """How long servers take to answer, for dashboards."""
        self.unreadable = UnreadableNodes()
        self._state = SessionState.SUSPENDED
        self._session_id = 0
        self._closed = False
        self._listeners: list[SessionListener] = []
        self._watches: dict[_Watch, None] = {}
        self._in_flight: dict[asyncio.Future[Any], None] = {}
        self._held: dict[asyncio.Future[Any], _Operation] = {}
        """Operations made without a connection; they leave with the next one."""
        self._inbox = LoopInbox()
        """What kazoo's thread has for the loop."""
        try:
            self._client = KazooClient(
                self._hosts,
                timeout=self._session_timeout_s,
                handler=InlineHandler(security.contexts() if security.zookeeper_tls else None),
                connection_retry=_RECONNECT,
                **credentials(security),
            )
        except ValueError as error:
            raise ConfigError(f"not a list of ZooKeeper servers: {self._hosts!r}") from error
        self._opening = Opening(len(self._client.hosts), logs_in=security.zookeeper_by_sasl)
        if self._opening.logs_in:
            self._client._connection = SaslConnection(
                self._client, security, on_login=self._on_login, on_refusal=self._on_refusal
            )
        else:
            self._client._connection = NumberedConnection(self._client)

    async def start(self) -> None:
        """Open the session. Raises MetadataError when no server answers in time, AuthFailed when
        they refuse us."""
        self._loop = asyncio.get_running_loop()
        self._inbox.open(self._loop)
        _log.info("metadata.connecting hosts=%s", self._hosts)
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()
        if not await self._opening.wait(self._start_timeout_s):
            await self.close()
            if reason := self._opening.refusal:
                raise AuthFailed(f"ZooKeeper at {self._hosts} refuses the login: {reason}")
            raise MetadataError(
                f"no ZooKeeper server answers at {self._hosts} (waited {self._start_timeout_s:g} s)"
            )

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        armed, hook = self._arm(_Kind.NODE, path, watcher)
        data, stat = await self._call(path, lambda: self._client.get_async(path, hook), *armed)
        return Versioned(data, stat.version, stat.ctime, stat.ephemeralOwner)

    async def exists(self, path: str, watcher: Watcher | None = None) -> Versioned | None:
        armed, hook = self._arm(_Kind.NODE, path, watcher)
        stat = await self._call(path, lambda: self._client.exists_async(path, hook), *armed)
        if stat is None:
            return None
        return Versioned(b"", stat.version, stat.ctime, stat.ephemeralOwner)

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        armed, hook = self._arm(_Kind.DIRECTORY, path, watcher)
        names: list[str] = await self._call(
            path, lambda: self._client.get_children_async(path, hook), *armed
        )
        return sorted(names)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_size(path, data)
        for _ in range(_PARENT_RACES_MAX):
            try:
                made: str = await self._call(
                    path,
                    lambda: self._client.create_async(
                        path, data, ephemeral=ephemeral, sequence=sequential
                    ),
                )
            except NoNode:
                if not make_parents:
                    raise
                await self._make(parent_of(path))
            else:
                return made
        raise NoNode(f"{path}: somebody keeps deleting its parents")

    async def _make(self, path: str) -> None:
        """Create a directory and what is missing above it; it may exist already."""
        with contextlib.suppress(NodeExists):
            await self.create(path, make_parents=True)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        check_size(path, data)
        stat = await self._call(path, lambda: self._client.set_async(path, data, version))
        new_version: int = stat.version
        return new_version

    async def delete(self, path: str, version: int = -1) -> None:
        await self._call(path, lambda: self._client.delete_async(path, version))

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        check_changes(changes)
        begin = partial(begin_multi, self._client, changes)
        return changed(changes, await self._call(changes[0].path, begin))

    async def get_many(
        self, paths: Sequence[str], watchers: Sequence[Watcher] = ()
    ) -> list[Versioned | None]:
        for path in paths:
            check_path(path)
        begin = partial(begin_reads, self._client, paths)
        results, zxid = await self._call(paths[0], begin)
        found = read(paths, results)
        armed = [
            _Armed(_Watch(_Kind.NODE, path, watcher))
            for path, node, watcher in zip(paths, found, watchers, strict=bool(watchers))
            if node is not None
        ]
        if armed:
            hooks = [(one.watch.path, self._hook(one)) for one in armed]
            begin = partial(begin_watches, self._client, hooks, zxid)
            await self._call(paths[0], begin, *armed)
        return found

    async def sync(self, path: str) -> None:
        await self._call(path, lambda: self._client.sync_async(path))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._listeners.clear()
        self._watches.clear()
        self._fail(self._held, SessionExpired("store closed"))
        stopped = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()  # sends what is queued, then the end of the session
                self._client.close()
            except Exception as error:  # outermost of its thread; the server has a timeout
                _log.warning("metadata.close_failed error=%r", error)
            self._inbox.put(stopped.set)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), CLOSE_TIMEOUT_S)
        self._state = SessionState.EXPIRED
        self._session_id = 0
        self._fail(self._in_flight, SessionExpired("store closed"))

    async def _call(self, path: str, begin: Callable[[], Any], *armed: _Armed) -> Any:
        check_path(path)
        if self._closed:
            raise SessionExpired("store closed")
        answer = asyncio.get_running_loop().create_future()
        operation = _Operation(path, begin, answer, armed)
        if self._state is SessionState.CONNECTED:
            self._begin(operation)
        else:
            self._held[answer] = operation
            self._loop.call_later(self._session_timeout_s, self._give_up, operation)
        return await answer

    def _begin(self, operation: _Operation) -> None:
        self._in_flight[operation.answer] = None
        began_s = time.perf_counter()
        result = operation.begin()
        result.rawlink(
            lambda result: self._inbox.put(partial(self._on_answer, operation, began_s, result))
        )

    def _on_answer(self, operation: _Operation, began_s: float, result: Any) -> None:
        self._in_flight.pop(operation.answer, None)
        self.request_seconds.observe(time.perf_counter() - began_s)
        error = result.exception
        if error is None:
            for armed in operation.armed:
                if armed.fired:
                    callbacks.each(callbacks.Kind.METADATA, [armed.watch.call])
                else:
                    self._watches[armed.watch] = None
        if operation.answer.done():
            return  # cancelled, or failed with its session
        if error is None:
            operation.answer.set_result(result.value)
        else:
            operation.answer.set_exception(translate(error, operation.path))

    def _give_up(self, operation: _Operation) -> None:
        if self._held.pop(operation.answer, None) is not None and not operation.answer.done():
            operation.answer.set_exception(ConnectionLoss(operation.path))

    def _arm(
        self, kind: _Kind, path: str, watcher: Watcher | None
    ) -> tuple[list[_Armed], Hook | None]:
        """Return our record of a watch and the hook for kazoo; none without a watcher."""
        if watcher is None:
            return [], None
        armed = _Armed(_Watch(kind, path, watcher))
        return [armed], self._hook(armed)

    def _hook(self, armed: _Armed) -> Hook:
        def hook(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:  # NONE: kazoo drops its watches; ours stay
                self._inbox.put(partial(self._on_event, armed))

        return hook

    def _on_event(self, armed: _Armed) -> None:
        armed.fired = True
        if armed.watch in self._watches:
            del self._watches[armed.watch]
            callbacks.each(callbacks.Kind.METADATA, [armed.watch.call])

    def _on_kazoo_state(self, state: KazooState) -> None:
        """Runs in the connection thread."""
        if state != KazooState.CONNECTED or not self._opening.logs_in:  # else `_on_login` tells
            self._put_state(state)

    def _on_login(self) -> None:
        """Runs in the connection thread."""
        self._put_state(KazooState.CONNECTED)

    def _put_state(self, state: KazooState) -> None:
        session = self._client.client_id
        session_id = session[0] if session else 0
        self._inbox.put(partial(self._on_state, state, session_id))

    def _on_refusal(self, host: str, reason: str) -> None:
        """Runs in the connection thread."""
        self._inbox.put(partial(self._opening.refuse, host, reason))

    def _on_state(self, state: KazooState, session_id: int) -> None:
        if self._closed:
            return
        if self._state is SessionState.CONNECTED:
            _log.warning("metadata.suspended session=%#x", self._session_id)
            # kazoo has failed what it had sent; what came too late to be sent would wait for ever.
            self._fail(self._in_flight, ConnectionLoss("connection lost"))
            self._tell(SessionState.SUSPENDED)
        if state == KazooState.LOST:
            _log.warning("metadata.expired session=%#x", self._session_id)
            self._session_id = 0
            self._fail(self._in_flight, SessionExpired("session expired"))
            self._fail(self._held, SessionExpired("session expired"))
            self._tell(SessionState.EXPIRED)
            if self._client.client_state == KeeperState.CLOSED:
                self._loop.call_later(_REVIVE_PAUSE_S, self._revive)
        elif state == KazooState.CONNECTED:
            _log.info("metadata.connected session=%#x", session_id)
            self._session_id = session_id
            self._on_connected()

    def _revive(self) -> None:
        """kazoo's thread has ended, and nobody asked it to: start another one."""
        if not self._closed:
            _log.warning("metadata.reviving hosts=%s", self._hosts)
            self._client.start_async()

    def _on_connected(self) -> None:
        self._opening.connect()
        pending, self._watches = self._watches, {}
        held, self._held = self._held, {}
        self._tell(SessionState.CONNECTED)
        callbacks.each(callbacks.Kind.METADATA, [watch.call for watch in pending])
        for operation in held.values():
            if operation.answer.done():
                continue
            try:
                self._begin(operation)
            except Exception as error:  # of the library: those behind it must not wait for ever
                self._in_flight.pop(operation.answer, None)
                unknown = ConnectionLoss(operation.path)
                callbacks.fail(callbacks.Kind.METADATA, error, operation.answer, unknown)

    def _tell(self, state: SessionState) -> None:
        self._state = state
        calls = [partial(listener, state) for listener in self._listeners]
        callbacks.each(callbacks.Kind.METADATA, calls)

    def _fail(self, answers: dict[asyncio.Future[Any], _T], error: MetadataError) -> None:
        failed = list(answers)
        answers.clear()
        for answer in failed:
            if not answer.done():
                answer.set_exception(type(error)(*error.args))


async def may_write_alone(store: ZooKeeperStore, path: str) -> bool:
    """Say whether only named users may change a node, not everybody who reaches ZooKeeper.

    Raises MetadataError.
    """
    found, _ = await store._call(path, partial(store._client.get_acls_async, path))
    everybody = (one for one in found if one.id.scheme == "world")
    return not any(one.perms & ~Permissions.READ for one in everybody)


async def protect(store: ZooKeeperStore, root: str) -> int:
    """Give a node and all below to the store's user alone, as if that had made them; return how
    many there are. Raises MetadataError; what was done so far stays."""
    acl = store._client.default_acl
    if acl is None:
        raise ConfigError("cluster_security.zookeeper_user is not set, or zookeeper_acl is off")
    count, paths = 0, [root]
    while paths:
        path = paths.pop()
        try:
            await store._call(path, partial(store._client.set_acls_async, path, acl))
            below = await store.children(path)
        except NoNode:
            continue  # deleted meanwhile
        count += 1
        paths += [f"{path.rstrip('/')}/{name}" for name in below]
    return count


class LoopInbox:
    """Hands calls of another thread to the event loop, in order, and wakes it once for a burst.

    It is how kazoo's connection thread is left, without a lock: whether the loop knows is cleared
    before the calls are looked at, and set after there is one more, so none is overlooked. `open`
    before the first call.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_noticed = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run what is put here on `loop`."""
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Run `call` on the event loop, after everything put before. From any thread."""
        self._calls.append(call)
        if not self._is_noticed:
            self._is_noticed = True
            self._notice()

    def _notice(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            _log.debug("metadata.loop_closed")

    def _empty(self) -> None:
        self._is_noticed = False
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            if self._calls:  # one of them failed: the loop tells, and the others have their turn
                self._notice()


class _Refusal(NamedTuple):
    host: str
    reason: str
    """And what to do."""

    def tell(self) -> None:
        _log.warning("metadata.login_refused host=%s reason=%r", self.host, self.reason)


class Opening:
    """How the first connection of a store comes about, and which servers have refused our login
    since the last one.

    While a session is opened, whoever opens it is told of a refusal, at once if no server is left;
    later the log tells, once for each server and reason.
    """

    def __init__(self, server_count: int, *, logs_in: bool) -> None:
        """`logs_in`: whether a connection is one only behind a login."""
        self.logs_in = logs_in
        self._server_count = server_count
        self._was_connected = False
        self._is_settled = asyncio.Event()
        """There was a connection, or all servers have refused us."""
        self._refusals: list[_Refusal] = []

    @property
    def refusal(self) -> str:
        """Why a server did not let us in, and what to do; empty if none refused us."""
        return self._refusals[-1].reason if self._refusals else ""

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the first connection; return whether there is one."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_settled.wait()
        except TimeoutError:
            pass  # as if all had refused us
        return self._was_connected

    def connect(self) -> None:
        """Take notice of a connection."""
        if not self._was_connected:
            for refusal in dict.fromkeys(self._refusals):
                refusal.tell()  # it was not all of them
        self._refusals.clear()
        self._was_connected = True
        self._is_settled.set()

    def refuse(self, host: str, reason: str) -> None:
        """Take notice of a server that did not let us in."""
        refusal = _Refusal(host, reason)
        if not self._was_connected:
            self._refusals.append(refusal)
            if len(self._refusals) >= self._server_count:
                self._is_settled.set()
        elif refusal not in self._refusals:
            self._refusals.append(refusal)
            refusal.tell()
