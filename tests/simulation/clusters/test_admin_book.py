"""The judge of operators: which changes of the store it lets pass, and which it does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from client.metadata import paths
from tests.simulation.clusters import admin_requests as ask
from tests.simulation.clusters.admin_book import NEVER, AdminBook, Change

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME: Final = "a0"
_PATH: Final = f"{paths.TOPICS}/{_NAME}"
_LOST: Final = 7
"""A code that leaves the outcome open."""


class Clock:
    """A loop of which only the time matters."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.later: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now_s

    def kernel_at(self, _when_s: float, call: Callable[[], None]) -> None:
        """Call it when the present transaction is over."""
        self.later.append(call)


class Judged:
    """A book, and what it found."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.found: list[str] = []
        self.number = 0
        self.book = AdminBook(
            self.clock,  # type: ignore[arg-type]
            lambda rule, _text: self.found.append(rule),
            lambda _what: None,
            (_NAME,),
        )

    def passes(self) -> list[str]:
        """Let time go by; return what was found."""
        self.clock.now_s += 1.0
        later, self.clock.later = self.clock.later, []
        for call in later:
            call()
        found, self.found = self.found, []
        return found

    def begin(self, request: ask.Request) -> Change:
        """Ask for a change."""
        self.book.begin(request.change)
        return request.change

    def delete(self, topic_id: str) -> Change:
        """Ask for the end of a topic."""
        change = Change(f"delete {topic_id}", doomed_id=topic_id)
        self.book.begin(change)
        return change

    def done(self, change: Change, code: int = 0) -> list[str]:
        """Answer a request; return what was found so far."""
        self.book.answered(change, code)
        return self.passes()

    def set(self, topic_id: str, partitions: int = 1, **configs: str) -> None:
        """Let the store hold a topic."""
        node = {
            "version": 1, "topic_id": topic_id, "partition_count": partitions,
            "configs": {name.replace("_", "."): value for name, value in configs.items()},
        }  # fmt: skip
        self.book.node_changed(_PATH, json.dumps(node).encode())

    def make(self, topic_id: str) -> Change:
        """Make a topic as an operator asks for it, and let it be answered."""
        self.number += 1
        change = self.begin(ask.create(_NAME, self.number, 1, 3, {}))
        self.set(topic_id, retention_ms=self.mark(change))
        self.book.answered(change, 0)
        return change

    def mark(self, change: Change) -> str:
        """Return what tells the topic of a request."""
        return str(change.wants[_PATH, ask.MARK])

    def bury(self, topic_id: str) -> None:
        """Let a topic have a tombstone."""
        self.book.node_changed(f"{paths.DELETED}/{topic_id}", _NAME.encode())

    def remove(self) -> None:
        """Let the node of the topic go."""
        self.book.node_changed(_PATH, None)

    def rights(self, *who: str) -> None:
        """Let the store hold entries about the topic."""
        rows = [[one, "*", "READ", "ALLOW"] for one in who]
        self.book.node_changed(ask.acl_path(_NAME), json.dumps({"acls": rows}).encode())


def test_what_was_asked_for_and_answered_is_right() -> None:
    judged = Judged()
    judged.make("first")
    change = judged.begin(ask.grow(_NAME, 2))
    judged.set("first", 2, retention_ms=judged_mark(judged))
    assert judged.done(change) == []
    change = judged.delete("first")
    judged.remove()
    judged.bury("first")
    assert judged.done(change) == []
    judged.make("second")
    assert judged.passes() == []


def judged_mark(judged: Judged) -> str:
    """Return what the topic that is there was told apart by."""
    return str(judged.book.nodes[_PATH][ask.MARK])


def test_a_topic_that_loses_its_id_is_found() -> None:
    judged = Judged()
    judged.make("first")
    judged.set("other", retention_ms=judged_mark(judged))
    assert judged.passes() == ["AD4"]


def test_an_id_that_comes_back_is_found() -> None:
    judged = Judged()
    judged.make("first")
    change = judged.delete("first")
    judged.bury("first")
    judged.remove()
    assert judged.done(change) == []
    judged.make("first")
    assert judged.passes() == ["AD4"]


def test_a_request_that_makes_two_topics_is_found() -> None:
    judged = Judged()
    making = judged.begin(ask.create(_NAME, 9, 1, 3, {}))
    judged.set("first", retention_ms=judged.mark(making))
    deletion = judged.delete("first")
    judged.bury("first")
    judged.remove()
    assert judged.done(deletion) == []
    judged.set("second", retention_ms=judged.mark(making))
    assert judged.passes() == ["AD4"]


def test_a_late_deletion_of_the_topic_before_is_found() -> None:
    judged = Judged()
    judged.make("first")
    change = judged.delete("first")
    judged.bury("first")
    judged.remove()
    assert judged.done(change) == []
    judged.make("second")
    judged.remove()
    assert judged.passes() == ["AD5", "AD5"], "nobody wants it, and it has no tombstone"


def test_a_deletion_with_an_unknown_outcome_may_come_later() -> None:
    judged = Judged()
    judged.make("first")
    assert judged.done(judged.begin(ask.delete_name(_NAME)), _LOST) == []
    judged.bury("first")
    judged.remove()
    assert judged.passes() == []


def test_a_deletion_that_was_acknowledged_and_did_not_happen_is_found() -> None:
    judged = Judged()
    judged.make("first")
    judged.passes()
    assert judged.done(judged.begin(ask.delete_name(_NAME))) == ["AD2"]
    assert judged.done(judged.delete("first")) == ["AD2"]


def test_lists_of_a_topic_that_is_there_are_not_condemned() -> None:
    judged = Judged()
    judged.make("first")
    path = f"{paths.PARTITIONS}/first/0"
    judged.book.node_changed(path, b'{"leader_epoch":0}')
    assert judged.passes() == []
    judged.book.node_changed(path, b'{"leader_epoch":0,"deleted":true}')
    assert judged.passes() == ["AD5"]


def test_a_change_that_undoes_another_is_found() -> None:
    judged = Judged()
    judged.make("first")
    mark = judged_mark(judged)
    change = judged.begin(ask.configure_topic(_NAME, "segment.ms", 7))
    value = str(change.wants[_PATH, "configs/segment.ms"])
    judged.set("first", retention_ms=mark, segment_ms=value)
    assert judged.done(change) == []
    growing = judged.begin(ask.grow(_NAME, 2))
    judged.set("first", 2, retention_ms=mark)  # by what it read before
    assert judged.done(growing) == ["AD1"]


def test_a_change_that_is_made_twice_is_found() -> None:
    judged = Judged()
    judged.make("first")
    mark = judged_mark(judged)
    first = judged.begin(ask.configure_topic(_NAME, "segment.ms", 7))
    second = judged.begin(ask.configure_topic(_NAME, "segment.ms", 8))
    values = [str(one.wants[_PATH, "configs/segment.ms"]) for one in (first, second)]
    for value in (*values, values[0]):
        judged.set("first", retention_ms=mark, segment_ms=value)
    assert judged.passes() == ["AD1"]


def test_growth_that_was_refused_for_its_own_effect_is_found() -> None:
    judged = Judged()
    judged.make("first")
    judged.passes()
    change = judged.begin(ask.grow(_NAME, 2))
    judged.set("first", 2, retention_ms=judged_mark(judged))
    assert judged.done(change, 37) == ["AD3"]


def test_growth_that_was_refused_for_that_of_another_is_right() -> None:
    judged = Judged()
    judged.make("first")
    judged.passes()
    first, second = judged.begin(ask.grow(_NAME, 2)), judged.begin(ask.grow(_NAME, 2))
    judged.set("first", 2, retention_ms=judged_mark(judged))
    assert judged.done(second) == []
    assert judged.done(first, 37) == []


def test_a_right_that_comes_back_is_found() -> None:
    judged = Judged()
    change = judged.begin(ask.allow(_NAME, 1, is_denial=False))
    judged.rights("User:p1")
    assert judged.done(change) == []
    change = judged.begin(ask.revoke(_NAME, ask.acl_key("User:p1", "ALLOW")))
    judged.rights()
    judged.book.was_removed(change, (ask.acl_path(_NAME), ask.acl_key("User:p1", "ALLOW")))
    assert judged.done(change) == []
    other = judged.begin(ask.allow(_NAME, 2, is_denial=False))
    judged.rights("User:p1", "User:p2")
    assert judged.done(other) == ["AD1"]


def test_a_right_that_was_said_to_be_gone_and_is_not_is_found() -> None:
    judged = Judged()
    change = judged.begin(ask.allow(_NAME, 1, is_denial=False))
    judged.rights("User:p1")
    assert judged.done(change) == []
    change = judged.begin(ask.revoke(_NAME, None))
    judged.book.was_removed(change, (ask.acl_path(_NAME), ask.acl_key("User:p1", "ALLOW")))
    assert judged.done(change) == ["AD2"]


def test_what_a_newer_release_has_written_stays() -> None:
    judged = Judged()
    judged.make("first")
    mark = judged_mark(judged)
    judged.set("first", retention_ms=mark, quire_future="near")
    assert judged.passes() == []
    judged.set("first", retention_ms=mark)
    assert judged.passes() == ["AD7"]


def fetched(judged: Judged, key: Any, offset: int) -> list[str]:
    """Fetch an offset; return what was found."""
    judged.book.fetched(key, offset)
    return judged.passes()


def test_offsets_of_a_topic_that_is_there_are_not_lost() -> None:
    judged = Judged()
    judged.make("first")
    key = ("group", "first", 0)
    judged.book.committing(key, 7)
    assert fetched(judged, key, NEVER) == [] == fetched(judged, key, 7)
    judged.book.committed(key, 7, 0)
    assert fetched(judged, key, 7) == []
    assert fetched(judged, key, NEVER) == ["AD6"]
    judged.book.committing(key, NEVER)
    judged.book.committed(key, NEVER, _LOST)
    assert fetched(judged, key, 7) == [] == fetched(judged, key, NEVER)
    assert fetched(judged, key, 6) == ["AD6"]
    judged.bury("first")
    judged.passes()
    assert fetched(judged, key, 6) == [], "it goes"
