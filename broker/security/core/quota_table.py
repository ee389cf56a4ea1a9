"""The buckets of everybody with a quota: a bounded number, whatever clients call themselves.

A bucket that is as full as a new one is forgotten when room is needed, which changes nothing. If
there is no room even so, further owners share one bucket for each rate: a client that names itself
anew with each connection gains nothing by it.
"""

from __future__ import annotations

import math
from typing import Final

from broker.security.core.fair_bucket import FairBucket
from broker.security.core.quota_limits import Limit, Owner, QuotaKey

_SWEEP_INTERVAL_S: Final = 1.0


class QuotaTable:
    """By what is limited, and whose."""

    def __init__(self, owners_max: int, window_s: float) -> None:
        self._owners_max = owners_max
        self._window_s = window_s
        self._buckets: dict[tuple[QuotaKey, Owner], FairBucket] = {}
        self._shared: dict[tuple[QuotaKey, float], FairBucket] = {}
        self._swept_s = -math.inf

    def __len__(self) -> int:
        return len(self._buckets) + len(self._shared)

    def bucket(self, key: QuotaKey, limit: Limit, now_s: float) -> FairBucket:
        """Return the bucket of a limit's owner, made if need be."""
        at = key, limit.owner
        found = self._buckets.get(at)
        if found is None:
            if len(self._buckets) >= self._owners_max:
                self._sweep(now_s)
            if len(self._buckets) >= self._owners_max:
                return self._common(key, limit, now_s)
            found = self._buckets[at] = FairBucket(limit.rate, self._window_s, now_s)
        elif found.rate != limit.rate:
            found.set_rate(limit.rate, now_s)
        return found

    def _common(self, key: QuotaKey, limit: Limit, now_s: float) -> FairBucket:
        at = key, limit.rate
        found = self._shared.get(at)
        if found is None:
            found = self._shared[at] = FairBucket(limit.rate, self._window_s, now_s)
        return found

    def _sweep(self, now_s: float) -> None:
        if now_s < self._swept_s + _SWEEP_INTERVAL_S:
            return
        self._swept_s = now_s
        for at in [at for at, one in self._buckets.items() if one.is_untouched(now_s)]:
            del self._buckets[at]
        for shared in [at for at, one in self._shared.items() if one.is_untouched(now_s)]:
            del self._shared[shared]
