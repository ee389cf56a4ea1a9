"""Limits what clients use, as operators say: bytes, time of this broker, changes, connections.

Requests are served first; then the client waits, by the answer (`throttle_time_ms`) and because its
next request is not begun before (KIP-219). What brokers ask each other is not limited. Each broker
limits what is used of it, as Kafka's do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Final, Protocol

from broker.errors import InvalidRequest, ThrottlingQuotaExceeded
from broker.metrics import Metrics
from broker.security.config import SecurityConfig
from broker.security.core.quota_limits import FairBucket, Limit, QuotaKey, QuotaLimits, QuotaTable
from broker.security.quota_store import QuotaStore
from client.ids import ConnectionId
from client.metadata.store import MetadataStore

_MS_MAX: Final = (1 << 31) - 1
_PERCENT: Final = 100.0


class Caller(Protocol):
    """Who asks."""

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""
        ...

    @property
    def user(self) -> str:
        """Name of the principal."""
        ...

    @property
    def connection(self) -> ConnectionId:
        """Which connection it came over."""
        ...


class Quotas:
    """One for all requests of a broker."""

    def __init__(self, config: SecurityConfig, store: MetadataStore, metrics: Metrics) -> None:
        self._is_followed = config.quotas
        self._limits = QuotaLimits()
        self._window_s = config.quota_window_ms / 1000
        self._table = QuotaTable(config.quota_owners_max, self._window_s)
        self._store = QuotaStore(store, self._replace, config.quota_entities_max)
        self._waits: dict[QuotaKey, int] = dict.fromkeys(QuotaKey, 0)
        self._waited_s: dict[QuotaKey, float] = dict.fromkeys(QuotaKey, 0.0)
        self.is_on = False
        """Whether anybody is limited."""
        self.are_times_limited = False
        """Whether anybody's share of this broker's time is."""
        self._provide(metrics)

    def _provide(self, metrics: Metrics) -> None:
        metrics.provide_one("quire_broker_quota_owners", lambda: len(self._table))
        metrics.provide_one("quire_broker_quota_entities", lambda: self._store.count)
        metrics.provide(
            "quire_broker_quota_waits",
            lambda: [({"kind": str(key)}, count) for key, count in self._waits.items()],
        )
        metrics.provide(
            "quire_broker_quota_wait_seconds",
            lambda: [({"kind": str(key)}, total) for key, total in self._waited_s.items()],
        )

    async def start(self) -> None:
        """Read the limits, if they are followed. Raises MetadataError."""
        if self._is_followed:
            await self._store.start()

    async def close(self) -> None:
        """Stop following changes."""
        await self._store.close()

    def store(self) -> QuotaStore:
        """Return the limits, to be listed and changed. Raises InvalidRequest."""
        if not self._is_followed:
            raise InvalidRequest("quotas are not enforced here: security.quotas is off")
        return self._store

    def admits(self, host: str) -> bool:
        """Say whether an address may open a connection more now."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        if key not in self._limits.keys:
            return True
        limit = self._limits.of_address(key, host)
        if limit is None or self._bucket(key, limit).take(1, self._now_s()):
            return True
        self._waits[key] += 1
        return False

    def worked(self, caller: Caller, seconds: float) -> None:
        """Count the time that a request took of this broker."""
        bucket = self._bucket_of(QuotaKey.REQUEST_PERCENTAGE, caller)
        if bucket is not None:
            bucket.use(caller.connection, seconds * _PERCENT, self._now_s())

    def is_used_up(self, caller: Caller, key: QuotaKey, amount: float) -> bool:
        """Count what a request uses that begins, to be waited for at its answer (`throttle_ms`);
        say whether its client has no more left."""
        bucket = self._bucket_of(key, caller)
        if bucket is None:
            return False
        now_s = self._now_s()
        bucket.use(caller.connection, amount, now_s)
        return bucket.is_in_debt(now_s)

    def throttle_ms(self, caller: Caller, uses: Iterable[tuple[QuotaKey, float]] = ()) -> int:
        """Count what a request has used; return how long the client has to wait for that, and for
        the time that its requests took."""
        found_ms = 0
        for key, amount in (*uses, (QuotaKey.REQUEST_PERCENTAGE, 0.0)):
            bucket = self._bucket_of(key, caller)
            if bucket is None:
                continue
            now_s = self._now_s()
            bucket.use(caller.connection, amount, now_s)
            wait_s = bucket.wait_s(caller.connection, now_s)
            if key is QuotaKey.REQUEST_PERCENTAGE:
                wait_s = min(wait_s, self._window_s)  # one long request shall lock nobody out
            if wait_s > 0:
                self._waits[key] += 1
                self._waited_s[key] += wait_s
                found_ms = max(found_ms, min(math.ceil(wait_s * 1000), _MS_MAX))
        return found_ms

    def require_mutations(self, caller: Caller, *, is_strict: bool) -> None:
        """Raise ThrottlingQuotaExceeded if a client has made too many changes of topics, and its
        request is of a version that knows the error."""
        if not is_strict:
            return
        bucket = self._bucket_of(QuotaKey.CONTROLLER_MUTATION_RATE, caller)
        if bucket is not None and bucket.is_in_debt(self._now_s()):
            raise ThrottlingQuotaExceeded("the throttling quota has been exceeded")

    def _bucket_of(self, key: QuotaKey, caller: Caller) -> FairBucket | None:
        """Return the bucket of what a client may use; None: it is not limited."""
        if key not in self._limits.keys:
            return None
        limit = self._limits.of_client(key, caller.user, caller.client_id or "")
        return None if limit is None else self._bucket(key, limit)

    def _bucket(self, key: QuotaKey, limit: Limit) -> FairBucket:
        return self._table.bucket(key, limit, self._now_s())

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _replace(self, limits: QuotaLimits) -> None:
        self._limits = limits
        self.is_on = bool(limits.keys)
        self.are_times_limited = QuotaKey.REQUEST_PERCENTAGE in limits.keys
