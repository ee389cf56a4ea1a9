"""What to do about each error of a broker: written by hand, held to the code by a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.faults import Code

ADVICE: Final[Mapping[Code, str]] = {
    Code.unknown_server_error: (
        "Look for `request.failed` or `partition.bug` in the broker's log, and report it with its"
        " `exception`."
    ),
    Code.offset_out_of_range: (
        "The records at that offset are gone by retention, or the topic is a new one: the"
        " consumer continues by its `auto.offset.reset`."
    ),
    Code.corrupt_message: (
        "The batch's checksum is wrong: it was damaged on the way. Producers send it again; if it"
        " stays, look at the network and the client library."
    ),
    Code.unknown_topic_or_partition: (
        "Create the topic (`quire topic create`), or correct its name. Right after a creation it"
        " goes away by itself."
    ),
    Code.not_leader_or_follower: (
        "None: clients look for the new leader. If it stays, see `quire topic describe` and the"
        " alert QuirePartitionsWithoutLeader."
    ),
    Code.request_timed_out: (
        "The outcome is unknown. Idempotent producers repeat safely. If it stays: bookies or"
        " ZooKeeper are slow or away (`quire doctor`)."
    ),
    Code.message_too_large: (
        "Raise the topic's `max.message.bytes`, or let the producer send less (`max.request.size`)."
    ),
    Code.offset_metadata_too_large: (
        "Commit less metadata beside an offset, or raise `offset_metadata_bytes_max`."
    ),
    Code.coordinator_load_in_progress: (
        "None: the coordinator reads its log, and clients ask again."
    ),
    Code.coordinator_not_available: (
        "None: clients look for the coordinator again. If it stays, fewer bookies are live than"
        " its topic has copies."
    ),
    Code.not_coordinator: "None: clients look for the new coordinator.",
    Code.invalid_topic_exception: (
        "Names have letters, digits, `.`, `_` and `-`, and 249 characters at most; names that"
        " begin with `__` are the cluster's."
    ),
    Code.record_list_too_large: (
        "Let the producer send smaller batches (`batch.size`): the batch is larger than a segment"
        " or an entry may be."
    ),
    Code.not_enough_replicas: (
        "Start bookies until `min.insync.replicas` of them are live (`quire bookie list`). With"
        " enough of them, bookies are slower than producers: see Run."
    ),
    Code.invalid_required_acks: "Set `acks` to `all`, 1 or 0.",
    Code.illegal_generation: (
        "None: the member joins again. If it repeats, processing takes longer than"
        " `max.poll.interval.ms`."
    ),
    Code.inconsistent_group_protocol: (
        "All members of a group need one assignment strategy in common"
        " (`partition.assignment.strategy`)."
    ),
    Code.invalid_group_id: "Give the group a name: it must not be empty.",
    Code.unknown_member_id: (
        "None: the member joins again. If it repeats, heartbeats come too late"
        " (`session.timeout.ms`)."
    ),
    Code.invalid_session_timeout: (
        "Set `session.timeout.ms` between `group_session_timeout_min_ms` and"
        " `group_session_timeout_max_ms`."
    ),
    Code.rebalance_in_progress: "None: the member joins again.",
    Code.topic_authorization_failed: (
        "Grant the user the role or the entry (`quire acl grant`, `quire acl add`);"
        " `request.denied` in the log names what is missing."
    ),
    Code.group_authorization_failed: "Grant READ on the group (`quire acl grant ... --group`).",
    Code.cluster_authorization_failed: (
        "Grant the operation on the cluster (`quire acl add --cluster`), or use a super user."
    ),
    Code.invalid_timestamp: (
        "A record's time is outside `message.timestamp.before.max.ms` and"
        " `message.timestamp.after.max.ms`: correct the clock of the producer."
    ),
    Code.unsupported_sasl_mechanism: (
        "Use a mechanism of the answer, or add yours to `security.sasl_mechanisms`."
    ),
    Code.illegal_sasl_state: (
        "The client logs in on a listener without logins, or twice at once: set"
        " `security.protocol` to that of the listener."
    ),
    Code.unsupported_version: (
        "Use a client that asks for the versions that a broker serves (ApiVersions), or one from"
        " the list in Clients."
    ),
    Code.topic_already_exists: "None: it is there. To change it, `quire topic alter`.",
    Code.invalid_partitions: "A topic's partitions can only become more, and at least one.",
    Code.invalid_replication_factor: (
        "Ask for at most as many copies as there are bookies, or start more of them."
    ),
    Code.invalid_replica_assignment: "Name brokers that are registered, each once.",
    Code.invalid_config: "Correct the name or value of the setting: the message names the range.",
    Code.invalid_request: (
        "The request contradicts itself, or asks for more than `request_items_max` things: the"
        " message says what."
    ),
    Code.policy_violation: (
        "The request is legal and this cluster does not allow it: the message names the setting."
    ),
    Code.out_of_order_sequence_number: (
        "A batch before this one is missing: the producer must end. Applications start a new"
        " producer; with transactions they abort."
    ),
    Code.invalid_producer_epoch: (
        "Another producer with the same transactional id has begun, or the transaction has timed"
        " out: end this one."
    ),
    Code.invalid_txn_state: (
        "The application commits, or sends, outside a transaction, or the transaction has ended:"
        " start a new one."
    ),
    Code.invalid_producer_id_mapping: (
        "The transactional id has expired (`transactions.id_expiration_ms`), or is another"
        " producer's: start a new producer."
    ),
    Code.invalid_transaction_timeout: (
        "Set `transaction.timeout.ms` to at most `transactions.timeout_max_ms`."
    ),
    Code.concurrent_transactions: (
        "None: the former transaction is being completed, and clients ask again."
    ),
    Code.transaction_coordinator_fenced: (
        "None: another coordinator has taken over, and its markers count."
    ),
    Code.transactional_id_authorization_failed: (
        "Grant WRITE on the transactional id; or transactions are switched off"
        " (`transactions.enabled`)."
    ),
    Code.security_disabled: (
        "Set `security.authorization = true` on all brokers: without it, access control lists"
        " decide nothing."
    ),
    Code.kafka_storage_error: (
        "The bookies could not do it: see the broker's log, `quire bookie list` and `quire doctor`."
    ),
    Code.sasl_authentication_failed: (
        "The user or the password is wrong; `login.refused` in the broker's log says which."
    ),
    Code.non_empty_group: "Stop the group's members before you delete it or its offsets.",
    Code.group_id_not_found: "There is no such group, or it has been deleted.",
    Code.fetch_session_id_not_found: "None: the client begins a new session.",
    Code.invalid_fetch_session_epoch: "None: the client begins a new session.",
    Code.invalid_record_state: "None: the record is delivered again. Often: give members more time"
    " (share.record.lock.duration.ms of the group), or let them renew.",
    Code.share_session_not_found: "None: the client begins a new session.",
    Code.invalid_share_session_epoch: "None: the client begins a new session.",
    Code.share_session_limit_reached: "None: the client tries again. Often: raise"
    " group_share_max_share_sessions.",
    Code.fenced_leader_epoch: "None: the client asks for metadata again.",
    Code.unknown_leader_epoch: "None: this broker is behind, and clients ask again.",
    Code.unsupported_compression_type: (
        "Use none, gzip, snappy, lz4 or zstd; zstd needs a client of Kafka 2.1 or newer."
    ),
    Code.offset_not_available: (
        "None: a new leader does not know its end yet, and clients ask again."
    ),
    Code.member_id_required: "None: a part of joining.",
    Code.group_max_size_reached: (
        "Raise `group_size_max` or `group_consumer_max_size`, or run fewer members."
    ),
    Code.fenced_instance_id: "Two members have the same `group.instance.id`: give each its own.",
    Code.fenced_member_epoch: "None: the client gives its partitions up and joins again.",
    Code.stale_member_epoch: (
        "None: the client's next heartbeat tells it its epoch, and it commits again."
    ),
    Code.unreleased_instance_id: (
        "Two members have the same `group.instance.id`: give each its own, or let the first one"
        " leave."
    ),
    Code.unsupported_assignor: "Set `group.remote.assignor` to one of `group_consumer_assignors`.",
    Code.no_reassignment_in_progress: (
        "None: there is nothing to cancel. Reassignments are done at once."
    ),
    Code.group_subscribed_to_topic: (
        "Stop the members that consume the topic before you delete its offsets."
    ),
    Code.invalid_record: (
        "No consumer could read the record: correct the producer. A compacted topic takes only"
        " records with keys."
    ),
    Code.throttling_quota_exceeded: (
        "Wait as long as the answer says, or raise the quota (`quire quota set`)."
    ),
    Code.producer_fenced: (
        "Another producer with the same transactional id has begun: end this one."
    ),
    Code.resource_not_found: "There is no such user or entry: see `quire user list`.",
    Code.duplicate_resource: "Name each user or entry once in a request.",
    Code.unacceptable_credential: (
        "SCRAM takes 4,096 to 16,384 iterations, and names and salts that are not empty."
    ),
    Code.invalid_update_version: (
        "The feature has no such level: the message names those that there are."
    ),
    Code.unknown_topic_id: (
        "None: clients ask for metadata again. The topic was made anew, or is new to this broker."
    ),
    Code.broker_id_not_registered: "There is no such broker: see `quire broker list`.",
    Code.inconsistent_topic_id: "None: clients ask for metadata again.",
    Code.transactional_id_not_found: (
        "There is no such transaction, or it has expired: see `quire transaction list`."
    ),
    Code.fetch_session_topic_id_error: "None: the client begins a new session.",
    Code.transaction_abortable: "Abort the transaction and run it again: the producer may go on.",
    Code.invalid_regular_expression: "Correct the expression: its syntax is RE2's.",
}
"""Kafka's code -> what people should do; "None" where clients see to it."""
