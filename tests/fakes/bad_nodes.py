"""Bytes that no node of the metadata store should hold, and any may."""

from __future__ import annotations

import json
from typing import Final

from client.metadata.store import NODE_BYTES_MAX

NO_JSON: Final = b"\xff\x00 no JSON"
NEWER_FORMAT: Final = json.dumps({"version": 99, "everything": "is different"}).encode()
HUGE: Final = b"x" * NODE_BYTES_MAX
HUGE_JSON: Final = json.dumps({"version": 99, "padding": "x" * (NODE_BYTES_MAX - 40)}).encode()
assert len(HUGE_JSON) <= NODE_BYTES_MAX

BAD_NODES: Final = (b"", NO_JSON, b"[1, 2]", b"{" * 100_000, NEWER_FORMAT, HUGE, HUGE_JSON)
"""None of them can be read as anything."""
