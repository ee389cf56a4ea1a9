"""Where Quire answers a generated request otherwise than Apache Kafka, and why.

As in `explained.py`: decisions, no accidents. Rows are regular expressions over what a difference
prints: API, version, number of the request, its base and what was changed, field, and both values.
Each names the change that it is about, and both values: what differs otherwise is not explained.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.integration.differential.conversation import Explained

_TWO = r"^\w+ v\d+ .\d+ [\w' ]+: .*, [a-z].*"
"""More than one field was changed."""
_CODES = r"kafka '(?!none')\w+', quire '(?!none')\w+'$"
"""Both refuse."""
_AHEAD = (
    r"producer_epoch=(1|2|32767)\b.*error_code: kafka '(producer_fenced|invalid_producer_epoch)'"
)

_OF_ALL = (
    Explained(
        r"error_message: kafka False, quire True$",
        "Quire says what is wrong wherever the version has a place for it.",
    ),
    Explained(
        r"^(find_coordinator|describe_(acls|configs|client_quotas|user_scram_credentials)"
        r"|update_features|alter_partition_reassignments) .*error_message: kafka True, quire"
        r" False$",
        "Kafka sends an empty text, or the text NONE, beside the code for no error.",
    ),
    Explained(
        rf"{_TWO}error_code: {_CODES}",
        "Of two mistakes another one is found first.",
    ),
    Explained(
        r"(topics|responses|\w+_results|v3_and_below|markers)\[[^\[\]]*\]: kafka"
        r" (None, quire \{.*: \[\](\}\])?\}|\{.*: \[\]\}, quire None)$",
        "What was named without partitions is answered as it was asked for, or left out.",
    ),
)

_RECORDS = (
    Explained(
        r"^produce .*log_start_offset: kafka ('an offset', quire -1|-1, quire 'an offset')$",
        "A refused batch is answered without asking its partition for more; one that was held for"
        " its coordinator has a leader, which says where its log begins.",
    ),
    Explained(
        r"^fetch .*(fetch_offset|current_leader_epoch)=.*(high_watermark|last_stable_offset"
        r"|log_start_offset): kafka -1, quire \d+$",
        "Errors carry the partition's real watermarks where they are known.",
    ),
    Explained(
        r"^fetch .*aborted_transactions: kafka (\[\], quire None|None, quire \[\])$",
        "A partition that is not served has no list, one that is served has one. Of Kafka's errors"
        " some have an empty one.",
    ),
    Explained(
        r"^describe_producers .*error_code: kafka 'invalid_topic_exception', quire"
        r" 'unknown_topic_or_partition'$",
        "A topic that cannot be is an unknown one, which tools handle.",
    ),
)

_TOPICS = (
    Explained(
        r"^create_topics .*topic_id: kafka 'some id', quire None$",
        "What is only tried has no id; Kafka makes one up that never comes back.",
    ),
    Explained(
        r"^(create_topics|describe_configs) .*configs\[(quire\.ensemble\.size"
        r"|message\.(format\.version|downconversion\.enable|timestamp\.difference\.max\.ms))\]:"
        r" kafka None, quire \{|configs\[min\.insync\.replicas\]\.config_source: kafka 3, quire 5$",
        "A setting of ledgers; some that Kafka 4 has dropped; and one that it keeps as a dynamic"
        " default of the cluster.",
    ),
    Explained(
        r"^(create_topics|describe_configs) .*configs\[(errors\.deadletterqueue\.group\.enable"
        r"|remote\.copy\.lag\.(ms|bytes))\]: kafka None, quire \{",
        "Settings of topics that came with Kafka 4.4, which is newer than the Kafka beside us.",
    ),
    Explained(
        r"^alter_replica_log_dirs .*error_code: kafka"
        r" '(log_dir_not_found|invalid_topic_exception)', quire 'unknown_topic_or_partition'$",
        "There are no folders to choose here: what is looked at first is the partition.",
    ),
)

_GROUPS = (
    Explained(
        r"^join_group .*protocols(\[\d\]\.name='(range|sticky)'| twice| more)",
        "A protocol that is named twice is the same protocol, and the first in the list counts;"
        " Kafka fails, or prefers the last.",
    ),
    Explained(
        r"^consumer_group_heartbeat .*member_epoch: kafka 2, quire 1$",
        "A group begins with its first member, at epoch 1; in Kafka the group comes before it.",
    ),
    Explained(
        r"^consumer_group_heartbeat .*error_code: kafka 'group_id_not_found', quire"
        r" 'unknown_member_id'$",
        "A group without members and offsets is forgotten. A member of it is told to join again,"
        " which clients do by themselves; they end at GROUP_ID_NOT_FOUND.",
    ),
)

_TRANSACTIONS = (
    Explained(
        r"^describe_transactions .*producer_(id|epoch): kafka 0, quire -1$",
        "An id that is not known has no producer; Kafka says 0, which is somebody's.",
    ),
    Explained(
        rf"^(end_txn|add_offsets_to_txn|add_partitions_to_txn|init_producer_id) .*{_AHEAD}, quire"
        r" 'not_coordinator'$",
        "An epoch ahead of what the coordinator knows: it may have been replaced, and only who is"
        " sure may fence a producer, which ends it. The client looks for the coordinator again.",
    ),
    Explained(
        r"^txn_offset_commit .*(producer_epoch=-.*kafka 'invalid_producer_epoch'"
        r"|producer_id=-.*kafka 'invalid_producer_id_mapping'), quire 'invalid_request'$",
        "An id or epoch below zero is a bad request, no other producer's.",
    ),
)

_SETTINGS = (
    Explained(
        r"^describe_configs .*configs\[(consumer|share|streams|errors)\.[\w.]+\]"
        r"(: kafka None, quire \{.*|\.config_source: kafka 5, quire 4)$",
        "Settings of groups are those of Kafka 4.4. What holds for all groups is in a broker's"
        " configuration, whether its file says so or not.",
    ),
    Explained(
        r"^describe_configs .*include_synonyms=True.*configs\[[\w.]+\]\.synonyms\[",
        "Of a subscription's settings, too, it is said where they come from. The defaults of topics"
        " have the names of topics' settings, Kafka's those of brokers'.",
    ),
    Explained(
        r"^describe_configs .*resource_type=(0|1|3|-1|99)\b.*(error_code: kafka 'invalid_request',"
        r" quire 'none'|configs\[[\w.]+\]: kafka None, quire \{.*)$",
        "Of several resources the one that cannot be is refused; Kafka refuses them all.",
    ),
    Explained(
        r"^incremental_alter_configs .*config_operation=(?![0123]\b).*kafka 'unknown_server_error',"
        r" quire 'invalid_request'$",
        "Kafka fails on an operation that does not exist; here it is a bad request.",
    ),
    Explained(
        r"^(incremental_)?alter_configs .*(min\.insync\.replicas'.*error_code: kafka 'none', quire"
        r" 'invalid_config'"
        r")$",
        "More acknowledgements than the topic has copies: nothing could be written to it.",
    ),
    Explained(
        r"^alter_client_quotas .*entity (twice|more).*: entries\[\[.*\]\](\.error_code)?:"
        r" kafka",
        "An entity that is of one type twice; Kafka takes the last.",
    ),
    Explained(
        r"^alter_user_scram_credentials .*deletions (twice|more).*error_code: kafka"
        r" 'resource_not_found', quire 'duplicate_resource'$",
        "Two mistakes in one: a user that is not there, named twice.",
    ),
    Explained(
        r"^(describe|create|delete)_acls .*((_type|_type_filter|operation)=| one\b).*: : kafka 'the"
        r" connection was closed', quire 'an answer: security_disabled'$",
        "Kafka closes the connection on values that its enumerations do not have; here they are"
        " answered like any request about rights while rights are off.",
    ),
)

_SHARE_GROUPS = (
    Explained(
        r"^(alter|delete|describe)_share_group_offsets .*quire ('group_id_not_found'|None"
        r"|'an answer: group_id_not_found')$",
        "An order about a share group that does not exist makes it in Kafka; here it is refused.",
    ),
    Explained(
        r"^share_group_describe .*(error_code: kafka 'none', quire 'group_id_not_found'"
        r"|kafka ('Empty', quire ''|1, quire 0|'simple', quire ''|\d+, quire -2147483648))$",
        "So the group that an order was about exists in Kafka.",
    ),
    Explained(
        r"^share_group_heartbeat .*member_epoch=0.*(member_epoch: kafka 2, quire 1"
        r"|assignment\.topic_partitions\[.*: kafka None, quire \{.*)$",
        "Kafka prepares partitions in the background; here the first answer has them.",
    ),
    Explained(
        r"^share_fetch .*share_session_epoch=0.*(error_code: kafka 'none', quire"
        r" 'group_id_not_found'|acquisition_lock_timeout: kafka 30000, quire 0)$",
        "Who begins a share session must be a member of the group.",
    ),
    Explained(
        r"^share_acknowledge .*group_id=''.*kafka 'share_session_not_found', quire"
        r" 'invalid_request'$",
        "A share session has a group.",
    ),
)

EXPLAINED_CLASSES: Sequence[Explained] = (
    *_OF_ALL, *_RECORDS, *_TOPICS, *_GROUPS, *_TRANSACTIONS, *_SETTINGS,
    *_SHARE_GROUPS,
)  # fmt: skip

OF_OTHER_SEEDS: Sequence[Explained] = (
    Explained(
        r"^describe_topic_partitions .*topics\[\d\]\.name=''.*(error_code: kafka"
        r" 'unknown_server_error'|topic_id: kafka None|partitions\[\d\]: kafka None"
        r"|topic_authorized_operations: kafka -2147483648)",
        "Kafka fails on a topic without a name, and with it on all the others; here only that one"
        " is refused.",
    ),
    Explained(
        r"^alter_user_scram_credentials .*\.salt=b'.*error_code: kafka 'none', quire"
        r" 'unacceptable_credential'$",
        "A salt has some bytes and not thousands: it is sent to whoever tries to log in.",
    ),
    Explained(
        r"^describe_configs .*results\[0\]\.configs\[log\.retention\.ms\]\.(value: kafka None,"
        r" quire '604800000'|config_source: kafka 5, quire 4|synonyms\[.*: kafka None, quire \{)",
        "Kafka has it in hours unless it is set; Quire's settings come with their values.",
    ),
    Explained(
        r"^describe_configs .*(resources (twice|more)|resource_name='one').*"
        r"results\[(0|one)\]\.configs\[[\w.]+\]: kafka \{.*, quire None$",
        "A resource that is named twice is described once, as the last of both asks.",
    ),
    Explained(
        r"^join_group .*protocols\[\d\]\.name=''.*protocol_name: kafka None, quire ''$",
        "A protocol whose name is empty is no protocol to Kafka.",
    ),
    Explained(
        r"^alter_user_scram_credentials .*salted_password=b''.*error_code: kafka"
        r" 'unknown_server_error', quire 'unacceptable_credential'$",
        "A password of no bytes is refused; Kafka fails.",
    ),
    Explained(
        r"^fetch .*max_bytes=-.*(error_code: kafka 'unknown_server_error', quire 'none'"
        r"|(high_watermark|last_stable_offset|log_start_offset): kafka -1, quire \d+"
        r"|records: kafka (False, quire True|True, quire False))$",
        "A limit below zero is no room, with which the first batch comes all the same; Kafka fails"
        " on that of a partition, and takes that of the request for one byte more.",
    ),
    Explained(
        r"^fetch .*isolation_level=(2|-1|127)\b.*(error_code: kafka 'unknown_server_error', quire"
        r" '(none|invalid_request)'|session_id: kafka ('one', quire 0|0, quire 'one')"
        r"|responses\[[^\[\]]*\]: kafka (None, quire \{.*'invalid_request'.*|\{.*, quire None))$",
        "An isolation level that does not exist is the partition's INVALID_REQUEST: to consumers a"
        " refusal of the whole request is one to ask again for ever.",
    ),
    Explained(
        r"^list_offsets .*isolation_level=(2|-1|127)\b.*error_code: kafka 'unknown_server_error',"
        r" quire 'invalid_request'$",
        "Kafka fails on an isolation level that does not exist; here it is a bad request.",
    ),
    Explained(
        r"^add_partitions_to_txn v4 .*verify_only=True.*kafka 'transaction_abortable', quire"
        r" 'invalid_txn_state'$",
        "Between Kafka's brokers. The code that version 4 does not know is not used in it.",
    ),
    Explained(
        r"^produce .*(twice|more).*(partition_responses\[\d+'\]: kafka None, quire \{"
        r"|error_code: kafka 'none', quire 'invalid_record'|base_offset: kafka 'an offset', quire"
        r" -1|record_errors\[0\]: kafka None, quire \{)",
        "Of a partition that is named twice both batches are stored; Kafka stores the last.",
    ),
    Explained(
        r"^produce .*records=<no epoch>.*(error_code: kafka 'none', quire 'invalid_record'"
        r"|base_offset: kafka 'an offset', quire -1|record_errors\[.*: kafka None, quire \{.*)$",
        "A producer's id without its epoch says nothing of an order; Kafka takes the batch.",
    ),
    Explained(
        r"^fetch .*last_fetched_epoch=.*(error_code: kafka 'offset_out_of_range', quire 'none'"
        r"|(high_watermark|last_stable_offset|log_start_offset): kafka -1, quire \d+"
        r"|records: kafka False, quire True)$",
        "Followers say which epoch they have read last, to find out where theirs parts from their"
        " leader's. There are none here.",
    ),
    Explained(
        r"^fetch .* a session: .*topics (empty|less).*session_id: kafka 'one', quire 0$",
        "A session of nothing saves nothing.",
    ),
    Explained(
        r"^metadata v1[23] .*topic_id=.*topics\[(t|one)\]: kafka None, quire \{",
        "Every topic of a request is described, whether it is named or has its id. Kafka leaves out"
        " those with names where another one has an id.",
    ),
    Explained(
        r"^metadata v1[0123] .*(name|topic_id)=None.*(brokers\[0\]: kafka None"
        r"|controller_id: kafka -1|topics\[\w+\](\.partitions\[\d\]|\.topic_id)?: kafka None"
        r"|error_code: kafka '(unknown_server_error|invalid_request)')",
        "A topic with neither a name nor an id is refused by itself; Kafka fails on the whole.",
    ),
    Explained(
        r"^describe_topic_partitions .*partition_index=2147483647.*next_cursor: kafka \{",
        "Kafka's sum is beyond 32 bits, and its next page begins at a partition below 0.",
    ),
    Explained(
        rf"^create_topics .*\d settings: .*error_code: {_CODES}",
        "Of two mistakes another one is found first: of the base a setting without a value is one.",
    ),
    Explained(
        r"^write_txn_markers .*(producer_id|producer_epoch|transaction_version)=-.*error_code:"
        r" kafka '(unknown_server_error|invalid_producer_epoch)', quire 'none'$",
        "A producer that does not exist has no open transaction, so nothing is to be ended.",
    ),
    Explained(
        r"^join_group .* (again|a new member): .*metadata=",
        "What a protocol's metadata is, is between clients: Kafka reads that of consumers, and"
        " fails on bytes that mean nothing.",
    ),
    Explained(
        r"^alter_partition_reassignments v1 .*topics empty.*allow_replication_factor_change: kafka"
        r" True, quire False$",
        "Said back as it was asked; Kafka says its default where it has nothing to do.",
    ),
    Explained(
        r"^incremental_alter_configs .*config_operation=[23]\b.*responses\[m-\d+\]\.error_(code:"
        r" kafka 'invalid_config', quire 'none'|message: kafka True, quire False)$",
        "The lists of subscriptions to metrics can be added to, as any list.",
    ),
    Explained(
        r"^(incremental_)?alter_configs .*resource_name='x.*error_code: kafka 'none', quire"
        r" 'invalid_request'$",
        "A subscription's name is as short as a topic's.",
    ),
    Explained(
        r"^(incremental_)?alter_configs .*segment\.bytes'.*error_(code: kafka 'invalid_config',"
        r" quire 'none'|message: kafka True, quire False)$",
        "Kafka 4 wants a MiB at least; here programs go on that were written for older ones.",
    ),
    Explained(
        r"^offset_for_leader_epoch .*\bleader_epoch=-2.*(leader_epoch: kafka -2, quire -1"
        r"|end_offset: kafka 0, quire -1)$",
        "No epoch is below -1; Kafka finds one, with the end 0.",
    ),
    Explained(
        rf"^txn_offset_commit .*{_AHEAD}, quire 'coordinator_not_available'$",
        "An epoch ahead of what the coordinator knows, asked of it by that of the group: only who"
        " is sure may fence a producer.",
    ),
    Explained(
        r"^add_offsets_to_txn .*group_id=''.*error_code: kafka 'none', quire 'invalid_group_id'$",
        "A group without a name has no offsets. Kafka says so at the next request.",
    ),
    Explained(
        r"^alter_client_quotas .*value=(nan|inf)\b.*error_code: kafka 'none', quire"
        r" 'invalid_request'$",
        "A limit that is no number limits nothing; Kafka stores it.",
    ),
)
"""What the test's own seed does not come upon, or not on brokers whose settings others changed."""
