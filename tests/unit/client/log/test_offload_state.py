"""The state of offloading in the head of a list: read back as written, refused if spoiled."""

from __future__ import annotations

from typing import Any

import pytest

from client.ids import LedgerId, Offset
from client.log.offload_state import (
    Marked,
    OffloadState,
    offload_from_json,
    offload_to_json,
)
from client.log.segment_object import ObjectName

NAME = ObjectName(Offset(1), LedgerId(2), 2**64 - 1)
STATE = OffloadState(Offset(9), Offset(5), Marked(NAME, 3), (Marked(NAME, 4),), True)


def test_it_is_read_back_as_it_was() -> None:
    assert offload_from_json(offload_to_json(STATE)) == STATE
    newer = STATE._replace(kept={"of a newer release": [1]})
    assert offload_from_json(offload_to_json(newer)) == newer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stored_until", -1), ("local_from", "1"), ("intent", [1, 2, 3]),
        ("intent", [1, 2, 2**64, 4]), ("graves", [[1, 2, 3, True]]), ("graves", [7]),
        ("graves", None),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(field: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        offload_from_json({**offload_to_json(STATE), field: value})
