"""Topics inside a consumer's subscription."""

from __future__ import annotations

import pytest

from broker.core.consumer_protocol import subscribed_topics


def test_version_0() -> None:
    blob = b"\0\0\0\0\0\2\0\1b\0\2aa\xff\xff\xff\xff"
    assert subscribed_topics(blob) == ("aa", "b")


def test_what_follows_is_not_looked_at() -> None:
    assert subscribed_topics(b"\0\3\0\0\0\1\0\1aanything") == ("a",)


def test_no_topics() -> None:
    assert subscribed_topics(b"\0\0\0\0\0\0") == ()


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\0\0\0",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\2\0\1a",
        b"\0\0\0\0\0\1\0\5a",
        b"\0\0\0\0\0\1\xff\xffa",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0\x7f\xff\xff\xff\0\1a",
    ],
)
def test_other_bytes_are_unknown(blob: bytes) -> None:
    assert subscribed_topics(blob) is None
