"""Serves the shard of one internal partition: loads it, carries its effects out, keeps its log.

    LOADING ──log read to its end──▶ ACTIVE ──log failed──▶ LOADING
       │                               │
       └────── leadership lost ────────┴──────▶ CLOSED        (or FAILED: the log is damaged)

A handler's request becomes a call of the shard, whose effects are carried out in order: replies
resolve the waiting call, appends go to the log, and once an append is durable its records are
replayed and the shard continues. Nothing is answered from state that is not durable, so another
coordinator that reads the same log can take over at any point. One timer serves all deadlines.
Effects that only one kind of coordinator knows are carried out by its own class (`_on_effect`).

Requests that arrive while the log is being read get CoordinatorLoading, unless they waited for
`loaded` first. A broker that is not sure
of its metadata session does not answer questions about state, which may be another broker's by now;
it still keeps what it has alive.

`coordinator_log.py` keeps the log short.

Sources: Kafka's CoordinatorRuntime; KIP-848 on why coordinators replay.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from broker.coordinator.coordinator_log import CoordinatorLog, LogCopy
from broker.coordinator.core.coordinator_types import (
    Append,
    CorruptCoordinatorRecord,
    Effects,
    LogItem,
    LogRecord,
    Now,
    Reply,
    Shard,
    Token,
)
from broker.errors import (
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupError,
    LeadershipError,
    LogError,
    NotCoordinator,
)
from broker.partition.partition import Partition
from client.errors import QuireError
from client.ids import Clock
from client.node import background

_LOG = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

STALL_S: Final = 2.0
"""A timer that fires so late means that this whole process stood still, not its members."""

STALL_GRACE_S: Final = 1.0
"""How long deadlines are put off then: what the members sent meanwhile has to be read first."""

_RETRY_S_MIN: Final = 0.1
_RETRY_S_MAX: Final = 5.0


class Phase(enum.Enum):
    """Where a coordinator stands."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"
    FAILED = "failed"


class CoordinatorRuntime(ABC, Generic[S]):
    """Serves one led partition, from `start` to `close`."""

    def __init__(
        self,
        partition: Partition,
        new_shard: Callable[[], S],
        *,
        clock: Clock,
        copy_bytes_min: int,
    ) -> None:
        """Prepare; `start` begins to read the log. `new_shard` makes an empty one."""
        self.partition = partition
        self.phase = Phase.LOADING
        self._new_shard = new_shard
        self._clock = clock
        self._shard = new_shard()
        self._log = CoordinatorLog(partition, self._on_log_failed)
        self._calls: dict[Token, asyncio.Future[object]] = {}
        self._last_token = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._not_before_s = float("-inf")  # no deadline is acted on earlier, see STALL_S
        self._loading: asyncio.Task[None] | None = None
        self._loading_since_s = 0.0
        self._loaded = asyncio.Event()
        """Set unless the log is being read: it was, cannot be, or is another broker's by now."""
        self._copy = LogCopy(self._name, clock, bytes_min=copy_bytes_min)

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the log."""
        self._loading_since_s = asyncio.get_running_loop().time()
        self._loaded.clear()
        self._loading = background.run(self._load(), f"load {self._name}")

    def close(self) -> None:
        """Stop serving: requests that wait are told to look for another coordinator."""
        if self.phase is Phase.CLOSED:
            return
        self._end_loading(Phase.CLOSED)
        if self._loading is not None:
            self._loading.cancel()
        self._copy.cancel()
        self._give_up(NotCoordinator(f"this broker no longer coordinates {self._name}"))
        _LOG.info("coordinator.closed shard=%s", self._name)

    async def loaded(self, hold_s: float) -> None:
        """Return when the log is not being read any more, or has been for `hold_s`.

        The next question says what came of it.
        """
        until_s = self._loading_since_s + hold_s
        if self._loaded.is_set() or until_s <= asyncio.get_running_loop().time():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._loaded.wait()

    def _end_loading(self, phase: Phase) -> None:
        self.phase = phase
        self._loaded.set()

    @abstractmethod
    def _on_effect(self, effect: object) -> None:
        """Carry out an effect of this kind of coordinator."""

    def _replay_item(self, shard: S, item: LogItem) -> None:
        """Replay what is no plain record, for those whose records may be in transactions.

        Raises CorruptCoordinatorRecord.
        """
        raise CorruptCoordinatorRecord(f"{type(item).__name__} in the log of {self._name}")

    def _on_loaded(self) -> None:
        """The log was read, and the shard serves."""

    def _on_unloaded(self) -> None:
        """The shard is about to be given up; for those who do more than the log tells."""

    # --- asking the shard ---------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self.partition.topic.name}-{self.partition.index}"

    def _now(self) -> Now:
        return Now(asyncio.get_running_loop().time(), self._clock.now_ms())

    def _check(self) -> None:
        if self.phase is Phase.LOADING:
            raise CoordinatorLoading(self._name)
        if self.phase is Phase.FAILED:
            raise CoordinatorNotAvailable(f"the log of {self._name} cannot be read")
        if self.phase is Phase.CLOSED:
            raise NotCoordinator(self._name)

    def _check_leading(self) -> None:
        try:
            self.partition.check_leading()
        except LeadershipError as error:
            raise NotCoordinator(str(error)) from error

    async def _ask(self, start: Callable[[Token, Now], Effects]) -> object:
        self._check()
        self._last_token += 1
        token = Token(self._last_token)
        effects = start(token, self._now())
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[token] = future
        self._perform(effects)
        try:
            return await future
        finally:
            self._calls.pop(token, None)

    # --- carrying out -------------------------------------------------------------------------

    def _perform(self, effects: Effects) -> None:
        shard = self._shard
        try:
            for effect in effects:
                if isinstance(effect, Reply):
                    self._answer(effect)
                elif not isinstance(effect, Append):
                    self._on_effect(effect)
                elif shard is self._shard:  # or the log failed, and the shard went with it
                    self._append(effect)
        except Exception as error:
            self._on_bug(error)
            raise
        self._arm()

    def _answer(self, reply: Reply) -> None:
        future = self._calls.get(reply.token)
        if future is None or future.done():
            return  # whoever asked is gone
        if isinstance(reply.result, BrokerError):
            future.set_exception(reply.result)
        else:
            future.set_result(reply.result)

    def _append(self, effect: Append) -> None:
        shard = self._shard
        now = self._now()
        try:
            self._log.append(effect.records, now.ms, lambda: self._on_durable(effect))
        except BrokerError as error:
            if shard is self._shard:
                refusal = as_coordinator_error(error)
                self._perform(shard.on_store_failed(effect.ticket, refusal, now))
            return
        self._copy.start_if_due(self._log, self._shard.view)

    def _on_durable(self, effect: Append) -> None:
        try:
            for record in effect.records:
                self._shard.replay(record)
            effects = self._shard.on_stored(effect.ticket, self._now())
        except Exception as error:
            self._on_bug(error)
            raise
        self._perform(effects)

    def _arm(self) -> None:
        at_s = self._shard.next_deadline() if self.phase is Phase.ACTIVE else None
        if at_s is not None:
            at_s = max(at_s, self._not_before_s)
        if self._timer is not None:
            if at_s is not None and self._timer_at_s <= at_s:
                return
            self._timer.cancel()
            self._timer = None
        if at_s is not None:
            # Kept beside the handle: what uvloop returns for a time that has passed knows none.
            self._timer_at_s = at_s
            self._timer = asyncio.get_running_loop().call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        assert self._timer is not None
        due_s, self._timer = self._timer_at_s, None
        now = self._now()
        if now.s - due_s >= STALL_S and due_s > self._not_before_s:
            _LOG.warning("coordinator.stalled shard=%s seconds=%.1f", self._name, now.s - due_s)
            self._not_before_s = now.s + STALL_GRACE_S
            self._arm()
            return
        try:
            effects = self._shard.on_deadline(now)
        except Exception as error:
            self._on_bug(error)
            raise
        self._perform(effects)

    def _on_log_failed(self, error: BrokerError) -> None:
        """The log's end is unknown: forget everything and read it again, if we still lead it."""
        if self.phase is not Phase.ACTIVE:
            return
        _LOG.warning("coordinator.log_failed shard=%s error=%r", self._name, error)
        self.phase = Phase.LOADING
        self._copy.cancel()
        self._give_up(NotCoordinator(str(error)))
        self.start()

    def _on_bug(self, error: Exception) -> None:
        """Something has raised that never should. Effects are left, with callers that wait for
        them, and what the shard knows may be wrong: begin again from the log."""
        self._on_log_failed(NotCoordinator(f"{self._name} begins again after a bug: {error!r}"))

    def _give_up(self, error: GroupError) -> None:
        try:
            self._on_unloaded()
            shard, self._shard = self._shard, self._new_shard()
            self._log.close(error)
            self._perform(shard.unload(error))
        finally:
            for future in self._calls.values():
                if not future.done():
                    future.set_exception(error)

    # --- loading ------------------------------------------------------------------------------

    async def _load(self) -> None:
        pause_s = _RETRY_S_MIN
        while True:
            try:
                await self._read_log()
            except QuireError as error:
                # A leadership in doubt may be confirmed again; if it is lost, `close` ends this.
                if not error.retriable:
                    _LOG.exception("coordinator.load_failed shard=%s", self._name)
                    self._end_loading(Phase.FAILED)
                    return
                _LOG.warning("coordinator.load_retried shard=%s error=%r", self._name, error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_S_MAX)

    async def _read_log(self) -> None:
        shard = self._new_shard()
        log = CoordinatorLog(self.partition, self._on_log_failed)
        started_s = asyncio.get_running_loop().time()
        count = 0
        async for found in log.read():
            for one in found:
                if isinstance(one, LogRecord):
                    shard.replay(one)
                else:
                    self._replay_item(shard, one)
            count += len(found)
            await asyncio.sleep(0)  # other partitions of this broker want to be served meanwhile
        self._shard, self._log = shard, log
        self._end_loading(Phase.ACTIVE)
        now = self._now()
        _LOG.info(
            "coordinator.active shard=%s records=%d bytes=%d ids=%d seconds=%.3f",
            self._name, count, log.bytes_since_copy, len(shard.view.ids()), now.s - started_s,
        )  # fmt: skip
        self._perform(shard.loaded(now))
        self._on_loaded()
        self._copy.start_if_due(self._log, self._shard.view)


def as_coordinator_error(error: BrokerError) -> BrokerError:
    """Say what a refused append means to a client."""
    if isinstance(error, LeadershipError):
        return NotCoordinator(str(error))
    if isinstance(error, LogError):
        return CoordinatorNotAvailable(str(error))
    return error
