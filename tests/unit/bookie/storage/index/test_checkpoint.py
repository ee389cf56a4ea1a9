"""The checkpoint file: round trip, and refusal when a byte is wrong."""

from __future__ import annotations

import pytest

from bookie.errors import LogIncomplete
from bookie.storage.core.append_log import FIRST_COPY, LogPosition
from bookie.storage.index.indexer import Checkpoint, Damage, LogFile, decode_checkpoint

FILES = (LogFile(1, 5000), LogFile(FIRST_COPY, 7), LogFile(3, 0))
CHECKPOINT = Checkpoint(2**64 - 1, LogPosition(3, 4096), 17, FILES, (Damage(1, 64, 128),))


def test_round_trip() -> None:
    assert decode_checkpoint(CHECKPOINT.encode()) == CHECKPOINT
    plain = Checkpoint(0, LogPosition(1, 64), 1, ())
    assert decode_checkpoint(plain.encode()) == plain


def test_order_and_newest() -> None:
    assert CHECKPOINT.numbers == [1, FIRST_COPY, 3]
    assert CHECKPOINT.newest == 3
    assert CHECKPOINT._replace(files=()).newest == 0


def test_any_flipped_bit_is_found() -> None:
    data = CHECKPOINT.encode()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(LogIncomplete):
            decode_checkpoint(bytes(damaged))


def test_truncation_and_other_versions_are_refused(monkeypatch) -> None:
    with pytest.raises(LogIncomplete):
        decode_checkpoint(b"")
    with pytest.raises(LogIncomplete):
        decode_checkpoint(CHECKPOINT.encode()[:-1])
    monkeypatch.setattr("bookie.storage.index.indexer._VERSION", 2)
    newer = CHECKPOINT.encode()
    monkeypatch.undo()
    with pytest.raises(LogIncomplete, match="version 2"):
        decode_checkpoint(newer)
