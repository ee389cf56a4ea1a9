"""Proofs of leadership: which entry is one, and for whom."""

from __future__ import annotations

import pytest

from broker.partition.leading.partition_transactions import LeadershipProofs
from client.ids import Offset

END = Offset(7)


@pytest.mark.parametrize("sent", range(4))
def test_what_was_under_way_proves_nothing(sent: int) -> None:
    proofs = LeadershipProofs()
    proof = proofs.ask(END, sent)
    for _ in range(sent):
        assert proofs.on_confirmed() == []
    assert proofs.on_confirmed() == [proof]
    assert (proof.base_offset, proof.end_offset, proof.size) == (END, END, 0)
    assert len(proofs) == 0


def test_an_entry_is_added_only_if_none_will_be_the_proof() -> None:
    proofs = LeadershipProofs()
    assert not proofs.needs_entry(0, 0), "nobody waits"
    proofs.ask(END, 2)
    assert proofs.needs_entry(2, 0)
    assert not proofs.needs_entry(2, 1), "one that is not sent yet"
    assert not proofs.needs_entry(3, 0), "it is under way"


def test_those_who_ask_meanwhile_share_the_next_one() -> None:
    proofs = LeadershipProofs()
    first = proofs.ask(END, 0)
    assert proofs.needs_entry(0, 0)
    others = [proofs.ask(END, 1), proofs.ask(END, 1)]
    assert not proofs.needs_entry(1, 0), "first things first"
    assert proofs.on_confirmed() == [first]
    assert proofs.needs_entry(0, 0)
    assert proofs.on_confirmed() == others
    assert not proofs.needs_entry(0, 0)


def test_the_end_tells_everybody() -> None:
    proofs = LeadershipProofs()
    asked = [proofs.ask(END, count) for count in range(3)]
    assert proofs.drain() == asked
    assert len(proofs) == 0
