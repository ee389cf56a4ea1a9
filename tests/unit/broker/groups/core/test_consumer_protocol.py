"""Topics inside a consumer's subscription, partitions inside its assignment."""

from __future__ import annotations

import struct

import pytest

from broker.groups.core.consumer_protocol import assigned_partitions, subscribed_topics


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


def assignment(*topics: tuple[str, list[int]], version: int = 0) -> bytes:
    out = struct.pack(">hi", version, len(topics))
    for name, partitions in topics:
        out += struct.pack(">h", len(name)) + name.encode()
        out += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


@pytest.mark.parametrize("version", [0, 1, 3])
@pytest.mark.parametrize("rest", [b"", b"\xff\xff\xff\xff", b"user data"])
def test_an_assignment_lists_partitions_by_topic(version: int, rest: bytes) -> None:
    blob = assignment(("a", [0, 2]), ("b", []), version=version) + rest
    assert assigned_partitions(blob) == {"a": (0, 2), "b": ()}


def test_assignments_cut_short_or_forged_are_not_guessed() -> None:
    whole = assignment(("topic", [1, 2, 3]))
    for length in range(len(whole)):
        assert assigned_partitions(whole[:length]) is None
    assert assigned_partitions(struct.pack(">hih", 0, 1, -1)) is None
    assert assigned_partitions(struct.pack(">hihci", 0, 1, 1, b"t", 1 << 30)) is None
    assert assigned_partitions(struct.pack(">hi", -1, 0)) is None
    assert assigned_partitions(assignment(("a", [0])).replace(b"a", b"\xff")) is None
