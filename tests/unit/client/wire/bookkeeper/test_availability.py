"""Lists of entries: what a bookie encodes, a client understands."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.storage.core.availability import encode_availability
from client.errors import RemoteProtocolError
from client.ids import EntryId
from client.wire.bookkeeper.availability import NOTHING, Holdings


@given(st.sets(st.integers(0, 60)))
@settings(max_examples=200)
def test_every_entry_and_no_other_is_held(ids: set[int]) -> None:
    holdings = Holdings(encode_availability([EntryId(number) for number in sorted(ids)]))
    assert {number for number in range(70) if EntryId(number) in holdings} == ids


def test_nothing_is_held_of_an_unknown_ledger() -> None:
    assert EntryId(0) not in NOTHING


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"\1" + b[1:]])
def test_a_malformed_list_is_refused(change) -> None:
    with pytest.raises(RemoteProtocolError):
        Holdings(change(encode_availability([EntryId(1)])))
