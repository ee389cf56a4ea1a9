"""What one schedule is like: every option drawn from its seed, printed with every failure.

Uniform mixes hide bugs, so each schedule draws its own: which fault classes exist at all, how
often they strike, how the network and the disks behave, how many of everything there are, how
small the batches, windows and timeouts. Half of the options keep a tame value in most schedules,
so that the wild ones stand out, and what costs much time exists in a few schedules only.

Ledger schedules are of one of four kinds (`KINDS` has their shares, `kind_of` says which a seed is
of). Races are small and short, without broken disks, on a network whose delays have heavy tails:
they find what depends on who comes first; some are streams of adds whose ensemble changes in the
middle, because a bookie dies, or because it turns read-only and answers late what it took before.
Wrecks are calm between the machines, while their disks go through everything, with small files,
caches and checkpoints, and with many eyes. In a brimful schedule disks are full just when a
recovery writes entries again, and the index is late. Mixed ones have options from everywhere.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tests.simulation.bookies.fair_share import SHARES
from tests.simulation.machine.net import NetOptions
from tests.simulation.machine.store import LagOptions, StoreOptions

FAULTS = (
    "kill bookie",
    "kill client",
    "pause bookie",
    "pause client",
    "power loss of a bookie",
    "power loss of all bookies",
    "power loss of everything",
    "cut two-way",
    "cut one-way",
    "isolate",
    "cut from store",
    "heal",
    "reset connections",
    "slow disk",
    "full disk",
    "failed sync",
    "power loss in a step",
    "kill in a step",
    "lost index",
    "flipped reads",
    "rotten byte",
    "lost disk",
    "expire session",
    "lagging store",
    "clock jump",
)
"""Every class of fault that `faults.py` knows how to make."""


RACE_FAULTS = (
    "kill bookie",
    "kill client",
    "pause bookie",
    "pause client",
    "power loss of all bookies",
    "cut two-way",
    "cut one-way",
    "reset connections",
    "slow disk",
    "expire session",
    "lagging store",
)


DISK_FAULTS = (
    "kill bookie",
    "power loss of a bookie",
    "power loss of all bookies",
    "slow disk",
    "full disk",
    "failed sync",
    "power loss in a step",
    "kill in a step",
    "lost index",
    "flipped reads",
    "rotten byte",
    "lost disk",
    "expire session",
    "clock jump",
)


INDEX_FAULTS = (
    "full disk",
    "failed table",
    "failed index call",
    "power loss of a bookie",
    "power loss of all bookies",
    "power loss in a step",
    "kill bookie",
)
"""Of schedules whose index has the worst of it; the second and the third exist there only."""


BRIMFUL_FAULTS = ("full disk", "slow disk", "kill client")


LEAVING_FAULTS = ("read-only bookie", "kill client")
"""Of streams that lose a bookie which still answers: its answers come late, and are true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskOptions:
    """How disks behave in one schedule."""

    write_s: float = 0.00005
    sync_s: float = 0.001
    index_s: float = 0.00005
    """Mean time of a change of the index."""
    read_s: float = 0.0001
    tail_p: float = 0.0
    tail_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieOptions:
    """Limits of the bookies in one schedule; see `bookie.config`."""

    requests_in_flight_max: int = 10_000
    weak_adds_max: int = 0
    """One bookie is weak: it refuses more than so many adds at a time, and its disk is slow. So
    its answers to what it took come when its writer has replaced it already. 0: none."""
    pending_bytes_max: int = 32 << 20
    group_bytes_max: int = 2 << 20
    cache_bytes_max: int = 64 << 20
    log_file_bytes_max: int = 64 << 10
    log_preallocate_bytes: int = 0
    disk_full_retry_ms: int = 1000
    checkpoint_bytes: int = 128 << 20
    checkpoint_interval_ms: int = 60_000
    index_gather_ms: int = 10
    index_write_buffer_bytes: int = 1 << 20
    """How much LevelDB has in its log before it begins another one."""
    directories: int = 1
    gc_wait_ms: int = 600_000
    gc_overreplicated_wait_ms: int = 86_400_000
    compaction_interval_ms: int = 3_600_000
    disk_check_interval_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSwarm:
    """Options of one ledger schedule."""

    seed: int
    kind: str = "mixed"
    bookies: int
    quorums: tuple[int, int, int]
    """(E, Qw, Qa)"""
    writers: int
    recoverers: int
    readers: int
    adds: int
    """How many adds each writer tries."""
    adds_per_ledger: int
    """After how many it goes on in another ledger."""
    payload_bytes: int
    in_flight: int
    """How many adds a writer keeps in flight."""
    deletes_p: float
    """Probability that who recovered a ledger deletes it."""
    looks: int
    """How often in a fault phase a recoverer or reader takes up a ledger, on average."""
    recovery_window: int
    """How many entries a recovery reads ahead of what it has written back."""
    think_s: float
    """Mean pause of a writer between bursts."""
    little_writers: int = 0
    """So many of the writers add little: one entry at a time, of `LITTLE_BYTES`."""
    pace_s: float = 0.0
    """Pause of a writer after each add, so that those in flight are not one group."""
    fault_phase_s: float
    fault_every_s: float
    """Mean time between faults; 0 for a schedule without faults."""
    ambush_p: float
    """Probability that a fault strikes right at a moment when it hurts most."""
    doubt_p: float = 0.0
    """Probability that spare bookies leave when the answer to a change of a ledger is lost."""
    fill_p: float = 0.0
    """Probability that the disk of a bookie is full when a recovery's add reaches it."""
    inspected: bool = True
    """Whether every bookie is asked, at the end, for all that it has promised."""
    faults: dict[str, int] = field(default_factory=dict)
    """Weight of each class that exists in this schedule."""
    request_timeout_s: float
    client: dict[str, Any] = field(default_factory=dict)
    """Settings of the ledger clients that differ from their defaults."""
    net: NetOptions
    disk: DiskOptions
    bookie: BookieOptions
    store: StoreOptions
    step_cost_s: float
    self_checks: bool
    """Whether cores check their own invariants after every input."""
    hostile: bool

    def describe(self) -> str:
        """Return the options, one per line."""
        return "\n".join(f"  {f.name} = {getattr(self, f.name)}" for f in fields(self))


KINDS = {"race": 78, "wreck": 10, "mixed": 9, "brimful": 3}
"""Shares of the kinds of ledger schedules, in percent."""
DOUBT_SHARE = 0.06
"""So many of the races are about changes with an unknown outcome, and are a kind of their own."""
_SMALL_QUORUMS = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (2, 2, 2), (4, 3, 2), (2, 2, 1))
_QUORUMS = (
    (3, 3, 2),
    (3, 3, 2),
    (3, 2, 2),
    (3, 3, 3),
    (2, 2, 2),
    (4, 3, 2),
    (3, 3, 1),
    (2, 2, 1),
    (3, 2, 1),
    (5, 3, 2),
    (1, 1, 1),
)


def kind_of(seed: int) -> str:
    """Return which kind of ledger schedule a seed stands for."""
    drawn = random.Random(f"ledger kind {seed}").choices(list(KINDS), list(KINDS.values()))
    if drawn[0] == "race" and random.Random(f"doubt {seed}").random() < DOUBT_SHARE:
        return "doubt"
    return drawn[0]


def draw(seed: int) -> LedgerSwarm:
    """Draw the options of a ledger schedule."""
    rng = random.Random(f"ledger swarm {seed}")
    drawn, kind = draw_any(seed, rng), kind_of(seed)
    as_kind = {
        "race": _as_race_or_stream,
        "wreck": _as_wreck,
        "brimful": _as_brimful,
        "doubt": _as_doubt,
    }.get(kind)
    if as_kind is not None:
        drawn = replace(as_kind(drawn, rng), kind=kind)
    drawn = _with_groups(drawn, random.Random(f"groups {seed}"))
    return _with_index(drawn, random.Random(f"index {seed}"))


def _with_groups(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Draw how much goes into a group: where many adds are in flight, mostly not all of them."""
    if drawn.in_flight < _CROWD:
        return drawn
    entry_bytes = drawn.payload_bytes + _ENVELOPE_BYTES
    size = rng.choice((2 << 20, SHARES * entry_bytes, SHARES * entry_bytes, entry_bytes))
    drawn = replace(drawn, bookie=replace(drawn.bookie, group_bytes_max=size))
    if drawn.kind != "mixed" or size != SHARES * entry_bytes:
        return drawn
    crowd = replace(drawn, writers=3, think_s=0.002, disk=replace(drawn.disk, sync_s=0.01))
    if rng.random() < 0.5:
        # Somebody begins to add while others have more in line than two groups take.
        return replace(crowd, adds=60, adds_per_ledger=rng.choice((10, 40)))
    # Somebody adds little beside others all the time, so that groups are small for all.
    entry_bytes = _MUCH_BYTES + _ENVELOPE_BYTES
    return replace(
        crowd,
        little_writers=1,
        in_flight=2 * _CROWD,
        adds=300,
        adds_per_ledger=400,
        payload_bytes=_MUCH_BYTES,
        bookie=replace(drawn.bookie, group_bytes_max=SHARES * entry_bytes),
    )


def _with_index(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Draw how soon LevelDB begins another log. In a part of the wrecks the index has the worst."""
    if drawn.kind == "race" or (drawn.kind == "mixed" and rng.random() < 0.5):
        return drawn
    size = rng.choice((100, 500, 2000, 20_000))
    drawn = replace(drawn, bookie=replace(drawn.bookie, index_write_buffer_bytes=size))
    if drawn.kind != "wreck" or rng.random() < 0.6:
        return drawn
    faults = {name: rng.choice((1, 3, 10)) for name in INDEX_FAULTS if rng.random() < 0.7}
    return replace(
        drawn,
        faults=faults or {"failed table": 1},
        adds=24,
        payload_bytes=16,
        fault_phase_s=1.0,
        fault_every_s=rng.choice((0.02, 0.05, 0.1)),
        bookie=replace(
            drawn.bookie,
            cache_bytes_max=0,
            checkpoint_bytes=rng.choice((1024, 1024, 5000)),
            disk_full_retry_ms=rng.choice((50, 400)),
            gc_wait_ms=50,
            compaction_interval_ms=100,
        ),
    )


_CROWD = 30
"""Adds in flight of which not all have to go into one group."""
LITTLE_BYTES = 16
_MUCH_BYTES = 1_000
_ENVELOPE_BYTES = 100
"""More than an entry has in front of its payload."""


def _as_race_or_stream(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    race = _as_race(drawn, rng)
    if rng.random() >= 0.15:
        return race
    stream = _as_stream(race, rng)
    own = random.Random(f"leaving {drawn.seed}")
    return _as_leaving(stream, own) if own.random() < 0.4 else stream


def _as_leaving(stream: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Replace a bookie that has still to answer for what it took before."""
    quorums = rng.choice(((3, 3, 3), (2, 2, 2), (3, 3, 2)))
    return replace(
        stream,
        bookies=quorums[0] + rng.choice((1, 2)),
        quorums=quorums,
        adds=60,
        ambush_p=0.0,
        fault_phase_s=0.1,
        fault_every_s=rng.choice((0.01, 0.02)),
        faults=dict(zip(LEAVING_FAULTS, (12, 1), strict=True)),
        request_timeout_s=1.0,
        disk=replace(stream.disk, sync_s=0.005),
    )


def _as_stream(race: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Confirm nothing that later adds could tell of, and lose a bookie in the middle."""
    quorums = rng.choice(((3, 2, 2), (3, 3, 3), (2, 2, 2), (3, 3, 2)))
    return replace(
        race,
        bookies=quorums[0] + 1,
        quorums=quorums,
        adds=rng.choice((6, 12)),
        in_flight=30,
        pace_s=rng.choice((0.0003, 0.001)),
        ambush_p=rng.choice((0.03, 0.1)),
        faults={"kill bookie": 3, "reset connections": 1, "kill client": 1},
        client={**race.client, "explicit_lac_interval_ms": 0},
        disk=replace(race.disk, sync_s=rng.choice((0.001, 0.005))),
    )


def _as_doubt(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    """Lose the answers to changes of the ensemble, with servers that do not show what came of it,
    and with nobody left at the next attempt."""
    quorums = rng.choice(((3, 3, 2), (3, 3, 2), (4, 3, 2), (3, 2, 1)))
    race = _as_race(drawn, rng)
    return replace(
        race,
        bookies=quorums[0] + 1,
        quorums=quorums,
        adds=rng.choice((100, 200)),
        adds_per_ledger=rng.choice((20, 1000)),
        in_flight=rng.choice((3, 10)),
        pace_s=rng.choice((0.003, 0.01)),
        deletes_p=0.0,
        looks=1,
        ambush_p=0.0,
        doubt_p=0.7,
        fault_phase_s=1.5,
        fault_every_s=rng.choice((0.1, 0.3)),
        faults={"kill bookie": 3, "pause bookie": 3, "cut two-way": 1},
        bookie=replace(
            race.bookie,
            gc_wait_ms=rng.choice((50, 200, 600_000)),
            gc_overreplicated_wait_ms=100,
        ),
        client={
            **race.client,
            "delay_ensemble_change": False,
            "ensemble_changes_max": 0,
            "metadata_retry_delay_ms": rng.choice((100, 300)),
        },
        store=replace(
            drawn.store,
            session_timeout_s=2.0,
            lose_reply_p=rng.choice((0.05, 0.15)),
            lag=LagOptions(
                lag_s=0.02,
                lag_p=0.2,
                behind_p=0.9,
                behind_s=rng.choice((0.3, 1.0)),
                late_p=rng.choice((0.05, 0.2)),
                late_s=rng.choice((0.3, 1.0)),
                away_s=0.02,
            ),
        ),
    )


def _as_race(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    ensemble_size = drawn.quorums[0]
    calm = rng.random() < 0.2
    housekeeps = rng.random() < 0.2
    return replace(
        drawn,
        bookies=max(3, ensemble_size + rng.choice((0, 1))),
        writers=1,
        recoverers=rng.choice((1, 1, 2)),
        readers=rng.choice((0, 0, 1)),
        adds=rng.choice((3, 6, 12)),
        payload_bytes=rng.choice((0, 16, 100)),
        in_flight=rng.choice((1, 3, 10)),
        think_s=rng.choice((0.0, 0.002, 0.02)),
        fault_phase_s=rng.choice((0.05, 0.1, 0.3)),
        fault_every_s=0.0 if calm else rng.choice((0.02, 0.05)),
        ambush_p=0.0 if calm else rng.choice((0.0, 0.01, 0.05, 0.2)),
        inspected=rng.random() < 0.25,
        faults={name: rng.choice((1, 3)) for name in RACE_FAULTS if rng.random() < 0.4},
        request_timeout_s=rng.choice((0.05, 0.2, 1.0)),
        net=replace(
            drawn.net,
            tail_p=rng.choice((0.0, 0.05, 0.2, 0.4)),
            slow_p=rng.choice((0.0, 0.1, 0.4)),
            window_bytes=65_536,
        ),
        bookie=drawn.bookie if housekeeps else replace(drawn.bookie, **_NO_HOUSEKEEPING),
    )


_NO_HOUSEKEEPING: dict[str, int] = {
    "checkpoint_interval_ms": 60_000,
    "index_gather_ms": 10,
    "gc_wait_ms": 600_000,
    "compaction_interval_ms": 3_600_000,
    "disk_check_interval_ms": 10_000,
}


def _as_wreck(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    faults = {name: rng.choice((1, 3, 10)) for name in DISK_FAULTS if rng.random() < 0.4}
    if rng.random() < 0.4:
        faults[rng.choice(("rotten byte", "full disk", "power loss in a step"))] = 30
    write_s = rng.choice((0.00005, 0.002))
    quorums = rng.choice(_SMALL_QUORUMS)
    return replace(
        drawn,
        bookies=max(3, quorums[0] + rng.choice((0, 1))),
        quorums=quorums,
        writers=rng.choice((1, 1, 2)),
        recoverers=rng.choice((1, 2)),
        readers=rng.choice((1, 2)),
        looks=rng.choice((4, 8)),
        adds=rng.choice((12, 24)),
        adds_per_ledger=rng.choice((4, 12, 1000)),
        payload_bytes=rng.choice((16, 100, 400)),
        in_flight=rng.choice((3, 10)),
        deletes_p=rng.choice((0.0, 0.2, 0.5)),
        think_s=rng.choice((0.002, 0.02)),
        fault_phase_s=rng.choice((0.4, 1.0)),
        fault_every_s=rng.choice((0.05, 0.1, 0.25)),
        faults=faults or {"power loss in a step": 1},
        request_timeout_s=rng.choice((0.1, 0.5)),
        net=replace(drawn.net, tail_p=0.0, slow_p=0.0, split_p=0.0),
        disk=replace(drawn.disk, write_s=write_s, index_s=write_s),
        bookie=replace(
            drawn.bookie,
            cache_bytes_max=rng.choice((0, 1000)),
            log_file_bytes_max=rng.choice((1024, 3000, 64 << 10)),
            checkpoint_bytes=rng.choice((1024, 5000, 128 << 20)),
            gc_wait_ms=rng.choice((50, 200)),
            gc_overreplicated_wait_ms=rng.choice((200, 86_400_000)),
            compaction_interval_ms=rng.choice((100, 3_600_000)),
            disk_check_interval_ms=200,
        ),
    )


def _as_brimful(drawn: LedgerSwarm, rng: random.Random) -> LedgerSwarm:
    return replace(
        drawn,
        bookies=3,
        quorums=rng.choice(((3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 1))),
        writers=rng.choice((1, 2)),
        recoverers=2,
        readers=2,
        looks=rng.choice((6, 12)),
        adds=rng.choice((8, 16)),
        adds_per_ledger=rng.choice((4, 12)),
        payload_bytes=rng.choice((16, 100, 400)),
        in_flight=rng.choice((3, 10)),
        deletes_p=0.0,
        think_s=rng.choice((0.002, 0.02)),
        fault_phase_s=rng.choice((0.3, 0.8)),
        fault_every_s=rng.choice((0.1, 0.3)),
        ambush_p=0.0,
        fill_p=rng.choice((0.1, 0.3)),
        store=replace(drawn.store, lose_reply_p=rng.choice((0.0, 0.1))),
        faults={name: 1 for name in BRIMFUL_FAULTS if rng.random() < 0.5},
        request_timeout_s=rng.choice((0.1, 0.5)),
        net=replace(drawn.net, tail_p=0.0, slow_p=0.0, split_p=0.0),
        disk=replace(drawn.disk, index_s=rng.choice((0.01, 0.05, 0.2))),
        bookie=replace(
            drawn.bookie,
            **_NO_HOUSEKEEPING | {"disk_check_interval_ms": 100},
            cache_bytes_max=rng.choice((0, 1000)),
            log_preallocate_bytes=0,
            disk_full_retry_ms=50,
        ),
    )


def draw_any(seed: int, rng: random.Random) -> LedgerSwarm:
    """Draw every option by itself."""
    quorums = rng.choice(_QUORUMS)
    bookies = max(quorums[0] + rng.choice((0, 1, 1, 2)), 3)
    tail_s = rng.choice((0.02, 0.1, 0.5))
    calm = rng.random() < 0.05
    return LedgerSwarm(
        seed=seed,
        bookies=bookies,
        quorums=quorums,
        writers=rng.choice((1, 1, 1, 2)),
        recoverers=rng.choice((0, 1, 1, 1, 2, 3)),
        readers=rng.choice((0, 1)),
        adds=rng.choice((5, 10, 20, 30)),
        adds_per_ledger=1000,
        payload_bytes=rng.choice((0, 16, 100, 100, 1000, 5000)),
        in_flight=rng.choice((1, 3, 10, 30)),
        deletes_p=rng.choice((0.0, 0.0, 0.2)),
        looks=3,
        recovery_window=rng.choice((1, 1, 2, 5, 30)),
        think_s=rng.choice((0.0, 0.002, 0.02, 0.1)),
        fault_phase_s=rng.choice((0.4, 1.0, 3.0)),
        fault_every_s=0.0 if calm else rng.choice((0.05, 0.15, 0.4)),
        ambush_p=0.0 if calm else rng.choice((0.0, 0.0, 0.003, 0.03)),
        faults=_draw_faults(rng),
        request_timeout_s=rng.choice((0.1, 0.5, 2.0)),
        client=_draw_client(rng),
        net=NetOptions(
            latency_s=rng.choice((0.0002, 0.001, 0.005)),
            jitter_s=rng.choice((0.0001, 0.001)),
            tail_p=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            tail_s=tail_s,
            slow_p=rng.choice((0.0, 0.0, 0.1, 0.3)),
            split_p=rng.choice((0.0, 0.05, 0.5)),
            window_bytes=rng.choice((2_000, 65_536, 262_144, 262_144)),
            give_up_s=rng.choice((1.0, 4.0)),
            hold_references=rng.random() < 0.3,
        ),
        disk=DiskOptions(
            sync_s=rng.choice((0.0002, 0.001, 0.01)),
            tail_p=rng.choice((0.0, 0.0, 0.05)),
            tail_s=tail_s,
        ),
        bookie=BookieOptions(
            requests_in_flight_max=rng.choice((40, 10_000)),
            weak_adds_max=rng.choice((2, 0, 0, 0)),
            pending_bytes_max=rng.choice((1024, 32 << 20, 32 << 20)),
            cache_bytes_max=rng.choice((0, 1000, 64 << 20)),
            log_preallocate_bytes=rng.choice((0, 2000, 20_000)),
            disk_full_retry_ms=rng.choice((50, 1000)),
            checkpoint_bytes=rng.choice((1024, 20_000, 128 << 20)),
            checkpoint_interval_ms=rng.choice((50, 500, 60_000, 60_000)),
            directories=rng.choice((1, 1, 2)),
            gc_wait_ms=rng.choice((50, 300, 600_000, 600_000, 600_000)),
            gc_overreplicated_wait_ms=rng.choice((300, 86_400_000)),
            compaction_interval_ms=rng.choice((100, 3_600_000)),
            disk_check_interval_ms=rng.choice((100, 10_000, 10_000)),
        ),
        store=StoreOptions(
            session_timeout_s=rng.choice((0.5, 2.0)),
            latency_s=rng.choice((0.0005, 0.003)),
            tail_p=rng.choice((0.0, 0.0, 0.1)),
            tail_s=tail_s,
            lose_request_p=rng.choice((0.0, 0.0, 0.02)),
            lose_reply_p=rng.choice((0.0, 0.0, 0.05)),
            lose_read_p=rng.choice((0.0, 0.0, 0.03)),
            lag=_draw_lag(random.Random(f"lag {seed}")),
        ),
        step_cost_s=rng.choice((0.000005, 0.00002, 0.0001)),
        self_checks=rng.random() < 0.25,
        hostile=rng.random() < 0.1,
    )


def _draw_lag(rng: random.Random) -> LagOptions | None:
    """Draw how servers lag; with numbers of its own, so that the other schedules stay as they were.

    Never by so much that a session could seem dead, or that nobody would see that all is calm.
    """
    if rng.random() >= _LAG_SHARE:
        return None
    return LagOptions(
        lag_s=rng.choice((0.003, 0.02, 0.1)),
        lag_p=rng.choice((0.02, 0.2, 0.6)),
        behind_p=rng.choice((0.3, 0.9)),
        behind_s=rng.choice((0.01, 0.1)),
        late_p=rng.choice((0.0, 0.02, 0.1)),
        late_s=rng.choice((0.003, 0.03, 0.2)),
        away_s=rng.choice((0.0, 0.02, 0.3)),
    )


_LAG_SHARE = 0.35
"""Share of schedules, of any kind, whose metadata servers lag by themselves."""


def _draw_faults(rng: random.Random) -> dict[str, int]:
    chosen = {name: rng.choice((1, 1, 3, 10)) for name in FAULTS if rng.random() < 0.4}
    if chosen:
        chosen.setdefault("heal", 3)
    return chosen


def _draw_client(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, tuple[Any, ...]] = {
        "wire_version": ("both", "both", "v2", "v3"),
        "delay_ensemble_change": (False, False, True),
        "add_quorum_timeout_ms": (0, 0, 300, 3000),
        "ensemble_changes_max": (0, 0, 3),
        "explicit_lac_interval_ms": (0, 0, 5, 50),
        "failed_bookie_pause_ms": (0, 100, 2000),
        "bookie_in_flight_bytes_max": (400_000, 1 << 27, 1 << 27),
        "bookie_in_flight_requests_max": (200, 50_000, 50_000),
        "quarantine_errors_max": (0, 0, 1),
        "opportunistic_striping": (False, False, True),
        "speculative_read_ms": (0, 5, 1000),
    }
    drawn = {name: rng.choice(values) for name, values in choices.items()}
    if drawn["wire_version"] == "v2":
        drawn["explicit_lac_interval_ms"] = 0
    # A narrow connection fits what one writer may have under way, and no more.
    drawn["writer_in_flight_bytes_max"] = min(drawn["bookie_in_flight_bytes_max"], 16 << 20)
    return drawn
