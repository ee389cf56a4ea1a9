"""Bugs that a schedule plants in a running broker: what is left of it ends or goes on, in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.machine.hosts import Injected

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from broker.app import Broker


def break_a_task(broker: Broker | None, which: int) -> None:
    """Let a background task of a broker run into a bug, once."""
    if broker is None or not broker.is_started:
        return
    owner: Any = broker.log_services.lease if which else broker._background[0]
    name = "ask" if which else "visit_all"

    async def fail(*_: object) -> None:
        owner.__dict__.pop(name, None)
        raise Injected("planted in a background task")

    setattr(owner, name, fail)


def break_a_callback(broker: Broker | None, which: int) -> bool:
    """Let whoever hears of an add of a broker run into a bug, once: the owner of its outcome, or
    the core that takes a bookie's answer. False: nobody waits for one."""
    partitions = [] if broker is None or not broker.is_started else [*broker.partitions]
    for partition in partitions:
        writer: Any = partition._sender.steps.writer
        pipeline = writer._writer._pipeline
        waiting = pipeline._reports._callbacks
        if waiting and partition.is_open:
            first = next(iter(waiting))
            if which:
                pipeline.adds.on_stored = partial(_fail_once, pipeline.adds)
            else:
                waiting[first] = partial(_fail_after, waiting[first])
            return True
    return False


def break_a_request(broker: Broker | None) -> None:
    """Let the next request that a broker sends to the metadata store together with others, or could
    have, run into a bug, once."""
    if broker is not None and broker.is_started:
        requests: Any = broker.log_services.requests
        requests.store = _BrokenOnce(requests)


class _BrokenOnce:
    """The metadata store behind grouped requests, whose next call raises."""

    def __init__(self, requests: Any) -> None:
        self._requests = requests
        self._store = requests.store
        self._is_broken = True

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("get", "get_many", "create", "set", "delete", "multi"):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            if not self._is_broken:
                return await found(*arguments, **options)
            self._is_broken = False
            self._requests.store = self._store
            raise Injected("planted in a request")

        return call


def break_an_effect(broker: Broker | None) -> bool:
    """Let a leader run into a bug behind its next effect, once. False: the broker leads nothing."""
    partitions = [] if broker is None or not broker.is_started else [*broker.partitions]
    for partition in partitions:
        runner: Any = partition._runner
        if partition.is_open:
            runner._carry_out = partial(_break_off, runner, runner._carry_out)
            return True
    return False


def _break_off(runner: Any, carry_out: Callable[[Any], None], effect: Any) -> None:
    """Do what an effect does, and fail then."""
    runner._carry_out = carry_out
    carry_out(effect)
    raise Injected("planted in an effect")


def _fail_once(adds: Any, *_: object) -> None:
    """Stand for `on_stored` once, and fail."""
    adds.__dict__.pop("on_stored", None)
    raise Injected("planted in a callback")


def _fail_after(call: Callable[..., None], *arguments: object) -> None:
    """Do what a callback does, and fail then."""
    call(*arguments)
    raise Injected("planted in a callback")
