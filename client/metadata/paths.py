"""Every znode path, in one place.

Two trees share one ZooKeeper: BookKeeper's own (root `/ledgers`, layout fixed by Apache
BookKeeper, see `shared facts` in client/ledger/PROTOCOL.md) and Quire's (root `/quire`).

    /ledgers/LAYOUT, INSTANCEID, available/…, cookies/…, idgen/…, 00/0000/L0000 …
    /ledgers/underreplication/ledgers/…          ledgers that lack copies
    /ledgers/underreplication/locks/…            who repairs them; and other nodes of auto recovery
    /quire/cluster_id                            text, made once
    /quire/brokers/<id>                          ephemeral, JSON BrokerInfo
    /quire/topics/<name>                         JSON TopicInfo (topic id, partitions, configs)
    /quire/partitions/<topic id>                 tokens of the topic's last changes, which are bound
                                                 to it (broker/cluster/bound_changes.py)
    /quire/partitions/<topic id>/<n>             JSON segment list; its CAS commits every takeover
    /quire/partitions/<topic id>/<n>/owner       ephemeral, JSON {broker, incarnation}
    /quire/partitions/<topic id>/<n>/pages/<f>/<number>-<epoch>-<ledger>
                                                 JSON page of the segment list, never changed; a
                                                 folder f for every thousand numbers
    /quire/acls/<hash of what they are about>    JSON access control list
    /quire/quotas/<hash of the entity>           JSON limits of a user, client id or address
    /quire/users/<hash of the name>              JSON credentials of a user
    /quire/secret                                random bytes, made once: hides which users exist
    /quire/configs/brokers/@<id>                 JSON settings of a broker; @ alone: of all
    /quire/configs/client-metrics/@<name>        JSON subscription to metrics of clients
    /quire/configs/groups/@<group>               JSON settings of a group
                                                 (these five directories have tokens of the last
                                                 changes below them, too)
    /quire/producer_ids                          next block of producer ids, by CAS
    /quire/features                              JSON finalized features, by CAS
    /quire/deleted/<topic id>                    tombstone of a topic whose ledgers still go
"""

from __future__ import annotations

import re
from typing import Final

from client.ids import BookieId, BrokerId, LeaderEpoch, LedgerId

LEDGERS_ROOT: Final = "/ledgers"
QUIRE_ROOT: Final = "/quire"

CLUSTER_ID: Final = f"{QUIRE_ROOT}/cluster_id"
BROKERS: Final = f"{QUIRE_ROOT}/brokers"
TOPICS: Final = f"{QUIRE_ROOT}/topics"
PARTITIONS: Final = f"{QUIRE_ROOT}/partitions"
ACLS: Final = f"{QUIRE_ROOT}/acls"
USERS: Final = f"{QUIRE_ROOT}/users"
QUOTAS: Final = f"{QUIRE_ROOT}/quotas"
BROKER_CONFIGS: Final = f"{QUIRE_ROOT}/configs/brokers"
GROUP_CONFIGS: Final = f"{QUIRE_ROOT}/configs/groups"
CLIENT_METRICS_CONFIGS: Final = f"{QUIRE_ROOT}/configs/client-metrics"
PRODUCER_IDS: Final = f"{QUIRE_ROOT}/producer_ids"
SECRET: Final = f"{QUIRE_ROOT}/secret"
FEATURES: Final = f"{QUIRE_ROOT}/features"
DELETED: Final = f"{QUIRE_ROOT}/deleted"

_SHORT_LEDGER_ID_MAX: Final = 2**31 - 1
_PAGES_PER_FOLDER: Final = 1000
"""ZooKeeper answers the names of a node's children in one message of at most 1 MiB."""
_PAGE_NAME: Final = re.compile(r"(\d{10,19})-(\d{1,10})-(\d{1,19})")


def broker(broker_id: BrokerId) -> str:
    """Ephemeral registration of one broker."""
    return f"{BROKERS}/{broker_id}"


def topic(name: str) -> str:
    """Definition of one topic. `name` was validated: it has no slash and is not `.` or `..`."""
    return f"{TOPICS}/{name}"


def topic_partitions(topic_id: str) -> str:
    """Directory of one topic's partitions; by topic id, so a recreated topic starts afresh."""
    return f"{PARTITIONS}/{topic_id}"


def partition(topic_id: str, index: int) -> str:
    """Segment list of one partition."""
    return f"{PARTITIONS}/{topic_id}/{index}"


def partition_owner(topic_id: str, index: int) -> str:
    """Ephemeral of the broker that leads a partition."""
    return f"{PARTITIONS}/{topic_id}/{index}/owner"


def segment_pages(partition_path: str) -> str:
    """Directory of the pages of a partition's segment list."""
    return f"{partition_path}/pages"


def page_folder(partition_path: str, number: int) -> str:
    """Directory of a page, and of others with a number near it."""
    return f"{partition_path}/pages/{number // _PAGES_PER_FOLDER:07d}"


def segment_page(
    partition_path: str, number: int, leader_epoch: LeaderEpoch, ledger_id: LedgerId
) -> str:
    """One page of a partition's segment list."""
    folder = page_folder(partition_path, number)
    return f"{folder}/{number:010d}-{leader_epoch}-{ledger_id}"


def page_name(node: str) -> tuple[int, LeaderEpoch, LedgerId] | None:
    """Return (number, leader epoch, ledger id) of a page's node; None: it is none of ours."""
    found = _PAGE_NAME.fullmatch(node)
    if found is None:
        return None
    number, epoch, ledger = map(int, found.groups())
    return number, LeaderEpoch(epoch), LedgerId(ledger)


def deleted_topic(topic_id: str) -> str:
    """Tombstone of a deleted topic; it goes when the last ledger is gone."""
    return f"{DELETED}/{topic_id}"


def layout(root: str = LEDGERS_ROOT) -> str:
    """Layout version and ledger manager of a BookKeeper tree."""
    return f"{root}/LAYOUT"


def instance_id(root: str = LEDGERS_ROOT) -> str:
    """UUID of a BookKeeper cluster; bookies keep it in their cookie."""
    return f"{root}/INSTANCEID"


def available(root: str = LEDGERS_ROOT) -> str:
    """Directory of writable bookies."""
    return f"{root}/available"


def available_bookie(bookie_id: BookieId, root: str = LEDGERS_ROOT) -> str:
    """Ephemeral of a writable bookie."""
    return f"{root}/available/{bookie_id}"


def readonly(root: str = LEDGERS_ROOT) -> str:
    """Directory of read-only bookies."""
    return f"{root}/available/readonly"


def readonly_bookie(bookie_id: BookieId, root: str = LEDGERS_ROOT) -> str:
    """Ephemeral of a read-only bookie."""
    return f"{root}/available/readonly/{bookie_id}"


def cookies(root: str = LEDGERS_ROOT) -> str:
    """Directory of all bookies ever started."""
    return f"{root}/cookies"


def cookie(bookie_id: BookieId, root: str = LEDGERS_ROOT) -> str:
    """Cookie of one bookie."""
    return f"{root}/cookies/{bookie_id}"


def health_check_disabled(root: str = LEDGERS_ROOT) -> str:
    """Node whose existence ends all quarantines of bookies."""
    return f"{root}/disableHealthCheck"


def under_replication(root: str = LEDGERS_ROOT) -> str:
    """Directory of everything auto recovery keeps."""
    return f"{root}/underreplication"


def under_replicated_ledgers(root: str = LEDGERS_ROOT) -> str:
    """Directory tree of the marks of ledgers that lack copies."""
    return f"{under_replication(root)}/ledgers"


def under_replicated_ledger(ledger_id: LedgerId, root: str = LEDGERS_ROOT) -> str:
    """Mark of one ledger that lacks copies: four levels of hex digits, then the decimal id."""
    digits = f"{ledger_id:016x}"
    parts = "/".join(digits[at : at + 4] for at in range(0, 16, 4))
    return f"{under_replicated_ledgers(root)}/{parts}/urL{ledger_id:010d}"


def under_replication_layout(root: str = LEDGERS_ROOT) -> str:
    """Kind and version of the under-replication tree."""
    return f"{under_replication(root)}/LAYOUT"


def replication_locks(root: str = LEDGERS_ROOT) -> str:
    """Directory of the locks of ledgers that somebody repairs."""
    return f"{under_replication(root)}/locks"


def replication_lock(ledger_id: LedgerId, root: str = LEDGERS_ROOT) -> str:
    """Ephemeral of whoever repairs a ledger."""
    return f"{replication_locks(root)}/urL{ledger_id:010d}"


def replication_disabled(root: str = LEDGERS_ROOT) -> str:
    """Node whose existence stops all auto recovery."""
    return f"{under_replication(root)}/disable"


def lost_bookie_delay(root: str = LEDGERS_ROOT) -> str:
    """Seconds that one lost bookie may take to return; writing it triggers an audit."""
    return f"{under_replication(root)}/lostBookieRecoveryDelay"


def all_ledgers_checked(root: str = LEDGERS_ROOT) -> str:
    """When the auditor last checked all ledgers."""
    return f"{under_replication(root)}/checkallledgersctime"


def auditor_election(root: str = LEDGERS_ROOT) -> str:
    """Directory of the candidates for auditor; its data names the one elected."""
    return f"{under_replication(root)}/auditorelection"


def auditor_vote_prefix(root: str = LEDGERS_ROOT) -> str:
    """Prefix of the ephemeral sequential nodes of the candidates."""
    return f"{auditor_election(root)}/V_"


def ledger_id_prefix(root: str = LEDGERS_ROOT) -> str:
    """Prefix for the ephemeral sequential node that yields a 31-bit ledger id."""
    return f"{root}/idgen/ID-"


def ledger(ledger_id: LedgerId, root: str = LEDGERS_ROOT) -> str:
    """Metadata of one ledger, as HierarchicalLedgerManager lays it out.

    Ids below 2^31-1 use ten digits split 2-4-4, larger ones nineteen digits split 3-4-4-4-4.
    """
    if ledger_id < _SHORT_LEDGER_ID_MAX:
        digits = f"{ledger_id:010d}"
        return f"{root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    parts = (digits[:3], digits[3:7], digits[7:11], digits[11:15])
    return f"{root}/{'/'.join(parts)}/L{digits[15:]}"
