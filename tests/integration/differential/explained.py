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
        r"^(describe_configs|find_coordinator|describe_client_quotas|update_features) .*"
        r"error_message: kafka True, quire False",
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
        r"'(a gap in the sequence|a new epoch in the middle)': .*not_leader_or_follower",
        "Just after a takeover a gap may be of the brokers' own making (producer_state.py): the"
        " client is told to send again, which tells it the truth a moment later.",
        depends_on_time=True,
    ),
    Explained(
        r"configs\[quire\.ensemble\.size\]",
        "A setting of ledgers.",
    ),
    Explained(
        r"configs\[(errors\.deadletterqueue\.group\.enable|remote\.copy\.lag\.(ms|bytes))\]",
        "Settings of topics that came with Kafka 4.4, which is newer than the Kafka beside us.",
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
        r"configs\[(consumer|share)\.[a-z.]+\]\.config_source: kafka 5, quire 4",
        "What holds for all groups is in a broker's configuration, said in its file or not.",
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
)

_KRAFT = "between the controllers of KRaft, which Quire does not have"
NOT_SERVED: Mapping[range, str] = {
    range(38, 42): "delegation tokens",
    range(55, 56): f"DescribeQuorum: {_KRAFT}: voters and offsets of a quorum would be made up. The"
    " metadata store is ZooKeeper, and `quire doctor` asks its servers how they are",
    range(80, 82): _KRAFT,
    range(83, 88): "the store of share groups, which brokers ask",
    range(88, 90): "groups of Kafka Streams",
}
"""APIs of Kafka's brokers that are not served, by their keys."""

OLDER: Mapping[int, str] = {}
"""APIs of which Kafka serves newer versions."""

_PLUGIN = "Kafka serves it only with a plugin that takes what clients push"
NEWER: Mapping[int, str] = {
    71: _PLUGIN,
    72: _PLUGIN,
}
"""APIs of which Quire serves newer versions than the Kafka beside it, or that it does not serve."""
