"""Requests of many callers to the metadata store, as few as there can be.

When a thousand partitions change hands, each needs a dozen small changes and reads. Each alone
costs the store a transaction, and both sides a message. So what comes while a group is under way
waits, and leaves together in the next one: changes as one transaction, reads as one request for
many nodes. Who comes alone is sent at once, as what it is.

Each caller learns what became of its own request, and nothing else:

    the group was made       each gets its own result
    the group was refused    nothing has happened then, and one of them is guilty: each is sent
                             alone, in the same order
    no answer came           the outcome is unknown, for each
    sending it raised        a mistake of ours, or the end of the process: no answer came, either
                             (NOBODY-WAITS), and whoever looks after tasks hears of it

A change of a group may find what those before it made, as if they had been sent one after the
other. Between changes and reads there is no order: who needs one waits for the answer. Changes that
belong together (`multi`) stay together: all of them or none, in a group and alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from client.errors import ConnectionLoss, MetadataError, NodeExists, NoNode, SessionExpired
from client.metadata.store import (
    Change,
    Changed,
    Create,
    Delete,
    MetadataStore,
    SetData,
    Versioned,
    Watcher,
    check_path,
    check_size,
)
from client.node import background

GROUP_MAX: Final = 128
"""Requests in a group. Larger ones would save little, and keep the store from others for longer."""
GROUP_BYTES_MAX: Final = 256 << 10
"""Of paths and data, but for a request that has more alone; the store takes messages of 1 MiB."""

_T = TypeVar("_T")
_R = TypeVar("_R")
_UNKNOWN: Final = (ConnectionLoss, SessionExpired)


class _Waiting(NamedTuple, Generic[_T, _R]):
    what: _T
    size: int
    alone: Callable[[], Awaitable[_R]]
    """Sends it as what it is."""
    answer: asyncio.Future[_R]


class _Groups(Generic[_T, _R]):
    """Requests of one kind, with at most one group of them under way."""

    def __init__(
        self, send: Callable[[list[_T]], Awaitable[list[_R | MetadataError]]], name: str
    ) -> None:
        """`send`: raises MetadataError if none of the group has an answer of its own."""
        self._send = send
        self._name = name
        self._waiting: deque[_Waiting[_T, _R]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, what: _T, size: int, alone: Callable[[], Awaitable[_R]]) -> _R:
        """Send a request with others, or alone; return its own answer, or raise its own error."""
        answer: asyncio.Future[_R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(what, size, alone, answer))
        if self._task is None:
            self._begin()
        return await answer

    def _begin(self) -> None:
        self._task = background.begin(self._run(), self._name)
        # Not a `finally` in the task: that would also run when a dead loop's tasks are collected.
        self._task.add_done_callback(self._on_done)

    def _on_done(self, _task: asyncio.Task[None]) -> None:
        self._task = None
        if self._waiting:
            self._begin()

    async def _run(self) -> None:
        while self._waiting:
            group = self._take()
            if len(group) == 1:
                await _answer_alone(group[0])
            elif group:
                await self._send_group(group)

    def _take(self) -> list[_Waiting[_T, _R]]:
        group: list[_Waiting[_T, _R]] = []
        size = 0
        while self._waiting and len(group) < GROUP_MAX:
            size += self._waiting[0].size
            if group and size > GROUP_BYTES_MAX:
                break
            one = self._waiting.popleft()
            if not one.answer.done():  # else its caller was cancelled
                group.append(one)
        return group

    async def _send_group(self, group: list[_Waiting[_T, _R]]) -> None:
        try:
            results = await self._send([one.what for one in group])
            for one, result in zip(group, results, strict=True):
                _settle(one, result)
        except _UNKNOWN as error:
            for one in group:
                _settle(one, type(error)(*error.args))
        except MetadataError:
            alone = await asyncio.gather(*map(_answer_alone, group), return_exceptions=True)
            failures = [failure for failure in alone if failure is not None]
            if failures:
                raise failures[0] from None
        except BaseException as error:
            for one in group:
                _settle(one, _no_answer(error))
            raise


async def _answer_alone(one: _Waiting[Any, Any]) -> None:
    try:
        result = await one.alone()
    except MetadataError as error:
        _settle(one, error)
    except BaseException as error:
        _settle(one, _no_answer(error))
        raise
    else:
        _settle(one, result)


def _no_answer(error: BaseException) -> ConnectionLoss:
    """Return what those learn whose request may have been sent: nobody waits for ever."""
    return ConnectionLoss(f"the request may have been sent, then: {error!r}")


def _settle(one: _Waiting[Any, Any], result: object) -> None:
    if one.answer.done():
        return  # its caller was cancelled
    if isinstance(result, MetadataError):
        one.answer.set_exception(result)
    else:
        one.answer.set_result(result)


class _Watched(NamedTuple):
    path: str
    watcher: Watcher


class GroupedRequests:
    """One session's changes and reads that may leave together with others.

    The methods are those of `MetadataStore`, and raise what those raise.
    """

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        """For what is never grouped: lists, `sync`."""
        self._changes = _Groups[Sequence[Change], list[Changed]](self._multi, "changes")
        self._reads = _Groups[str, Versioned](self._get_many, "reads")
        self._watches = _Groups[_Watched, Versioned](self._watch_many, "watches")

    async def get(self, path: str, watcher: Watcher | None = None) -> Versioned:
        """Read a node. Raises NoNode.

        `watcher` waits from when this has returned; for what changes before, it may be called
        though the change was read.
        """
        check_path(path)
        if watcher is None:
            return await self._reads.ask(path, len(path), partial(self.store.get, path))
        alone = partial(self.store.get, path, watcher)
        return await self._watches.ask(_Watched(path, watcher), len(path), alone)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node; parents that are missing are made once it was refused without them."""
        check_path(path)
        check_size(path, data)

        async def alone() -> list[Changed]:
            options = {"ephemeral": ephemeral, "sequential": sequential}
            return [await self.store.create(path, data, **options, make_parents=make_parents)]

        change = Create(path, data, ephemeral, sequential)
        [made] = await self._changes.ask([change], len(path) + len(data), alone)
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        """Replace a node's bytes if its version matches; return the new version."""
        check_path(path)
        check_size(path, data)

        async def alone() -> list[Changed]:
            return [await self.store.set(path, data, version)]

        change = SetData(path, data, version)
        [new_version] = await self._changes.ask([change], len(path) + len(data), alone)
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node."""
        check_path(path)

        async def alone() -> list[Changed]:
            await self.store.delete(path, version)
            return [None]

        await self._changes.ask([Delete(path, version)], len(path), alone)

    async def multi(self, changes: Sequence[Change]) -> list[Changed]:
        """Make changes that belong together; parents that are missing are made once it was refused
        without them."""
        size = 0
        for change in changes:
            check_path(change.path)
            size += len(change.path)
            if not isinstance(change, Delete):
                check_size(change.path, change.data)
                size += len(change.data)
        return await self._changes.ask(changes, size, partial(self._multi_alone, changes))

    async def _multi_alone(self, changes: Sequence[Change]) -> list[Changed]:
        try:
            return await self.store.multi(changes)
        except NoNode:
            for change in changes:
                if isinstance(change, Create):
                    await self._make_parent(change.path)
        return await self.store.multi(changes)

    async def _make_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent:
            with contextlib.suppress(NodeExists):
                await self.store.create(parent, make_parents=True)

    async def _multi(self, asked: list[Sequence[Change]]) -> list[list[Changed] | MetadataError]:
        made = iter(await self.store.multi([change for changes in asked for change in changes]))
        return [list(itertools.islice(made, len(changes))) for changes in asked]

    async def _get_many(self, paths: list[str]) -> list[Versioned | MetadataError]:
        return _read(paths, await self.store.get_many(paths))

    async def _watch_many(self, watched: list[_Watched]) -> list[Versioned | MetadataError]:
        paths = [one.path for one in watched]
        return _read(paths, await self.store.get_many(paths, [one.watcher for one in watched]))


def _read(paths: list[str], found: list[Versioned | None]) -> list[Versioned | MetadataError]:
    return [NoNode(path) if node is None else node for path, node in zip(paths, found, strict=True)]
