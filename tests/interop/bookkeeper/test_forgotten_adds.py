"""Apache's client stops writing by its own fault: shown on Apache's bookies alone.

This is why `Peer.java` may append an entry beyond its window (see `stalls.py`). When a later
version of the client passes all attempts without a stop, that goes, and this test with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.bookkeeper.cluster import BookieTree
from tests.interop.bookkeeper.peer import Peer, PeerSilent
from tests.interop.bookkeeper.stalls import explain

_ATTEMPTS = 20
"""The defect is a race; an attempt shows it about every other time."""

_SILENT_S = 12.0
_HOLD_MS = 4000


@pytest.mark.interop_long
def test_acknowledged_adds_are_forgotten_until_another_is_acknowledged(
    plant: Callable[..., BookieTree], peer: Peer
) -> None:
    tree = plant("/forgotten", java=4)
    for _ in range(_ATTEMPTS):
        pending = attempt(tree, peer)
        if pending is not None:
            break
        tree.revive()
    assert pending is not None, "Apache's client no longer forgets: `stalls.py` may go"
    assert pending["changingEnsemble"] == "false"
    assert all(add["completed"] and not add["requests"] for add in pending["adds"])
    assert all(len(add["acked"]) >= 2 for add in pending["adds"])


def attempt(tree: BookieTree, peer: Peer) -> dict[str, Any] | None:
    """Bring a handle to forget an add; return what was pending, None if it went well."""
    root = tree.root
    # One add a second: each waits that long between taking the ensemble and joining the queue.
    made = peer.call("create", root, e=3, qw=3, qa=2, conf={"throttle": "1"})
    handle = made["handle"]
    last = peer.call("pending", root, handle=handle)["ensembles"].rstrip("}]").split(", ")[-1]
    (victim,) = (node for node in tree.java if node.bookie_id == last)
    peer.call("append", root, handle=handle, count=2)
    victim.kill()
    # Finds the bookie gone and changes the ensemble. Its callback keeps the thread busy that
    # handles answers, as slow callbacks do.
    slow = peer.start("append", root, handle=handle, count=1, hold_ms=_HOLD_MS)
    time.sleep(0.1)
    # Takes the ensemble before the change and is sent after it, also to the bookie that is gone.
    late = peer.start("append", root, handle=handle, count=1)
    slow.result()
    try:
        late.result(_SILENT_S)
    except PeerSilent:
        pending = peer.call("pending", root, handle=handle)
        assert f"{victim.name}, killed" in explain(made["ledger"], handle, peer, tree)
        peer.call("append", root, handle=handle, count=1)
        late.result()  # which it could have had all along
        return pending
    return None
