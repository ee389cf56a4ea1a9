"""What the settings of a share group mean for the records that are lent to its members.

Which settings there are, and what they may be, is in `broker/groups/core/group_settings.py`; a
group without a setting has the broker's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.errors import InvalidTopicConfig
from broker.partition.core.shares.share_partition import ShareTerms

RESET: Final = "share.auto.offset.reset"
DELIVERIES: Final = "share.delivery.count.limit"
ISOLATION: Final = "share.isolation.level"
LOCKS: Final = "share.partition.max.record.locks"
LOCK_MS: Final = "share.record.lock.duration.ms"
RENEW: Final = "share.renew.acknowledge.enable"
ORDER: Final = "share.order"
DELAY_MS: Final = "share.release.delay.ms"
DELAY_MAX_MS: Final = "share.release.delay.max.ms"
LETTERS: Final = "errors.deadletterqueue.topic.name"
COPIES: Final = "errors.deadletterqueue.copy.record.enable"
_OF_RECORDS: Final = (RESET, DELIVERIES, ISOLATION, LOCKS, LOCK_MS, RENEW, ORDER)
NAMES: Final = frozenset((*_OF_RECORDS, DELAY_MS, DELAY_MAX_MS, LETTERS, COPIES))

_LATEST: Final = "latest"
_EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"(?i:P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?)"
)
_SECONDS: Final = (86_400, 3_600, 60, 1)


class Reset(NamedTuple):
    """Where a group begins."""

    is_latest: bool
    seconds_before: int | None = None
    """By time; None: at the end, or at the beginning."""


class ShareSettings(NamedTuple):
    """The settings of a group, taken apart."""

    terms: ShareTerms
    reset: Reset
    read_committed: bool
    may_renew: bool
    letters_topic: str = ""
    """Where dead letters go; empty: there are none."""
    copies_records: bool = False
    """Whether they have the record's key, value and headers."""


def defaults(lock_ms: int, deliveries: int, locks: int) -> dict[str, str]:
    """Return what a group has that was set nothing; the numbers are the broker's."""
    return {
        RESET: _LATEST,
        DELIVERIES: str(deliveries),
        ISOLATION: "read_uncommitted",
        LOCKS: str(locks),
        LOCK_MS: str(lock_ms),
        RENEW: "true",
        ORDER: "none",
        DELAY_MS: "0",
        DELAY_MAX_MS: "60000",
        LETTERS: "",
        COPIES: "false",
    }


def parse(values: Mapping[str, str]) -> ShareSettings:
    """Take a group's settings apart; all of them are there. Raises InvalidTopicConfig, ValueError:
    another release has stored them."""
    terms = ShareTerms(
        int(values[LOCK_MS]) / 1000,
        int(values[DELIVERIES]),
        int(values[LOCKS]),
        bool(values[LETTERS]),
        values[ORDER] == "key",
        int(values[DELAY_MS]),
        int(values[DELAY_MAX_MS]),
    )
    return ShareSettings(
        terms,
        _reset(values[RESET]),
        values[ISOLATION] == "read_committed",
        values[RENEW] == "true",
        values[LETTERS],
        values[COPIES] == "true",
    )


def without_letters(settings: ShareSettings) -> ShareSettings:
    """Return the settings without what a log cannot say yet: dead letters, and records that wait.
    Not all brokers of the cluster could read it."""
    terms = settings.terms._replace(has_dead_letters=False, retry_ms=0)
    return settings._replace(terms=terms)


def _reset(value: str) -> Reset:
    if value in (_LATEST, _EARLIEST):
        return Reset(value == _LATEST)
    found = _DURATION.fullmatch(value.removeprefix(_BY_DURATION))
    if not value.startswith(_BY_DURATION) or found is None:
        raise InvalidTopicConfig(f"{RESET} is {value[:100]!r}")
    parts = zip(found.groups(), _SECONDS, strict=True)
    return Reset(False, sum(int(number or 0) * seconds for number, seconds in parts))
