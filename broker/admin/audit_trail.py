"""The last things that somebody did to the cluster, or was not allowed to do, by the log.

    what was done      request.changed (an API of Kafka), admin.done (the admin API)
    what was refused   request.denied (no right), login.refused, admin.refused

The trail listens to the log, so that there is one place that says what an event tells; none of them
has a secret. What was done and what was refused have a list each, or else whoever guesses passwords
could have the page forget who deleted a topic. Refusals that repeat themselves are one row with a
count. It is gone with the process, unlike the log. Whoever did much displaces its own entries
first: one user cannot have the page forget another one's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from client.node import logs

_CHARS_MAX: Final = 249
_DONE: Final = {"request.changed": ("api", "what"), "admin.done": ("operation", "path", "status")}
_REFUSED: Final = {
    "request.denied": ("what",),
    "login.refused": ("mechanism", "reason"),
    "admin.refused": ("reason", "method", "path"),
}
"""Event -> its fields that say what it was about."""
EVENTS: Final = (*_DONE, *_REFUSED)


class AuditTrail(logging.Handler):
    """Of one process; `start` and `close`."""

    def __init__(self, entries_max: int) -> None:
        """`entries_max`: of each list."""
        super().__init__(logging.INFO)
        self._entries_max = entries_max
        self._done: dict[str, deque[dict[str, Any]]] = {}
        """By user, the oldest first."""
        self._done_count = 0
        self._refused: OrderedDict[tuple[str, ...], dict[str, Any]] = OrderedDict()

    def start(self) -> None:
        """Begin to listen."""
        logging.getLogger().addHandler(self)

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger().removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line of the log, if it is one of those."""
        event = str(record.msg).partition(" ")[0]
        about = _DONE.get(event) or _REFUSED.get(event)
        if about is None:
            return
        fields = logs.read(record).fields
        entry = {
            "time_ms": int(record.created * 1000),
            "event": event,
            "user": _text(fields.get("user")),
            "address": _text(fields.get("peer", fields.get("from"))),
            "what": " ".join(_text(fields.get(name)) for name in about)[:_CHARS_MAX],
            "count": 1,
        }
        if event in _DONE:
            self._note_done(entry)
            return
        key = event, *(str(entry[name]) for name in ("user", "address", "what"))
        before = self._refused.pop(key, None)
        if before is not None:
            entry["count"] += before["count"]
        elif len(self._refused) >= self._entries_max:
            self._refused.popitem(last=False)
        self._refused[key] = entry

    def _note_done(self, entry: dict[str, Any]) -> None:
        """Note what was done; if that is too much, forget the oldest of who has done most."""
        self._done.setdefault(str(entry["user"]), deque()).append(entry)
        self._done_count += 1
        if self._done_count > self._entries_max:
            user = max(self._done, key=lambda user: len(self._done[user]))
            self._done[user].popleft()
            self._done_count -= 1
            if not self._done[user]:
                del self._done[user]

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all of them, the newest first."""
        yield from sorted(
            (*chain.from_iterable(self._done.values()), *self._refused.values()),
            key=lambda entry: -entry["time_ms"],
        )


def _text(value: object) -> str:
    """Return a field as people read it: names are logged with quotes."""
    text = "" if value is None else str(value)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return text[:_CHARS_MAX]
