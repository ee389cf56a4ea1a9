"""What one whole-cluster schedule is like: every option drawn from its seed.

Network, disks, bookies and metadata store are drawn as for ledger schedules (`bookies/swarm.py`);
here is what comes on top: brokers, clients, topics, and which faults strike them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tests.simulation.bookies import swarm
from tests.simulation.bookies.swarm import BookieOptions, DiskOptions, LedgerSwarm
from tests.simulation.clusters import compacted_load, contended_load, share_load
from tests.simulation.clusters import load as cluster_load
from tests.simulation.clusters.admin_load import AdminOptions, draw_admin
from tests.simulation.clusters.compacted_load import CompactionOptions
from tests.simulation.clusters.consumer_load import ConsumerLoad, draw_consumers, has_consumers
from tests.simulation.clusters.load import LoadOptions
from tests.simulation.clusters.offload_load import OffloadOptions, draw_offload
from tests.simulation.clusters.secured_load import SecuredOptions, draw_secured
from tests.simulation.clusters.share_load import draw_shares, has_shares
from tests.simulation.clusters.transaction_load import TransactionOptions, draw_transactions

if TYPE_CHECKING:
    from tests.simulation.kafka.share_clients import ShareLoad

FAULTS = (
    *swarm.FAULTS,
    "kill broker",
    "pause broker",
    "close broker",
    "cut broker from store",
    "expire broker",
    "roll everything",
    "pause in a roll",
    "wrong guess",
)
"""Classes of `bookies/faults.py` and of `faults.py`; "client" is any host without a disk."""

_COMPRESSIONS = ("producer", "producer", "producer", "uncompressed", "gzip", "lz4", "zstd")
_OFTEN = (
    "kill broker",
    "pause broker",
    "cut broker from store",
    "expire broker",
    "pause in a roll",
    "wrong guess",
)


_FULL_P = 0.2
"""Share of schedules with faults in which bookies are full at times."""

_NEARBY_P = 0.3
"""Share of schedules, of any kind, whose consumers read nearby."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearbyOptions:
    """How consumers read from brokers that do not lead."""

    behind_bytes_min: int
    list_age_ms: int
    partitions_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSwarm:
    """Options of one whole-cluster schedule."""

    common: LedgerSwarm
    brokers: int
    partitions: int
    quorums: tuple[int, int, int]
    """(ensemble size, replication factor, min.insync.replicas)"""
    segment_bytes: int
    snapshot_interval_bytes: int
    producers: int
    batches: int
    """How many batches each producer sends to each partition before healing."""
    batch_records_max: int
    payload_bytes: int
    in_flight: int
    think_s: float
    readers: int
    members: int
    """Consumers of a group."""
    member_session_ms: int
    trims: bool
    auto_recovery: bool
    broker_session_s: float
    tail_cache_bytes: int
    page_entries: int = 256
    """Segments of a page of the segment list: so few that lists have pages, and pages of pages."""
    sweep_every_s: float = 0.0
    """How often each broker looks for orphans, ledgers and pages; 0: never."""
    compression: str = "producer"
    """`compression.type` of the topics."""
    room_bytes: int = 0
    """What a partition may hold; half of that is for its writer, and for all on a connection to a
    bookie. So small that clients wait for room all the time. 0: the defaults, which nobody meets.
    """
    load: LoadOptions | None = None
    """What overloads the cluster; None: nothing does."""
    transactions: TransactionOptions | None = None
    """The transactional clients; None: there are none."""
    compaction: CompactionOptions | None = None
    """Of the topic; None: it is not compacted."""
    nearby: NearbyOptions | None = None
    """Each broker is in a rack of its own, and consumers say in which they are; None: nobody is
    anywhere."""
    secured: SecuredOptions | None = None
    """Logins and access control entries; None: everybody may do everything."""
    admin: AdminOptions | None = None
    """Topics, settings and rights that operators change; None: there are no operators."""
    consumers: ConsumerLoad | None = None
    """The group of the consumer protocol; None: there is none."""
    offload: OffloadOptions | None = None
    """The object store; None: there is none."""
    shares: ShareLoad | None = None
    """The share groups; None: there are none."""

    def describe(self) -> str:
        """Return the options, one per line."""
        own = [f"  {f.name} = {getattr(self, f.name)}" for f in fields(self)[1:]]
        return "\n".join([*own, self.common.describe()])


def draw(seed: int) -> ClusterSwarm:
    """Draw the options of a whole-cluster schedule."""
    drawn = _draw_kind(seed)
    if kind_of(seed) != "busy":
        drawn = _with_full_bookies(drawn, random.Random(f"full {seed}"))
    rng = random.Random(f"nearby {seed}")
    if drawn.brokers == 1 or rng.random() > _NEARBY_P:
        return drawn
    return replace(
        drawn,
        readers=max(1, drawn.readers),
        segment_bytes=min(drawn.segment_bytes, 3000),
        nearby=NearbyOptions(
            behind_bytes_min=rng.choice((1, 1, 1_000, 5_000)),
            list_age_ms=rng.choice((0, 100, 1_000, 3_000)),
            partitions_max=rng.choice((1, 1_000)),
        ),
    )


def draw_offloaded(seed: int) -> ClusterSwarm:
    """Draw the options of a schedule with an object store, on top of all that happens else."""
    drawn, rng = _draw_any(seed), random.Random(f"offload {seed}")
    if rng.random() < 0.4:
        drawn = _with_transactions(drawn, rng)
    options = draw_offload(rng)
    return replace(
        drawn,
        common=replace(drawn.common, fault_phase_s=max(3.0, drawn.common.fault_phase_s)),
        segment_bytes=options.segment_bytes,
        batches=max(20, drawn.batches),
        payload_bytes=min(drawn.payload_bytes, 100),
        think_s=min(drawn.think_s, 0.05),
        readers=max(1, drawn.readers),
        sweep_every_s=drawn.sweep_every_s or 1.0,
        offload=options,
    )


def _with_full_bookies(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Let bookies be full now and then, where anything else happens, too."""
    if not drawn.common.faults or rng.random() > _FULL_P:
        return drawn
    faults = {**drawn.common.faults, "full bookies": rng.choice((3, 10))}
    return replace(drawn, common=replace(drawn.common, faults=faults))


def _draw_kind(seed: int) -> ClusterSwarm:
    drawn, kind = _draw_any(seed), kind_of(seed)
    if kind == contended_load.KIND:
        return _as_contended(drawn, random.Random(f"contended {seed}"))
    if kind == "mixed":
        secured = draw_secured(seed)
        admin = None if secured else draw_admin(seed)
        if secured is None and admin is None and has_consumers(seed):
            drawn = replace(drawn, consumers=draw_consumers(seed))
        elif secured is None and admin is None and has_shares(seed):
            phase_s = max(drawn.common.fault_phase_s, share_load.FAULT_PHASE_S)
            drawn = replace(
                drawn,
                common=replace(drawn.common, fault_phase_s=phase_s),
                shares=draw_shares(seed),
            )
        return replace(drawn, secured=secured, admin=admin)
    if kind == "compacted":
        return _as_compacted(drawn, random.Random(f"compaction {seed}"))
    if kind == "transactions":
        return _with_transactions(drawn, random.Random(f"transactions {seed}"))
    rng = random.Random(f"cluster load {seed}")
    return _as_busy(drawn, rng) if kind == "busy" else _as_crowded(drawn, rng)


def is_secured(seed: int) -> bool:
    """Whether clients of a schedule log in, and may do what entries say."""
    return draw(seed).secured is not None


def is_administered(seed: int) -> bool:
    """Whether operators change topics, settings and rights in a schedule."""
    return draw(seed).admin is not None


def is_consumed(seed: int) -> bool:
    """Whether a schedule has a group of the consumer protocol."""
    return draw(seed).consumers is not None


def is_shared(seed: int) -> bool:
    """Whether a schedule has share groups."""
    return draw(seed).shares is not None


def has_nearby(seed: int) -> bool:
    """Whether consumers of a schedule read from brokers that do not lead."""
    return draw(seed).nearby is not None


def has_full_bookies(seed: int) -> bool:
    """Whether all bookies of a schedule, or all but one, are full at times."""
    return "full bookies" in draw(seed).common.faults


def kind_of(seed: int) -> str:
    """Return which kind of cluster schedules a seed stands for."""
    kind = cluster_load.kind_of(seed)
    if compacted_load.is_compacted(seed, kind):
        return "compacted"
    if kind == "mixed" and contended_load.is_contended(seed):
        return contended_load.KIND
    return kind


def _as_contended(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Let operators contend for a few names, and leave out what has nothing to do with them."""
    common = drawn.common
    quorums = (3, 3, 2)
    return replace(
        drawn,
        common=replace(
            common,
            bookies=3,
            quorums=quorums,
            fault_phase_s=rng.choice((2.0, 4.0)),
            fault_every_s=0.2,
            ambush_p=0.0,
            faults=contended_load.draw_faults(rng),
            store=contended_load.draw_store(rng, common.store),
            disk=DiskOptions(),
            bookie=BookieOptions(),
            client={},
            self_checks=False,
            hostile=False,
        ),
        brokers=rng.choice((2, 3)),
        partitions=1,
        quorums=quorums,
        producers=1,
        batches=5,
        payload_bytes=50,
        readers=0,
        members=0,
        trims=False,
        auto_recovery=False,
        sweep_every_s=0.0,
        compression="producer",
        room_bytes=0,
        admin=contended_load.draw_contended(rng),
    )


def _as_compacted(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Compact its topic, on top of all that happens to it."""
    faults = {**drawn.common.faults, **compacted_load.FAULTS}
    if rng.random() < 0.7:
        faults.pop("clock jump", None)  # with it, nobody can tell when what may go
    options = compacted_load.draw_compaction(rng)
    compacted = replace(
        drawn,
        common=replace(
            drawn.common, faults=faults, fault_phase_s=max(2.0, drawn.common.fault_phase_s)
        ),
        segment_bytes=options.segment_bytes,
        batches=max(20, drawn.batches),
        batch_records_max=rng.choice((1, 3)),
        payload_bytes=min(drawn.payload_bytes, 50),
        think_s=min(drawn.think_s, 0.05),
        readers=max(1, drawn.readers),
        trims=rng.random() < 0.15,
        compaction=options,
    )
    if rng.random() >= compacted_load.TRANSACTIONS_SHARE:
        return compacted
    return replace(
        compacted,
        trims=False,
        compaction=replace(options, retention_bytes=0),
        transactions=replace(draw_transactions(rng), chains=0),
    )


def _with_transactions(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Add transactional clients."""
    return replace(
        drawn,
        partitions=rng.choice((2, 2, 3)),
        producers=rng.choice((0, 1)),
        batches=min(drawn.batches, 10),
        readers=min(drawn.readers, 1),
        trims=False,
        room_bytes=rng.choice((0, 0, 4000)),
        transactions=draw_transactions(rng),
    )


def _as_crowded(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Overload it, on top of all that happens to it."""
    room_bytes = drawn.room_bytes or rng.choice((1000, 4000))
    faults = {
        **drawn.common.faults,
        "slow link": 3,
        "slow bookie": 3,
        "failing task": 1,
        "failing callback": 5,
    }
    return replace(
        drawn,
        common=replace(drawn.common, faults=faults),
        producers=2,
        think_s=min(drawn.think_s, 0.01),
        room_bytes=room_bytes,
        load=cluster_load.draw_load(rng, "crowded", room_bytes),
    )


def _as_busy(drawn: ClusterSwarm, rng: random.Random) -> ClusterSwarm:
    """Overload it, and let nothing else happen.

    Slowness stays far below the request timeout: whoever does not answer for so long has failed.
    """
    common, room_bytes = drawn.common, rng.choice((1000, 2000, 4000))
    quorums = rng.choice(((3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3)))
    # One broker that leads them all: together they could hold more than it may.
    brokers, partitions = rng.choice(((2, 1), (2, 2), (1, 3)))
    store = replace(
        common.store,
        session_timeout_s=2.0,
        tail_p=0.0,
        lose_request_p=0.0,
        lose_reply_p=0.0,
        lose_read_p=0.0,
        lag=None,
    )
    return replace(
        drawn,
        common=replace(
            common,
            bookies=quorums[0],
            quorums=quorums,
            fault_phase_s=rng.choice((1.0, 2.0)),
            fault_every_s=rng.choice((0.05, 0.15)),
            ambush_p=0.0,
            faults={"slow link": 3, "slow bookie": 2},
            request_timeout_s=2.0,
            client={},
            net=replace(
                common.net,
                tail_p=0.0,
                slow_p=0.0,
                latency_s=0.0005,
                window_bytes=rng.choice((2_000, 20_000)),
            ),
            disk=DiskOptions(sync_s=rng.choice((0.0002, 0.001, 0.003))),
            bookie=BookieOptions(weak_adds_max=rng.choice((0, 2))),
            store=store,
            step_cost_s=min(common.step_cost_s, 0.00002),
            hostile=False,
        ),
        quorums=quorums,
        brokers=brokers,
        partitions=partitions,
        producers=2,
        batches=20 if partitions < 3 else 10,
        payload_bytes=rng.choice((50, 200, 200)),
        in_flight=rng.choice((2, 5)),
        think_s=0.0,
        members=0,
        trims=False,
        auto_recovery=False,
        broker_session_s=2.0,
        room_bytes=room_bytes,
        load=cluster_load.draw_load(rng, "busy", room_bytes),
    )


def _draw_any(seed: int) -> ClusterSwarm:
    """Draw the options of an ordinary schedule."""
    rng = random.Random(f"cluster swarm {seed}")
    quorums = rng.choice(((3, 3, 2), (3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (4, 3, 2)))
    auto_recovery = rng.random() < 0.4
    bookies = quorums[0] + (1 if auto_recovery else rng.choice((0, 0, 1)))
    calm = rng.random() < 0.05
    session_s = rng.choice((1.0, 2.0))
    common = swarm.draw_any(seed, rng)
    common = replace(
        common,
        bookies=bookies,
        quorums=quorums,
        writers=0,
        recoverers=0,
        readers=0,
        fault_phase_s=rng.choice((3.0, 6.0) if auto_recovery else (1.0, 2.0, 4.0)),
        fault_every_s=0.0 if calm else rng.choice((0.15, 0.4, 1.0)),
        ambush_p=0.0 if calm else rng.choice((0.0, 0.003, 0.02, 0.05)),
        faults=_draw_faults(rng, auto_recovery=auto_recovery),
        request_timeout_s=rng.choice((0.3, 1.0, 2.0)),
        net=replace(
            common.net,
            latency_s=rng.choice((0.0002, 0.001)),
            tail_p=rng.choice((0.0, 0.0, 0.02, 0.1)),
            split_p=rng.choice((0.0, 0.05, 0.2)),
            window_bytes=rng.choice((20_000, 262_144, 262_144)),
        ),
        disk=replace(common.disk, sync_s=rng.choice((0.0002, 0.001, 0.003))),
        bookie=replace(
            common.bookie,
            requests_in_flight_max=rng.choice((40, 10_000)),
            log_file_bytes_max=rng.choice((8 << 10, 64 << 10)),
        ),
        store=replace(common.store, session_timeout_s=session_s),
        self_checks=rng.random() < 0.1,
        hostile=rng.random() < 0.1,
    )
    return ClusterSwarm(
        common=common,
        brokers=rng.choice((2, 2, 3)),
        partitions=rng.choice((1, 1, 2)),
        quorums=quorums,
        segment_bytes=rng.choice((900, 1500, 3000, 1 << 20)),
        snapshot_interval_bytes=rng.choice((300, 2000, 1 << 22)),
        producers=rng.choice((1, 1, 2)),
        batches=rng.choice((5, 10, 20)),
        batch_records_max=rng.choice((1, 1, 3)),
        payload_bytes=rng.choice((0, 50, 50, 200)),
        in_flight=rng.choice((1, 2, 5)),
        think_s=rng.choice((0.0, 0.01, 0.05, 0.2)),
        readers=rng.choice((0, 1, 1, 2)),
        members=rng.choice((0, 0, 0, 2)),
        member_session_ms=rng.choice((800, 6_000)),
        trims=rng.random() < 0.3,
        auto_recovery=auto_recovery,
        broker_session_s=session_s,
        tail_cache_bytes=rng.choice((0, 2000, 1 << 20)),
        page_entries=random.Random(f"cluster pages {seed}").choice((2, 2, 3, 256)),
        sweep_every_s=random.Random(f"cluster sweep {seed}").choice((0.0, 0.0, 0.3, 1.0)),
        room_bytes=random.Random(f"cluster room {seed}").choice((0, 400, 1000, 4000)),
        compression=random.Random(f"cluster codec {seed}").choice(_COMPRESSIONS),
    )


def quiet(seed: int) -> ClusterSwarm:
    """Draw options of a schedule in which nothing fails, and nothing takes its time."""
    plan = _draw_any(seed)
    common = plan.common
    store = replace(
        common.store,
        tail_p=0.0,
        lose_request_p=0.0,
        lose_reply_p=0.0,
        lose_read_p=0.0,
        lag=None,
    )
    return replace(
        plan,
        common=replace(
            common,
            fault_every_s=0.0,
            ambush_p=0.0,
            request_timeout_s=2.0,
            net=replace(common.net, tail_p=0.0),
            store=store,
            disk=DiskOptions(),
            bookie=BookieOptions(),
            client={},
            fault_phase_s=1.0,
            hostile=False,
        ),
    )


def _draw_faults(rng: random.Random, *, auto_recovery: bool) -> dict[str, int]:
    weights: dict[str, Any] = {name: rng.choice((1, 1, 3)) for name in FAULTS if rng.random() < 0.3}
    for name in _OFTEN:
        if rng.random() < 0.5:
            weights[name] = rng.choice((3, 10))
    if auto_recovery:
        weights["lose a bookie"] = 3
    if weights:
        weights.setdefault("heal", 3)
    return weights
