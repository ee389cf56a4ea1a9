"""An in-memory metadata store with sessions: a verified fake of ZooKeeper.

`MemoryCluster` is the server side, shared by all nodes of a test or a simulation; each
`cluster.session()` is one client. The same contract suite runs on it and on a real ZooKeeper.

What is modelled because it bites: requests and answers of one session travel first in, first out,
and take time; a watch arrives before any answer that could reveal the change; a cut connection
leaves ephemerals standing until the session times out at the server, whatever the client
believes; a client learns of its expiry only when it is connected again; a lost connection leaves
the outcome of every request in flight unknown, and here a test decides which way it went: it
happened, it happens later, it never does. Each session has a server of its own, which may lag
behind the leader (`memory_server.py`): reads show the past, an answer to a write comes once that
server has applied it, and a reconnection may lead to a server that lags more, but never behind
what the session has seen.

Deterministic: time is the event loop's, order is arrival order, nothing is random unless the
injected latency is. Server-side work runs in the context the cluster was made in, deliveries in
the context its session was made in, so a simulator that kills a process by context drops exactly
what that process would not have seen.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from client import callbacks
from client.errors import ConnectionLoss, MetadataError, SessionExpired
from client.ids import Clock
from client.metadata.channel import Channel
from client.metadata.memory_requests import Kind, Request, Watch
from client.metadata.memory_server import Commit, Server
from client.metadata.store import (
    Change,
    Changed,
    SessionListener,
    SessionState,
    Versioned,
    Watcher,
    check_path,
)
from client.metadata.tree import Readable, Touched, Tree
from client.metadata.unreadable import UnreadableNodes

SESSION_TIMEOUT_S: Final = 10.0
RECONNECT_DELAY_S: Final = 0.05
_KEPT_COMMITS: Final = 256
"""How many of the newest changes a server may lack to which a session comes back."""


class Operation(NamedTuple):
    """What a session asks for, as a fault hook sees it when the request reaches the server."""

    session_id: int
    name: str
    """That of the call (`get`, `create`, `multi`, `sync`), or `close`."""
    path: str
    """Of the first node if there are several."""


class Fault(enum.Enum):
    """How a fault hook breaks the connection that carries a request."""

    LOSE_REQUEST = "lose request"
    """The operation does not take place; the client sees ConnectionLoss."""
    LOSE_REPLY = "lose reply"
    """The operation takes place; the client sees ConnectionLoss all the same."""
    DELAY_REQUEST = "delay request"
    """The operation takes place after `late_s`, and before the session's next write or sync does;
    the client sees ConnectionLoss now. Of a read: as LOSE_REQUEST."""


FaultHook = Callable[[Operation], Fault | None]
Latency = Callable[[], float]
Landing = Callable[["MemoryStore", int], tuple[int, float]]
_T = TypeVar("_T")


class MemoryCluster:
    """The shared tree, its sessions and watches, and the levers of a test."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        reconnect_delay_s: float = RECONNECT_DELAY_S,
    ) -> None:
        """`clock` stamps creation times; without one the event loop's time does."""
        self.tree = Tree()
        self.session_timeout_s = session_timeout_s
        self.reconnect_delay_s = reconnect_delay_s
        self.latency: Latency = lambda: 0.0
        """Seconds that one message takes, asked once per message."""
        self.late_s: Latency = lambda: 0.0
        """Seconds after which a write takes place that was delayed, asked once for each."""
        self.on_request: FaultHook = lambda operation: None
        self.landing: Landing = lambda store, count: (0, 0.0)
        """How many changes the server lacks to which a session comes back, of the so many newest
        that it could lack; and in how many seconds it will have applied them."""
        self._lag: Callable[[MemoryStore], float] | None = None
        self._clock = clock
        self._context = contextvars.copy_context()
        self._session_count = 0
        self._sessions: dict[int, MemoryStore] = {}
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self._watches: dict[tuple[Kind, str], dict[Watch, None]] = {}
        self._late: dict[MemoryStore, list[Request]] = {}
        """Writes that were delayed; they are on their way to the leader."""
        self._commits: deque[Commit] = deque()
        """The newest ones, while servers lag."""

    @property
    def lag(self) -> Callable[[MemoryStore], float] | None:
        """How many seconds after the leader a session's server applies a change, asked once for
        each of both; servers keep the order. None: all apply it at once."""
        return self._lag

    @lag.setter
    def lag(self, lag: Callable[[MemoryStore], float] | None) -> None:
        self._lag = lag
        self._keep_past()

    def session(self) -> MemoryStore:
        """Return a new, connected session."""
        store = MemoryStore(self)
        store._on_connected(self._open_session(store))
        return store

    def live_sessions(self) -> list[int]:
        """Return the ids of the sessions the server still honours, oldest first."""
        return list(self._sessions)

    def shows_the_past(self, session_id: int, path: str) -> bool:
        """Whether a session's server would show a node as it is no longer."""
        store = self._sessions.get(session_id)
        if store is None or not store._server.lags:
            return False
        return store._server.tree.find(path) != self.tree.find(path)

    def suspend(self, store: MemoryStore) -> None:
        """Cut a session's connection until `resume`; the server expires it after its timeout.

        Requests that have not arrived are lost; those that were applied lose their answer.
        """
        self._disconnect(store, ConnectionLoss("connection lost"))

    def resume(self, store: MemoryStore) -> None:
        """Reconnect a suspended session: the old one if it still lives, else a new one."""
        if store.state is not SessionState.CONNECTED:
            self._reconnect_later(store, self.latency())

    def expire(self, store: MemoryStore) -> None:
        """End a session at the server, at once. A connected client hears of it and gets a new
        session by itself; a suspended one hears of it when it is resumed."""
        connected = store.state is SessionState.CONNECTED
        self._end_session(store._last_session_id)
        if connected:
            self._disconnect(store, SessionExpired("session expired"))
            self._reconnect_later(store, self.latency())

    def expire_unseen(self, store: MemoryStore) -> None:
        """End a session whose client is stopped and cannot hear of it. Nothing reaches the client
        until `suspend`, called when it runs again, and `resume` tell it."""
        self._drop_connection(store)
        self._end_session(store._last_session_id)

    def kill(self, store: MemoryStore) -> None:
        """The process behind a session died: nothing of it is called any more, and the server
        expires the session after its timeout."""
        store._closed = True
        self._drop_connection(store)

    def freeze(self, store: MemoryStore) -> None:
        """Let a session's server lag: its reads see the tree as it is now, until a write or sync of
        the session is answered, or until `thaw`. Its watches wait too. A write whose answer is
        lost leaves it as it is, and so does a reconnection."""
        store._server.freeze()
        self._keep_past()

    def thaw(self, store: MemoryStore) -> None:
        """Let a session's server catch up."""
        store._server.catch_up()
        self._keep_past()

    def _keep_past(self) -> None:
        """Keep what is replaced if a server may need it."""
        keeps = self._lag is not None or any(s._server.lags for s in self._sessions.values())
        if keeps and not self.tree.keeps_past:
            self._commits.clear()
        self.tree.keeps_past = keeps
        if not keeps:
            self._commits.clear()
            self.tree.forget_past(self.tree.zxid)

    def _open_session(self, store: MemoryStore) -> int:
        # That a session begins is a change, which its server has applied before it serves it.
        store._server.catch_up()
        store._seen_zxid = self.tree.zxid
        self._session_count += 1
        self._sessions[self._session_count] = store
        return self._session_count

    def _end_session(self, session_id: int) -> None:
        timer = self._expiries.pop(session_id, None)
        if timer is not None:
            timer.cancel()
        store = self._sessions.get(session_id)
        if store is not None:
            self._make_late(store)
            del self._sessions[session_id]
            self._forget_watches(store)
            self._commit(*self.tree.delete_owned(session_id))

    def _disconnect(self, store: MemoryStore, error: MetadataError) -> None:
        self._drop_connection(store)
        store._context.copy().run(store._on_disconnected, error)

    def _drop_connection(self, store: MemoryStore) -> None:
        store._connection += 1
        store._to_server.cut()
        store._to_client.cut()
        self._forget_watches(store)
        session_id = store._last_session_id
        if session_id in self._sessions and session_id not in self._expiries:
            self._expiries[session_id] = asyncio.get_running_loop().call_later(
                self.session_timeout_s, self._end_session, session_id, context=self._context
            )

    def _reconnect_later(self, store: MemoryStore, delay_s: float) -> None:
        store._later(delay_s, partial(self._reconnect, store, store._connection))

    def _reconnect(self, store: MemoryStore, connection: int) -> None:
        if store._closed or store._connection != connection:
            return
        if store.state is SessionState.CONNECTED:
            return  # two had the same in mind
        session_id = store._last_session_id
        if session_id in self._sessions:
            timer = self._expiries.pop(session_id, None)
            if timer is not None:
                timer.cancel()
            self._land(store)
        else:
            store._on_expired()
            session_id = self._open_session(store)
        store._on_connected(session_id)

    def _land(self, store: MemoryStore) -> None:
        """Let a session that comes back find a server."""
        server = store._server
        if self._lag is None or server.is_frozen:
            return
        unseen = [commit for commit in self._commits if commit.zxid > store._seen_zxid]
        count, lag_s = self.landing(store, len(unseen)) if unseen else (0, 0.0)
        assert 0 <= count <= len(unseen)
        server.move(unseen[len(unseen) - count :], lag_s)

    def _serve(self, request: Request) -> None:
        """Take one request that arrived; its answer leaves after the watches it fires."""
        store, server = request.store, request.store._server
        fault = self.on_request(Operation(store._last_session_id, request.name, request.path))
        answer = partial(self._answer, request, store._connection)
        if fault is None:
            if request.is_read:
                server.in_order(answer)
                return
            outcome = self._write(request)
            if server.is_frozen:
                self.thaw(store)
            server.when_caught_up(partial(answer, outcome))
            return
        if not request.is_read and fault is Fault.LOSE_REPLY:
            self._write(request)
        elif not request.is_read and fault is Fault.DELAY_REQUEST:
            self._late.setdefault(store, []).append(request)
            asyncio.get_running_loop().call_later(
                self.late_s(), self._make_late, store, request, context=self._context
            )
        self._disconnect(store, ConnectionLoss(f"{request.name} {request.path}"))
        self._reconnect_later(store, self.reconnect_delay_s)

    def _answer(self, request: Request, connection: int, outcome: object = None) -> None:
        """Read what is asked for, if that is a read, and let the answer leave."""
        store = request.store
        if store._connection != connection:
            return  # it was lost while the server caught up
        if request.is_read:
            outcome = self._apply(request, store._server.tree)
            for watch in request.left_watches(outcome):
                self._watches.setdefault((watch.kind, watch.path), {})[watch] = None
        answer = partial(store._on_answer, request, outcome, store._server.applied)
        store._to_client.send(answer)

    def _write(self, request: Request) -> object:
        """Let the leader make a change, after those of the session that come late."""
        self._make_late(request.store)
        return self._apply(request, self.tree)

    def _make_late(self, store: MemoryStore, last: Request | None = None) -> None:
        """Make changes of a session that were delayed: all, or up to `last`, if that is left."""
        late = self._late.get(store, [])
        if last is not None and last not in late:
            return
        while late:
            request = late.pop(0)
            self._apply(request, self.tree)
            if request is last:
                break
        if not late:
            self._late.pop(store, None)

    def _apply(self, request: Request, tree: Readable) -> object:
        """Run a request against a tree; an error is an outcome too."""
        try:
            return request.apply(self, tree)
        except (MetadataError, ValueError) as error:
            return error

    def _now_ms(self) -> int:
        if self._clock is not None:
            return self._clock.now_ms()
        return int(asyncio.get_running_loop().time() * 1000)

    def _commit(self, *touched: Touched) -> None:
        """Tell all servers of a change that the tree has made: those that lag apply it later."""
        if not touched:
            return
        if not self.tree.keeps_past:
            self._fire(touched)
            return
        commit = Commit(self.tree.zxid, touched)
        self._commits.append(commit)
        waiting = {
            store: None
            for store in self._sessions.values()
            if store._server.commit(commit, 0.0 if self._lag is None else self._lag(store))
        }
        self._fire(touched, lambda store: store not in waiting)
        if len(self._commits) > 2 * _KEPT_COMMITS:
            self._forget_commits()

    def _forget_commits(self) -> None:
        """Forget the older ones, but for those that a server still lacks."""
        needed = min((s._server.applied for s in self._sessions.values()), default=self.tree.zxid)
        while len(self._commits) > _KEPT_COMMITS and self._commits[0].zxid <= needed:
            self.tree.forget_past(self._commits.popleft().zxid)

    def _fire(
        self,
        touched: Iterable[Touched],
        concerns: Callable[[MemoryStore], bool] = lambda store: True,
    ) -> None:
        """Call the watches of some sessions."""
        for change in touched:
            for kind, paths in (
                (Kind.NODE, change.nodes),
                (Kind.DIRECTORY, change.directories),
            ):
                for path in paths:
                    for watch in self._watches.pop((kind, path), {}):
                        if concerns(watch.store):
                            watch.store._to_client.send(partial(watch.store._on_watch, watch))
                        else:
                            self._watches.setdefault((kind, path), {})[watch] = None

    def _forget_watches(self, store: MemoryStore) -> None:
        for key, watches in list(self._watches.items()):
            self._watches[key] = {watch: None for watch in watches if watch.store is not store}
            if not self._watches[key]:
                del self._watches[key]


class MemoryStore:
    """One session with a `MemoryCluster`. Implements `MetadataStore`; see there."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.unreadable = UnreadableNodes()
        self._cluster = cluster
        self._context = contextvars.copy_context()
        self._server = Server(cluster.tree, self._fire, cluster._context)
        self._seen_zxid = 0
        """Of the last change that the server of an answer had applied."""
        self._state = SessionState.SUSPENDED
        self._closed = False
        self._last_session_id = 0
        """The session the server knows this client by, even while the client is cut off."""
        self._connection = 0
        """Grows with every cut, so that a reconnection planned before it comes to nothing."""
        self._listeners: list[SessionListener] = []
        self._watches: dict[Watch, None] = {}
        self._in_flight: dict[asyncio.Future[Any], None] = {}
        self._held: dict[asyncio.Future[Any], Request] = {}
        """Requests made without a connection; they leave with the next one."""
        self._to_server = Channel(lambda: cluster.latency(), cluster._context)
        self._to_client = Channel(lambda: cluster.latency(), self._context)

    @property
    def session_id(self) -> int:
        return 0 if self._state is SessionState.EXPIRED else self._last_session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        def apply(cluster: MemoryCluster, tree: Readable) -> Versioned:
            return tree.get(path)

        return await self._call("get", path, apply, *self._watch(Kind.NODE, path, watcher))

    async def exists(self, path: str, watcher: Watcher | None = None) -> Versioned | None:
        def apply(cluster: MemoryCluster, tree: Readable) -> Versioned | None:
            node = tree.find(path)
            return None if node is None else node._replace(data=b"")

        return await self._call("exists", path, apply, *self._watch(Kind.NODE, path, watcher))

    async def children(self, path: str, watcher: Watcher | None = None) -> list[str]:
        def apply(cluster: MemoryCluster, tree: Readable) -> list[str]:
            return tree.children(path)

        return await self._call(
            "children", path, apply, *self._watch(Kind.DIRECTORY, path, watcher)
        )

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        def apply(cluster: MemoryCluster, tree: Readable) -> str:
            made, touched = cluster.tree.create(
                path,
                data,
                now_ms=cluster._now_ms(),
                owner=self._last_session_id if ephemeral else 0,
                sequential=sequential,
                make_parents=make_parents,
            )
            cluster._commit(touched)
            return made

        return await self._call("create", path, apply)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        def apply(cluster: MemoryCluster, tree: Readable) -> int:
            new_version, touched = cluster.tree.set(path, data, version)
            cluster._commit(touched)
            return new_version

        return await self._call("set", path, apply)

    async def delete(self, path: str, version: int = -1) -> None:
        def apply(cluster: MemoryCluster, tree: Readable) -> None:
            cluster._commit(cluster.tree.delete(path, version))

        await self._call("delete", path, apply)

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        def apply(cluster: MemoryCluster, tree: Readable) -> list[Changed]:
            made = cluster.tree.multi(
                changes, now_ms=cluster._now_ms(), owner=self._last_session_id
            )
            cluster._commit(*(touched for _, touched in made))
            return [result for result, _ in made]

        return await self._call("multi", changes[0].path, apply)

    async def get_many(
        self, paths: Sequence[str], watchers: Sequence[Watcher] = ()
    ) -> list[Versioned | None]:
        def apply(cluster: MemoryCluster, tree: Readable) -> list[Versioned | None]:
            return [tree.find(path) for path in paths]

        for path in paths:
            check_path(path)
        pairs = zip(paths, watchers, strict=bool(watchers))
        watches = [Watch(self, Kind.NODE, path, watcher) for path, watcher in pairs]
        return await self._call("get_many", paths[0], apply, *watches)

    async def sync(self, path: str) -> None:
        await self._call("sync", path, lambda cluster, tree: None)

    async def close(self) -> None:
        if self._closed:
            return
        self._listeners.clear()
        self._watches.clear()
        if self._state is SessionState.CONNECTED:
            session_id = self._last_session_id
            answer = self._submit("close", "/", lambda cluster, _: cluster._end_session(session_id))
            self._closed = True
            await asyncio.wait([answer])
            answer.exception()  # seen: without an answer the server ends the session by timeout
        self._closed = True
        self._cluster._disconnect(self, SessionExpired("store closed"))
        self._state = SessionState.EXPIRED
        held, self._held = self._held, {}
        _fail(held, SessionExpired("store closed"))

    async def _call(
        self,
        name: str,
        path: str,
        apply: Callable[[MemoryCluster, Readable], _T],
        *watches: Watch,
    ) -> _T:
        check_path(path)
        if self._closed:
            raise SessionExpired("store closed")
        return await self._submit(name, path, apply, *watches)

    def _watch(self, kind: Kind, path: str, watcher: Watcher | None) -> list[Watch]:
        return [] if watcher is None else [Watch(self, kind, path, watcher)]

    def _submit(
        self,
        name: str,
        path: str,
        apply: Callable[[MemoryCluster, Readable], _T],
        *watches: Watch,
    ) -> asyncio.Future[_T]:
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        request = Request(self, name, path, apply, answer, watches)
        if self._state is SessionState.CONNECTED:
            self._send(request)
        else:
            self._held[answer] = request
            self._later(self._cluster.session_timeout_s, partial(self._give_up, request))
        return answer

    def _send(self, request: Request) -> None:
        self._in_flight[request.answer] = None
        self._to_server.send(partial(self._cluster._serve, request))

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if delay_s <= 0:
            loop.call_soon(call, context=self._context)
        else:
            loop.call_later(delay_s, call, context=self._context)

    def _fire(self, touched: Iterable[Touched]) -> None:
        """Our server has applied a change."""
        self._cluster._fire(touched, lambda store: store is self)

    def _on_answer(self, request: Request, outcome: object, zxid: int) -> None:
        self._seen_zxid = max(self._seen_zxid, zxid)
        self._in_flight.pop(request.answer, None)
        self._watches.update(dict.fromkeys(request.left_watches(outcome)))
        _settle(request.answer, outcome)

    def _on_watch(self, watch: Watch) -> None:
        if watch in self._watches:
            del self._watches[watch]
            callbacks.each(callbacks.Kind.METADATA, [watch.call])

    def _on_connected(self, session_id: int) -> None:
        self._state = SessionState.CONNECTED
        self._last_session_id = session_id
        connection = self._connection
        pending, self._watches = self._watches, {}
        held, self._held = self._held, {}
        self._tell(SessionState.CONNECTED)
        callbacks.each(callbacks.Kind.METADATA, [watch.call for watch in pending])
        for request in held.values():
            if self._connection != connection:
                self._held[request.answer] = request  # a callback lost the connection again
            elif not request.answer.done():
                self._send(request)

    def _on_disconnected(self, error: MetadataError) -> None:
        """The connection is gone and all that travelled on it: requests in flight fail."""
        failed, self._in_flight = self._in_flight, {}
        if self._state is SessionState.CONNECTED:
            self._state = SessionState.SUSPENDED
            self._tell(SessionState.SUSPENDED)
        _fail(failed, error)

    def _on_expired(self) -> None:
        self._state = SessionState.EXPIRED
        held, self._held = self._held, {}
        _fail(held, SessionExpired("session expired"))
        self._tell(SessionState.EXPIRED)

    def _give_up(self, request: Request) -> None:
        if self._held.pop(request.answer, None) is not None:
            _settle(request.answer, ConnectionLoss(f"{request.name} {request.path}"))

    def _tell(self, state: SessionState) -> None:
        calls = [partial(listener, state) for listener in self._listeners]
        callbacks.each(callbacks.Kind.METADATA, calls)


def _fail(answers: Iterable[asyncio.Future[Any]], error: MetadataError) -> None:
    for answer in answers:
        _settle(answer, type(error)(*error.args))


def _settle(answer: asyncio.Future[Any], outcome: object) -> None:
    if answer.done():
        return  # the caller was cancelled
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
