"""What the settings of share groups mean."""

from __future__ import annotations

import pytest

from broker.errors import InvalidTopicConfig
from broker.groups.core.group_settings import GROUP_KEYS, changed
from broker.groups.core.group_types import GroupConfig
from broker.partition.core.shares.share_partition import ShareTerms
from broker.settings.core.share_settings import (
    COPIES,
    DELAY_MAX_MS,
    DELAY_MS,
    DELIVERIES,
    ISOLATION,
    LETTERS,
    LOCK_MS,
    LOCKS,
    NAMES,
    ORDER,
    RENEW,
    RESET,
    Reset,
    defaults,
    parse,
    without_letters,
)
from broker.topics.core.config_resource import Change, Operation

DEFAULTS = defaults(30_000, 5, 2_000)


def test_what_a_group_has_that_was_set_nothing() -> None:
    settings = parse(DEFAULTS)
    assert settings.terms == ShareTerms(30.0, 5, 2_000, retry_max_ms=60_000)
    assert (settings.letters_topic, settings.copies_records) == ("", False)
    assert settings.reset == Reset(is_latest=True)
    assert (settings.read_committed, settings.may_renew) == (False, True)
    assert {name: GROUP_KEYS[name].default for name in NAMES} == DEFAULTS


def test_all_of_them() -> None:
    given = {
        RESET: "earliest", DELIVERIES: "2", ISOLATION: "read_committed", LOCKS: "100",
        LOCK_MS: "15000", RENEW: "false", ORDER: "key", DELAY_MS: "5", DELAY_MAX_MS: "70",
        LETTERS: "dlq.a", COPIES: "true",
    }  # fmt: skip
    settings = parse(given)
    assert settings.terms == ShareTerms(15.0, 2, 100, True, True, 5, 70)
    assert (settings.letters_topic, settings.copies_records) == ("dlq.a", True)
    assert settings.reset == Reset(is_latest=False)
    assert (settings.read_committed, settings.may_renew) == (True, False)
    before = without_letters(settings).terms
    assert before == ShareTerms(15.0, 2, 100, False, True, 0, 70), "what no log has to know stays"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H", 3_600), ("P1D", 86_400), ("P2DT3H4M5S", 183_845), ("PT1.5S", 1), ("PT0S", 0),
        ("pt1h", 3_600), ("P99999999999D", 99_999_999_999 * 86_400),
    ],
)  # fmt: skip
def test_a_time_to_begin_at_is_read_as_it_may_be_set(text: str, seconds: int) -> None:
    change = Change(RESET, Operation.SET, f"by_duration:{text}")
    after = changed({}, [change], GroupConfig())
    assert parse({**DEFAULTS, **after}).reset == Reset(False, seconds)


@pytest.mark.parametrize("text", ["none", "by_duration:", "by_duration:P", "PT1H"])
def test_what_another_release_has_stored(text: str) -> None:
    with pytest.raises(InvalidTopicConfig):
        parse({**DEFAULTS, RESET: text})
