"""Where Quire answers otherwise than Apache Kafka, and why: decisions, no accidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.integration.differential.conversation import Explained

EXPLAINED: Sequence[Explained] = (
    Explained(
        r"error_message: kafka False, quire True",
        "Quire says what is wrong wherever the version has a place for it.",
    ),
    Explained(
        r"^(describe_configs|find_coordinator) .*error_message: kafka True, quire False",
        "Kafka sends an empty text, or the text NONE, beside the code for no error.",
    ),
    Explained(
        r"^fetch .*'(at the end|before the start|a newer epoch)': "
        r".*(high_watermark|last_stable_offset|log_start_offset): kafka -1",
        "Errors carry the partition's real watermarks where they are known.",
    ),
    Explained(
        r"^fetch .*aborted_transactions: kafka \[\], quire None",
        "A partition that is not served has no list; Kafka sends an empty one for some errors.",
    ),
    Explained(
        r"^produce .*log_start_offset: kafka 0, quire -1",
        "A refused batch is answered without asking its partition for more.",
    ),
    Explained(
        r"^produce .*'a time far ahead': .*record_errors",
        "Times are checked by the batch's header, which has the largest: no record is opened.",
    ),
    Explained(
        r"'(a gap in the sequence|a new epoch in the middle)': .*not_leader_or_follower",
        "Just after a takeover a gap may be of the brokers' own making (sequence_gaps.py): the"
        " client is told to send again, which tells it the truth a moment later.",
        depends_on_time=True,
    ),
    Explained(
        r"configs\[quire\.ensemble\.size\]",
        "A setting of ledgers.",
    ),
    Explained(
        r"configs\[message\.(format\.version|downconversion\.enable"
        r"|timestamp\.difference\.max\.ms)\]",
        "Kafka 4 has dropped these; tools of its third generation read and write them still.",
    ),
    Explained(
        r"configs\[min\.insync\.replicas\]\.config_source: kafka 3, quire 5",
        "Kafka 4 keeps it as a dynamic default of the cluster; here it is the broker's.",
    ),
    Explained(
        r"^list_groups .*groups\[g2\]",
        "Kafka keeps a group whose only member was refused.",
    ),
    Explained(
        r"^delete_groups .*results\[g\]\.error_code: kafka 'none', quire 'group_id_not_found'",
        "A group without members ends with its last offset; Kafka's goes some minutes later.",
    ),
    Explained(
        r"^incremental_alter_configs .*'no operation': .*unknown_server_error",
        "Kafka fails on an operation that does not exist; here it is a bad request.",
    ),
    Explained(
        r"^produce .*by the older incarnation.*log_start_offset",
        "A batch that was held for its coordinator has a leader, which says where its log begins.",
    ),
    Explained(
        r"^describe_topic_partitions .*topic_authorized_operations",
        "Authorized operations are not computed yet.",
    ),
)

_KRAFT = "between the controllers of KRaft, which Quire does not have"
_SHARE = "share groups"
NOT_SERVED: Mapping[range, str] = {
    range(17, 18): "SASL",
    range(29, 32): "ACLs",
    range(36, 37): "SASL",
    range(38, 42): "delegation tokens",
    range(48, 52): "quotas and credentials",
    range(55, 56): f"DescribeQuorum: {_KRAFT}; the metadata store is ZooKeeper, see `quire doctor`",
    range(57, 58): "features cannot be changed by hand",
    range(68, 70): "the new protocol of consumer groups",
    range(71, 73): "metrics of clients",
    range(76, 80): _SHARE,
    range(80, 82): _KRAFT,
    range(83, 88): f"between the coordinators of {_SHARE}",
    range(88, 90): "groups of Kafka Streams",
    range(90, 93): _SHARE,
}
"""APIs of Kafka's brokers that are not served, by their keys."""

OLDER: Mapping[int, str] = {
    0: "13 names topics by their ids only",
    66: "2 filters by a regular expression, which could keep a broker busy",
}
"""APIs of which Kafka serves newer versions."""

NEWER: Mapping[int, str] = {35: "5 is Kafka 4.3's; the jars here are older"}
"""APIs of which Quire serves newer versions than the Kafka beside it."""
