"""Where Quire answers a generated request otherwise than Apache Kafka, and why.

As in `explained.py`: decisions, no accidents. Rows are regular expressions over what a difference
prints: API, version, number of the request, its base and what was changed, field, and both values.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.integration.differential.conversation import Explained

_REFUSED = (
    r"high_watermark|last_stable_offset|log_start_offset|aborted_transactions|records|error_code"
)
EXPLAINED_CLASSES: Sequence[Explained] = (
    # --- of every API ----------------------------------------------------------------------------
    Explained(
        r"error_message: kafka False, quire True",
        "Quire says what is wrong wherever the version has a place for it.",
    ),
    Explained(
        r"error_message: kafka True, quire False",
        "Kafka sends an empty text, or the text NONE, beside the code for no error.",
    ),
    Explained(
        r"^(describe_groups|describe_transactions|elect_leaders|describe_configs|offset_commit"
        r"|produce|find_coordinator|offset_fetch|delete_groups) .*\[[^\[\]]*'\]: kafka .*, quire"
        r" None$",
        "What is named twice is answered once: it is the same answer.",
    ),
    Explained(
        r"^(alter_client_quotas|list_offsets|produce|offset_commit|offset_delete"
        r"|add_partitions_to_txn) .*'\]: kafka None, quire ",
        "Each row of a request has its own row in the answer, also if two say the same.",
    ),
    Explained(
        r"(topics|responses|topic_results|markers)\[[^\[\]]*\]: kafka None, quire \{.*: \[\]\}$",
        "A topic that was named without partitions is answered as it was asked for.",
    ),
    # --- records ---------------------------------------------------------------------------------
    Explained(
        r"^produce .*log_start_offset: kafka ('an offset', quire -1|-1, quire 'an offset')",
        "A refused batch is answered without asking its partition for more; one that was held for"
        " its coordinator has a leader, which says where its log begins.",
    ),
    Explained(
        rf"^fetch .*({_REFUSED}): kafka ('unknown_server_error'|-1|False|None)",
        "Errors carry the partition's real watermarks where they are known; a limit below zero is"
        " no room, with which the first batch comes all the same, where Kafka fails; an isolation"
        " level that does not exist is the partition's INVALID_REQUEST: to consumers a refusal of"
        " the whole request is one to ask again for ever.",
    ),
    Explained(
        r"^fetch .*isolation_level=.*responses\[.*\]: kafka None",
        "The same: the refusal is with the partitions.",
    ),
    Explained(
        r"^fetch .*aborted_transactions: kafka \[\], quire None",
        "A partition that is not served has no list; Kafka sends an empty one for some errors.",
    ),
    Explained(
        r"^list_offsets .*isolation_level=.*error_code: kafka 'unknown_server_error', quire"
        r" 'invalid_request'",
        "Kafka fails on an isolation level that does not exist; here it is a bad request.",
    ),
    Explained(
        r"^offset_for_leader_epoch .*leader_epoch=-2.*(leader_epoch|end_offset): kafka (-2|0)",
        "No epoch is below -1; Kafka finds one, with the end 0.",
    ),
    Explained(
        r"^describe_producers .*error_code: kafka 'invalid_topic_exception', quire"
        r" 'unknown_topic_or_partition'",
        "A topic that cannot be is an unknown one, which tools handle.",
    ),
    # --- topics ----------------------------------------------------------------------------------
    Explained(
        r"^metadata v1[01] .*topic_id=",
        "Versions 10 and 11 have a field for ids already, and Quire takes them.",
    ),
    Explained(
        r"^create_topics .*topic_id: kafka 'some id', quire None",
        "What is only tried has no id; Kafka makes one up that never comes back.",
    ),
    Explained(
        r"^(create_topics|describe_configs) .*configs\[(min\.insync\.replicas"
        r"|quire\.ensemble\.size|message\.(format\.version|downconversion\.enable"
        r"|timestamp\.difference\.max\.ms))\]",
        "A setting of ledgers; some that Kafka 4 has dropped; and one that it keeps as a dynamic"
        " default of the cluster.",
    ),
    Explained(
        r"^describe_topic_partitions .*('\d+ a page|cursor)",
        "A cursor is where to go on, in the order of names: its topic need not be asked for (any"
        " more), where Kafka refuses all topics.",
    ),
    Explained(
        r"^elect_leaders v[01] .*(election_type|topic_partitions (more|twice))",
        "What is named twice is answered once.",
    ),
    Explained(
        r"^alter_replica_log_dirs .*kafka 'log_dir_not_found', quire 'unknown_topic_or_partition'",
        "There are no folders to choose here: what is looked at first is the partition.",
    ),
    # --- groups ----------------------------------------------------------------------------------
    Explained(
        r"^offset_fetch v(8|9|10) .*groups (more|twice)",
        "Of a group that is named twice the last list counts.",
    ),
    Explained(
        r"^join_group .*protocols",
        "A protocol that is named twice is the same protocol; Kafka fails.",
    ),
    # --- transactions ----------------------------------------------------------------------------
    Explained(
        r"^describe_transactions .*producer_(id|epoch): kafka 0, quire -1",
        "An id that is not known has no producer; Kafka says 0, which is somebody's.",
    ),
    Explained(
        r"^end_txn .*error_code: kafka 'producer_fenced', quire 'not_coordinator'",
        "An epoch ahead of what the coordinator knows: it may have been replaced, and only who is"
        " sure may fence a producer, which ends it. The client looks for the coordinator again.",
    ),
    Explained(
        r"^add_partitions_to_txn v4 .*verify_only=True.*kafka 'transaction_abortable', quire"
        r" 'invalid_txn_state'",
        "Between Kafka's brokers. The code that version 4 does not know is not used in it.",
    ),
    Explained(
        r"^txn_offset_commit .*kafka 'invalid_producer_epoch', quire 'invalid_request'",
        "An epoch below zero is a bad request, no older epoch of the producer's.",
    ),
    Explained(
        r"^write_txn_markers .*producer_id=-.*kafka 'unknown_server_error', quire 'none'",
        "A producer that does not exist has no open transaction, so nothing is to be ended.",
    ),
    # --- settings, the cluster, rights -----------------------------------------------------------
    Explained(
        r"^describe_configs .*results\[0\]\.configs",
        "Settings of brokers are each program's own.",
    ),
    Explained(
        r"^describe_configs .*results\[(g|m|t|one|unknown)\]\.configs\[.*: kafka \{.*, quire None$",
        "Settings of groups are for protocols that are not served.",
    ),
    Explained(
        r"^incremental_alter_configs .*kafka 'unknown_server_error', quire 'invalid_request'",
        "Kafka fails on an operation that does not exist; here it is a bad request.",
    ),
    Explained(
        r"^(incremental_)?alter_configs .*error_code: kafka 'invalid_config', quire"
        r" '(invalid_request|unknown_topic_or_partition)'",
        "Of two mistakes another one is found first: a topic that is not there before its"
        " settings; and what cannot be a subscription's value is a bad request.",
    ),
    Explained(
        r"^(incremental_)?alter_configs .*error_code: kafka 'invalid_request', quire"
        r" '(invalid_config|unknown_topic_or_partition)'",
        "The same the other way round: an unknown setting of a subscription is an invalid setting,"
        " as it is of a topic.",
    ),
    Explained(
        r"^alter_client_quotas .*=nan.*kafka 'none', quire 'invalid_request'",
        "A limit that is no number limits nothing; Kafka stores it.",
    ),
    Explained(
        r"^alter_user_scram_credentials .*results\[[^\[\]]*\]",
        "Mistakes of a user are looked for in the same order as the rows of the request.",
    ),
    Explained(
        r"^describe_user_scram_credentials .*results\[[^\[\]]*\]",
        "A user without a name has no credentials.",
    ),
    Explained(
        r"^(describe|create|delete)_acls .*: : kafka 'the connection was closed'",
        "Kafka closes the connection on values that its enumerations do not have; here they are"
        " answered like any request about rights while rights are off.",
    ),
)
