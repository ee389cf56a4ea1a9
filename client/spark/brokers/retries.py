"""Ask again until a deadline: which failures are transient, and how long to wait.

An exception out of one of Spark's driver hooks ends the whole query, so everything that a fail-over
can cause (connections that break, leaders that move, partitions that are being opened) is waited
out, up to `fetch.timeoutMs`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode as Code

from client.spark.brokers.kafka_link import LinkBroken
from client.spark.errors import BrokersUnreachable, RequestRefused

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0

TRANSIENT: Final = frozenset(
    {
        Code.unknown_topic_or_partition,  # metadata says whether it really is
        Code.leader_not_available,
        Code.not_leader_or_follower,
        Code.replica_not_available,
        Code.request_timed_out,
        Code.network_exception,
        Code.coordinator_load_in_progress,
        Code.coordinator_not_available,
        Code.not_coordinator,
        Code.kafka_storage_error,
        Code.fenced_leader_epoch,
        Code.unknown_leader_epoch,
        Code.offset_not_available,
        Code.not_enough_replicas,
        Code.not_enough_replicas_after_append,
        Code.concurrent_transactions,
        Code.unknown_server_error,
    }
)
"""Codes that a retry may be answered otherwise."""


class Transient(Exception):
    """An attempt failed in a way that may pass; its text says how."""


def check_code(code: int, what: str) -> None:
    """Raise Transient or RequestRefused unless the code is 0."""
    if code == Code.none:
        return
    try:
        name = Code(code).name.upper()
    except ValueError:
        name = f"error code {code}"
    if code in TRANSIENT:
        raise Transient(f"{what}: {name}")
    raise RequestRefused(f"{what} was refused: {name}")


def retry(
    what: str,
    attempt: Callable[[], T],
    timeout_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call `attempt` until it returns. Raises BrokersUnreachable after `timeout_s`.

    LinkBroken and Transient are asked again after a pause that doubles; anything else passes.
    """
    deadline = now() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return attempt()
        except (LinkBroken, Transient) as error:
            left_s = deadline - now()
            if left_s <= 0:
                raise BrokersUnreachable(
                    f"{what} failed for {timeout_s:g} s (fetch.timeoutMs): {error}"
                ) from error
        sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
