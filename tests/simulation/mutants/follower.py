"""Planted defects of reading from a broker nearby; see `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import NotLeader, OffsetOutOfRange
from broker.leadership import follower, followers
from broker.leadership.follower import Follower, sealed_end
from broker.leadership.followers import Followers
from client.ids import Offset

if TYPE_CHECKING:
    from collections.abc import Callable


def follower_says_out_of_range(patch: Any) -> None:
    """A broker that does not lead says that an offset which is not sealed is out of range."""

    def check(self: Follower, listed: Any, wanted: Any) -> None:
        try:
            original(self, listed, wanted)
        except NotLeader as error:
            raise OffsetOutOfRange(
                wanted.offset, self.log_start_offset, self.high_watermark
            ) from error

    original = patch(Follower, "_check", check)


def follower_tells_the_active_segment(patch: Any) -> None:
    """A broker that does not lead calls everything readable that it could have."""
    patch(follower, "sealed_end", lambda listed: Offset(sealed_end(listed) + 1))


def follower_lists_nothing_aborted(patch: Any) -> None:
    """Readers of committed records are not told what is aborted."""

    async def read(self: Follower, listed: Any, wanted: Any, *rest: Any, **more: Any) -> Any:
        return await original(self, listed, wanted._replace(committed=False), *rest, **more)

    original = patch(Follower, "_read", read)


def consumers_are_sent_away_for_ever(patch: Any) -> None:
    """A consumer that comes back without having got any further is sent away again, to a broker
    that does not have what it wants."""

    def preferred(self: Followers, partition: Any, consumer: Any, offset: Offset) -> Any:
        self._sent.clear()
        return original(self, partition, consumer._replace(committed=False), offset)

    original = patch(Followers, "preferred_read_replica", preferred)
    patch(followers, "redirect_offset_max", lambda listed, bytes_min: sealed_end(listed))


KIND = "nearby"
OF_TRANSACTIONS = "nearby transactions"
WORLD = "cluster"
_OF_TRANSACTIONS = ("follower-lists-nothing-aborted",)
PLANTS: dict[str, Callable[[Any], None]] = {
    name.replace("_", "-"): value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__
}


def kind_of(name: str) -> str:
    """Return which schedules can show a mistake."""
    return OF_TRANSACTIONS if name in _OF_TRANSACTIONS else KIND
