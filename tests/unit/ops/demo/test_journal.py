"""What a member writes down is what the judge reads, also when the member was killed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ops.demo import journal
from ops.demo.journal import Received

_RECORDS = st.builds(
    Received,
    partition=st.integers(0, 2**32 - 1),
    offset=st.integers(0, 2**63 - 1),
    line=st.integers(0, 2**32 - 1),
    name=st.text(max_size=20),
    value=st.binary(max_size=50),
)


def _pack(entry: Received | None) -> bytes:
    if entry is None:
        return journal.ASSIGNED
    return journal.pack(entry.partition, entry.offset, entry.line, entry.name.encode(), entry.value)


@given(st.lists(st.none() | _RECORDS, max_size=5))
def test_reads_what_was_written(entries: list[Received | None]) -> None:
    assert list(journal.unpack(b"".join(map(_pack, entries)))) == entries


def test_ignores_an_entry_that_was_cut_off() -> None:
    whole = _pack(Received(1, 2, 3, "a.py", b"x\n"))
    for cut in range(1, len(whole)):
        assert list(journal.unpack(whole + whole[:cut])) == [Received(1, 2, 3, "a.py", b"x\n")]
