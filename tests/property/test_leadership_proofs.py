"""Proofs of leadership against a list of entries: the first that was sent later, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.partition.leading.partition_transactions import LeadershipProofs
from client.ids import Offset

if TYPE_CHECKING:
    from broker.partition.core.append_queue import Append

STEPS = st.lists(st.sampled_from(("ask", "ask", "add", "send", "confirm", "drain")), max_size=80)


class Log:
    """Entries that wait to be sent, and the moments at which those under way were."""

    def __init__(self) -> None:
        self.unsent = 0
        self.sent: list[int] = []
        self.waiting: list[tuple[int, Append]] = []
        """When they asked."""

    def proven(self, sent_at: int) -> list[Append]:
        """Return those to whom an entry is a proof that was sent then, and forget them."""
        found = [proof for asked_at, proof in self.waiting if asked_at < sent_at]
        self.waiting = [one for one in self.waiting if one[1] not in found]
        return found

    @property
    def nothing_will_do(self) -> bool:
        """Whether somebody waits to whom none of the entries that there are is a proof."""
        if not self.waiting or self.unsent:
            return False
        return all(asked_at >= sent_at for asked_at, _ in self.waiting[:1] for sent_at in self.sent)


@settings(max_examples=300)
@given(STEPS)
def test_a_proof_is_the_first_entry_that_was_sent_later(steps: list[str]) -> None:
    proofs, log = LeadershipProofs(), Log()
    for now, step in enumerate(steps):
        match step:
            case "ask":
                log.waiting.append((now, proofs.ask(Offset(0), len(log.sent))))
            case "add":
                log.unsent += 1
            case "send" if log.unsent:
                log.unsent -= 1
                log.sent.append(now)
            case "confirm" if log.sent:
                expected = log.proven(log.sent.pop(0))
                found = proofs.on_confirmed() if len(proofs) else []
                assert list(found) == expected
            case "drain":
                assert list(proofs.drain()) == [proof for _, proof in log.waiting]
                log.waiting.clear()
        assert len(proofs) == len(log.waiting)
        assert proofs.needs_entry(len(log.sent), log.unsent) == log.nothing_will_do


@given(STEPS)
def test_who_adds_an_entry_when_one_is_needed_leaves_nobody_waiting(steps: list[str]) -> None:
    proofs, sent = LeadershipProofs(), 0
    for step in steps:
        if step == "ask":
            proofs.ask(Offset(0), sent)
        elif step == "confirm" and sent:
            sent -= 1
            if len(proofs):
                proofs.on_confirmed()
        sent += proofs.needs_entry(sent, 0)
    while sent:
        sent -= 1
        if len(proofs):
            proofs.on_confirmed()
        sent += proofs.needs_entry(sent, 0)
    assert not len(proofs)
