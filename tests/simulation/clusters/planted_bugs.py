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


def _fail_once(adds: Any, *_: object) -> None:
    """Stand for `on_stored` once, and fail."""
    adds.__dict__.pop("on_stored", None)
    raise Injected("planted in a callback")


def _fail_after(call: Callable[..., None], *arguments: object) -> None:
    """Do what a callback does, and fail then."""
    call(*arguments)
    raise Injected("planted in a callback")
