"""What the demonstration measured, as values, as JSON and as the page it ends with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ops.demo.check import Verdict


@dataclass(frozen=True, kw_only=True)
class Report:
    """Measured results of one run. Times are seconds, sizes bytes."""

    verdict: Verdict
    source: str
    members: int
    size: int
    publish_s: float
    total_s: float
    """The whole run, from the start of the cluster to the verdict."""
    killed_bookie: str
    killed_broker: int
    led_by_killed: tuple[int, ...]
    """Partitions that the killed broker led."""
    gaps_s: tuple[float, ...]
    """Longest time between two acknowledgements of each partition, from the kill on."""
    failures: tuple[str, ...]
    """Why records were not acknowledged, if any were not."""

    @property
    def without_service_s(self) -> float:
        """Longest gap among the partitions whose broker was killed."""
        return max((self.gaps_s[p] for p in self.led_by_killed), default=0.0)

    @property
    def other_gap_s(self) -> float:
        """Longest gap among the partitions whose broker stayed."""
        others = set(range(len(self.gaps_s))) - set(self.led_by_killed)
        return max((self.gaps_s[p] for p in sorted(others)), default=0.0)

    @property
    def bytes_per_s(self) -> float:
        """Published and acknowledged bytes of values per second, kills included."""
        return self.size / self.publish_s if self.publish_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return everything as one JSON object."""
        return asdict(self) | {
            "good": self.verdict.good,
            "without_service_s": self.without_service_s,
            "bytes_per_s": self.bytes_per_s,
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (name, figure, meaning) rows of the closing page."""
        v = self.verdict
        killed = len(self.led_by_killed)
        return [
            ("published", f"{v.published:,}", f"lines of {v.files:,} files, {self._megabytes()}"),
            ("acknowledged", f"{v.acknowledged:,}", "stored on the ack quorum of bookies"),
            ("received", f"{v.received:,}", f"by {self.members} subscribers of one group"),
            ("lost", f"{v.lost:,}", "acknowledged, but never received"),
            ("duplicated", f"{v.duplicated:,}", "more than once in the log"),
            ("out of order", f"{v.out_of_order:,}", "behind a later line of the same file"),
            ("misplaced", f"{v.misplaced:,}", "not at the offset that was acknowledged"),
            ("changed", f"{v.foreign:,}", "other bytes than were published"),
            (
                "identical files",
                f"{v.files_identical:,} of {v.files:,}",
                "put together again, byte for byte",
            ),
            ("redelivered", f"{v.redelivered:,}", "handed out again by a rebalance; no fault"),
            (
                "without service",
                f"{self.without_service_s:.2f} s",
                f"longest pause of the {killed} that lost their broker",
            ),
            (
                "elsewhere",
                f"{self.other_gap_s:.2f} s",
                f"longest pause of the other {len(self.gaps_s) - killed} partitions",
            ),
            (
                "speed",
                f"{self.bytes_per_s / 1e6:.1f} MB/s",
                f"{v.acknowledged / self.publish_s:,.0f} records/s, kills included"
                if self.publish_s
                else "nothing was published",
            ),
        ]

    def conclusion(self) -> str:
        """Return the result in one sentence."""
        if self.verdict.good:
            return (
                f"All {self.verdict.published:,} records arrived exactly once in the log and in"
                f" order, although bookie {self.killed_bookie} and broker {self.killed_broker}"
                f" were killed. It took {self.total_s:.0f} s."
            )
        parts = [f"{name} {figure}" for name, figure, _ in self.rows()[:9]]
        text = f"This is NOT right: {', '.join(parts)}."
        if self.verdict.files_different:
            text += f" Different: {', '.join(self.verdict.files_different)}."
        if self.failures:
            text += f" First failure: {self.failures[0]}."
        return text

    def _megabytes(self) -> str:
        return f"{self.size / 1e6:.1f} MB"
