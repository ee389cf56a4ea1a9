"""Kafka's own command-line tools: a user's ordinary command for each, and the shape of the answer.

Each is run by its main class, with the arguments that its `kafka-*.sh` would pass on, several in
one JVM (`clients/kafka_tools.py`). The commands are in order: later ones look at what earlier ones
did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.integration.clients.kafka_tools import ToolsJvm

_TOOLS = "org.apache.kafka.tools"
_TOPICS = f"{_TOOLS}.TopicCommand"
_GROUPS = f"{_TOOLS}.consumer.group.ConsumerGroupCommand"
_OFFSETS = f"{_TOOLS}.GetOffsetShell"
_CONFIGS = "kafka.admin.ConfigCommand"
_REASSIGN = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
_QUORUM = f"{_TOOLS}.MetadataQuorumCommand"
_CLUSTER = f"{_TOOLS}.ClusterTool"
_TRANSACTIONS = f"{_TOOLS}.TransactionsCommand"


class Command(NamedTuple):
    """One command; `SERVER` and `FOLDER` in its arguments stand for what they are."""

    script: str
    """What users call, without `.sh`."""
    main: str
    arguments: str
    text: str = ""
    """What is typed in."""


class Answer(NamedTuple):
    """What a command said, without what is different each time."""

    exit_code: int
    lines: frozenset[str]


_B = "--bootstrap-server SERVER"
_QUOTA = "--entity-type users --entity-name anna"
_TOPIC = "--entity-type topics --entity-name orders"
COMMANDS: Sequence[Command] = (
    Command("kafka-topics", _TOPICS, f"{_B} --create --topic orders --partitions 2"),
    Command("kafka-topics", _TOPICS, f"{_B} --create --topic orders"),
    Command("kafka-topics", _TOPICS, f"{_B} --list"),
    Command("kafka-topics", _TOPICS, f"{_B} --alter --topic orders --partitions 3"),
    Command("kafka-topics", _TOPICS, f"{_B} --describe --topic orders"),
    Command(
        "kafka-console-producer", f"{_TOOLS}.ConsoleProducer",
        f"{_B} --topic orders --reader-property parse.key=true --reader-property key.separator=:",
        "a:1\nb:2\nc:3\nd:4\n",
    ),
    Command(
        "kafka-console-consumer", f"{_TOOLS}.consumer.ConsoleConsumer",
        f"{_B} --topic orders --from-beginning --max-messages 4 --group readers"
        " --formatter-property print.key=true",
    ),
    Command(
        "kafka-producer-perf-test", f"{_TOOLS}.ProducerPerformance",
        f"{_B} --topic orders --num-records 1000 --record-size 100 --throughput -1",
    ),
    Command(
        "kafka-consumer-perf-test", f"{_TOOLS}.ConsumerPerformance",
        f"{_B} --topic orders --num-records 500",
    ),
    Command(
        "kafka-e2e-latency", f"{_TOOLS}.EndToEndLatency",
        f"{_B} --topic latency --num-records 50 --producer-acks all --record-size 100",
    ),
    Command("kafka-topics", _TOPICS, f"{_B} --create --topic verified --partitions 1"),
    Command(
        "kafka-verifiable-producer", f"{_TOOLS}.VerifiableProducer",
        f"{_B} --topic verified --max-messages 5",
    ),
    Command(
        "kafka-verifiable-consumer", f"{_TOOLS}.VerifiableConsumer",
        f"{_B} --topic verified --group-id verifiers --max-messages 5 --reset-policy earliest",
    ),
    Command("kafka-consumer-groups", _GROUPS, f"{_B} --list"),
    Command("kafka-consumer-groups", _GROUPS, f"{_B} --describe --group readers"),
    Command("kafka-consumer-groups", _GROUPS, f"{_B} --describe --group readers --state"),
    Command("kafka-consumer-groups", _GROUPS, f"{_B} --describe --group readers --members"),
    Command(
        "kafka-consumer-groups", _GROUPS,
        f"{_B} --reset-offsets --group readers --topic orders --to-earliest --execute",
    ),
    Command("kafka-groups", f"{_TOOLS}.GroupsCommand", f"{_B} --list"),
    Command("kafka-get-offsets", _OFFSETS, f"{_B} --topic orders"),
    Command("kafka-get-offsets", _OFFSETS, f"{_B} --topic orders --time earliest"),
    Command("kafka-get-offsets", _OFFSETS, f"{_B} --topic orders --time max-timestamp"),
    Command("kafka-configs", _CONFIGS, f"{_B} --alter {_TOPIC} --add-config retention.ms=900000"),
    Command("kafka-configs", _CONFIGS, f"{_B} --describe {_TOPIC}"),
    Command("kafka-configs", _CONFIGS, f"{_B} --describe --entity-type brokers --entity-name 0"),
    Command(
        "kafka-configs", _CONFIGS,
        f"{_B} --alter --entity-type brokers --entity-default"
        " --add-config log.retention.ms=100000000",
    ),
    Command("kafka-configs", _CONFIGS, f"{_B} --alter {_QUOTA} --add-config producer_byte_rate=9"),
    Command("kafka-configs", _CONFIGS, f"{_B} --describe {_QUOTA}"),
    Command(
        "kafka-configs", _CONFIGS,
        f"{_B} --alter {_QUOTA} --add-config SCRAM-SHA-256=[password=secret]",
    ),
    Command("kafka-configs", _CONFIGS, f"{_B} --describe --entity-type groups --entity-name x"),
    Command("kafka-configs", _CONFIGS, f"{_B} --describe --entity-type client-metrics"),
    Command("kafka-client-metrics", f"{_TOOLS}.ClientMetricsCommand", f"{_B} --list"),
    Command(
        "kafka-delete-records", f"{_TOOLS}.DeleteRecordsCommand",
        f"{_B} --offset-json-file FOLDER/records.json",
    ),
    Command(
        "kafka-log-dirs", f"{_TOOLS}.LogDirsCommand", f"{_B} --describe --topic-list verified"
    ),
    Command(
        "kafka-leader-election", f"{_TOOLS}.LeaderElectionCommand",
        f"{_B} --election-type preferred --path-to-json-file FOLDER/elect.json",
    ),
    Command(
        "kafka-reassign-partitions", _REASSIGN,
        f"{_B} --generate --topics-to-move-json-file FOLDER/topics.json --broker-list 0",
    ),
    Command(
        "kafka-reassign-partitions", _REASSIGN,
        f"{_B} --execute --reassignment-json-file FOLDER/move.json",
    ),
    Command(
        "kafka-reassign-partitions", _REASSIGN,
        f"{_B} --verify --reassignment-json-file FOLDER/move.json",
    ),
    Command("kafka-reassign-partitions", _REASSIGN, f"{_B} --list"),
    Command("kafka-metadata-quorum", _QUORUM, f"{_B} describe --status"),
    Command("kafka-features", f"{_TOOLS}.FeatureCommand", f"{_B} describe"),
    Command("kafka-cluster", _CLUSTER, f"cluster-id {_B}"),
    Command("kafka-cluster", _CLUSTER, f"list-endpoints {_B}"),
    Command("kafka-cluster", _CLUSTER, f"unregister {_B} --id 77"),
    Command("kafka-broker-api-versions", f"{_TOOLS}.BrokerApiVersionsCommand", _B),
    Command("kafka-acls", f"{_TOOLS}.AclCommand", f"{_B} --list"),
    Command("kafka-transactions", _TRANSACTIONS, f"{_B} list"),
    Command(
        "kafka-transactions", _TRANSACTIONS,
        f"{_B} describe-producers --topic verified --partition 0",
    ),
    Command("kafka-transactions", _TRANSACTIONS, f"{_B} find-hanging --broker-id 0"),
    Command("kafka-delegation-tokens", f"{_TOOLS}.DelegationTokenCommand", f"{_B} --describe"),
    Command(
        "kafka-streams-application-reset", f"{_TOOLS}.StreamsResetter",
        f"{_B} --application-id nobody --input-topics orders",
    ),
    Command(
        "kafka-run-class LogCompactionTester", f"{_TOOLS}.LogCompactionTester",
        f"{_B} --messages 2000 --topics 1 --percent-deletes 10 --sleep 2",
    ),
    Command(
        "kafka-run-class ClientCompatibilityTest", f"{_TOOLS}.ClientCompatibilityTest",
        f"{_B} --topic compatible --cluster-id-supported true --offsets-for-times-supported true"
        " --expect-record-too-large-exception true --num-cluster-nodes 1"
        " --create-topics-supported true --describe-acls-supported false"
        " --describe-configs-supported true --idempotent-producer-supported true",
    ),
    Command("kafka-share-groups", f"{_TOOLS}.consumer.group.ShareGroupCommand", f"{_B} --list"),
    Command("kafka-streams-groups", f"{_TOOLS}.streams.StreamsGroupCommand", f"{_B} --list"),
    Command("kafka-consumer-groups", _GROUPS, f"{_B} --delete --group readers"),
    Command("kafka-topics", _TOPICS, f"{_B} --delete --topic orders"),
)  # fmt: skip


def write_files(folder: Path) -> None:
    """Write what some of the commands read."""
    at = {"topic": "verified", "partition": 0}
    files = {
        "records": {"partitions": [{**at, "offset": 2}], "version": 1},
        "topics": {"topics": [{"topic": "verified"}], "version": 1},
        "move": {"partitions": [{**at, "replicas": [0]}], "version": 1},
        "elect": {"partitions": [at]},
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


class Tools(ToolsJvm):
    """Runs commands against one cluster. Use as a context manager, which ends the JVM."""

    def __init__(self, server: str, folder: Path) -> None:
        """`server`: a broker's address; `folder`: where the files are that commands read."""
        super().__init__()
        self._words = {"SERVER": server, "FOLDER": str(folder)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def answer(self, command: Command) -> Answer:
        """Run a command and return what it said."""
        told = command.arguments
        for word, meaning in self._words.items():
            told = told.replace(word, meaning)
        ended = self.run(command.main, *told.split(), text=command.text)
        return Answer(ended.code, frozenset(_shapes(f"{ended.out}\n{ended.err}")))


def _shapes(text: str) -> Iterator[str]:
    """Yield the lines without addresses, times, ids, numbers, and Java's stack traces."""
    for line in text.splitlines():
        shape = _in_order(line.strip())
        for pattern, word in _DIFFERENT_EACH_TIME:
            shape = pattern.sub(word, shape)
        if shape and not shape.startswith(("at ", "Caused by:", "... ", "java.util.concurrent.")):
            yield shape


def _in_order(line: str) -> str:
    """Return an object of JSON with its names in order; a JVM has them in one of its own."""
    if not line.startswith('{"'):
        return line
    return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))


_DIFFERENT_EACH_TIME = tuple(
    (re.compile(pattern), word)
    for pattern, word in (
        (r"(127\.0\.0\.1|localhost):\d+", "HOST"),
        (r"\d{4}-\d\d-\d\d[ T][\d:.,]+", "TIME"),
        (r'"log_dirs":\["[^"]*"', '"log_dirs":["DIR"'),
        (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
        (r"(?<=: )[A-Za-z0-9_-]{22}$", "ID"),
        (r"log-cleaner-test-[0-9-]+", "TOPIC"),
        (r"\b(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])", "ID"),
        (r"-?\d+(\.\d+)?(E-?\d+)?", "N"),
        (r"[ \t]+", " "),
    )
)
