"""`make ecosystem`: the programs of others, unmodified, one row each, with version and result.

Each row is a selection of the integration tests; what it prints goes to a log in `build/ecosystem`,
the table beside them. Exit code 1 if a row failed. What is not among the rows
stands below the table, with the reason.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).resolve().parent.parent.parent
BUILD: Final = ROOT / "build" / "ecosystem"
_CLIENTS: Final = "tests/integration/clients"
_TRANSACTIONAL: Final = f"{_CLIENTS}/test_transactional_clients.py"


class Program(NamedTuple):
    """A row."""

    name: str
    version: Callable[[], str]
    tests: Sequence[str]
    """pytest's arguments."""
    what: str


def _package(name: str) -> Callable[[], str]:
    return lambda: version(name)


def _jar(folder: str, pattern: str) -> Callable[[], str]:
    """Return the version in the name of a jar below the integration tests."""

    def found() -> str:
        names = sorted(one.name for one in (ROOT / "tests/integration" / folder).glob(pattern))
        numbers = [re.search(r"-(\d[\w.]*)\.jar", name) for name in names]
        return ", ".join(one[1] for one in numbers if one) or "not installed"

    return found


def _librdkafka() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def _output(*command: str) -> Callable[[], str]:
    def found() -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
        except OSError:
            return "not installed"
        numbers = re.search(r"\d+\.\d+[\w.]*", done.stdout + done.stderr)
        return numbers[0] if numbers else "unknown"

    return found


def _file(path: str, pattern: str) -> Callable[[], str]:
    def found() -> str:
        at = ROOT / "tests/integration" / path
        numbers = re.search(pattern, at.read_text()) if at.is_file() else None
        return numbers[1] if numbers else "not installed"

    return found


PROGRAMS: Final[Sequence[Program]] = (
    Program("librdkafka", _librdkafka, [f"{_CLIENTS}/test_confluent_kafka.py",
            f"{_CLIENTS}/test_transactions.py", "-k", "not Java"],
            "groups, codecs, transactions, a second producer of an id"),
    Program("kcat", _output("kcat", "-V"), [f"{_CLIENTS}/test_kcat.py"],
            "groups, codecs, metadata"),
    Program("kafka-python", _package("kafka-python"), [f"{_CLIENTS}/test_kafka_python.py"],
            "groups, topics made by publishing"),
    Program("aiokafka", _package("aiokafka"), [f"{_CLIENTS}/test_aiokafka.py"],
            "groups, topics made by publishing"),
    Program("kafkajs", _file("clients/kafkajs/node_modules/kafkajs/package.json",
            r'"version": "([\d.]+)"'), [f"{_CLIENTS}/test_kafkajs.py"], "groups, gzip"),
    Program("@platformatic/kafka", _file(
            "clients/kafkajs/node_modules/@platformatic/kafka/package.json",
            r'"version": "([\d.]+)"'), [f"{_CLIENTS}/test_platformatic.py"],
            "groups, gzip, partitions of keys"),
    Program("franz-go", _file("clients/franz-go/go.mod", r"franz-go v([\d.]+)"),
            [_TRANSACTIONAL, "-k", "franz"], "transactions with offsets, fencing"),
    Program("sarama", _file("clients/golang/go.mod", r"sarama v([\d.]+)"),
            [f"{_CLIENTS}/test_go_and_rust.py", _TRANSACTIONAL, "-k", "sarama or codecs"],
            "groups, codecs, admin, transactions with offsets, fencing, a compacted topic"),
    Program("kafka-go", _file("clients/golang/go.mod", r"kafka-go v([\d.]+)"),
            [f"{_CLIENTS}/test_go_and_rust.py", "-k", "kafka-go or codecs"],
            "groups, codecs, admin, a compacted topic"),
    Program("rskafka", _file("clients/rust/Cargo.toml", r'rskafka = .*?"=([\d.]+)"'),
            [f"{_CLIENTS}/test_go_and_rust.py", "-k", "rskafka or codecs"],
            "admin, codecs, a compacted topic"),
    Program("transactional clients", lambda: "as above", [_TRANSACTIONAL],
            "Java, librdkafka, kafka-python, aiokafka, kafkajs, franz-go, sarama"),
    Program("Java client", _jar("clients/java/lib", "kafka-clients-*.jar"),
            [f"{_CLIENTS}/test_java_tools.py", f"{_CLIENTS}/test_transactions.py", "-k",
             "java_tools or Java or Tools"], "consoles, groups, codecs, transactions"),
    Program("Java client, older", _jar("clients/java-3.9/lib", "kafka-clients-*.jar"),
            [f"{_CLIENTS}/test_java_old_and_new.py", _TRANSACTIONAL, "-k",
             "old_and_new or java-3.9"],
            "codecs and a group together with the newer one, admin, transactions, fencing"),
    Program("kafka-*.sh", _jar("clients/java/lib", "kafka-tools-[0-9]*.jar"),
            ["tests/integration/differential/test_tools_beside_kafka.py"],
            "every tool that asks brokers, and kafka-dump-log: the same output as on Apache Kafka"),
    Program("Kafka Streams", _jar("clients/streams/lib", "kafka-streams-[0-9]*.jar"),
            [f"{_CLIENTS}/test_kafka_streams.py"],
            "word count exactly once and at least once, killed in the middle"),
    Program("MirrorMaker 2", _jar("moving/lib", "connect-mirror-[0-9]*.jar"),
            ["tests/integration/moving/test_moving.py", "tests/integration/moving/test_killed.py"],
            "an application moves from Apache Kafka and back, offsets translated; exactly once"
            " to a secured Quire, killed in the middle"),
    Program("Debezium", _jar("clients/debezium/lib", "debezium-connector-postgres-*.jar"),
            [f"{_CLIENTS}/test_debezium.py"],
            "Kafka Connect alone; a table of PostgreSQL and its changes"),
    Program("Flink's Kafka connector", _jar("clients/flink/lib", "flink-connector-kafka-*.jar"),
            [f"{_CLIENTS}/test_flink.py"], "a bounded job, exactly once"),
    Program("Kafka Connect", _jar("clients/connect/lib", "connect-runtime-[0-9]*.jar"),
            [f"{_CLIENTS}/test_kafka_connect.py"], "an exactly-once source, its worker killed"),
    Program("Spark's own Kafka connector", _jar("spark/jars/lib", "spark-sql-kafka-*.jar"),
            ["tests/integration/spark/test_official_connector.py"], "source and sink"),
    Program("Confluent's serializers", _package("confluent-kafka"),
            ["tests/integration/test_schemas.py"], "Avro, JSON, Protobuf with `quire schemas`"),
    Program("kaskade", _file("clients/kaskade/requirements.txt", r"kaskade==([\d.]+)"),
            [f"{_CLIENTS}/test_kaskade.py"],
            "a user interface in a terminal: topics, partitions, groups, members, lag; topics made,"
            " edited, deleted; records as text, JSON, and Avro with `quire schemas`"),
    Program("secured clients", lambda: "as above", [f"{_CLIENTS}/test_secured.py"],
            "TLS, SASL, ACLs: librdkafka, aiokafka, kafka-python, Java and its tools"),
)  # fmt: skip

NOT_HERE: Final[Mapping[str, str]] = {
    "rdkafka (Rust)": "librdkafka itself, which has a row",
    "Kafdrop, AKHQ, kafbat's Kafka UI, Kafka WebView": "their jars are not on Maven Central (asked"
    " for com.obsidiandynamics.kafdrop, com.homeadvisor.kafka, org.akhq, io.kafbat.ui and"
    " org.sourcelab); they come as images and archives",
    "Redpanda Console, ktea, kaf": "the Go module proxy does not have the first's backend, nor the"
    " others",
    "Quarkus' Kafka Dev UI": "its jar is on Maven Central; it is a page of an application that is"
    " being developed, not a program of its own",
    "web interfaces of npm and PyPI": "none of the field's; a viewer of messages alone is there",
}


def main() -> int:
    """Run all rows, or those whose names contain an argument."""
    wanted = [one.lower() for one in sys.argv[1:]]
    chosen = [p for p in PROGRAMS if not wanted or any(one in p.name.lower() for one in wanted)]
    BUILD.mkdir(parents=True, exist_ok=True)
    rows = []
    for program in chosen:
        Console(stderr=True).print(f"ecosystem: {program.name} {program.version()}", style="dim")
        rows.append((program, *_run(program)))
    table = Table("PROGRAM", "VERSION", "RESULT", "SECONDS", "WHAT")
    for program, result, seconds, _ in rows:
        table.add_row(program.name, program.version(), result, f"{seconds:.0f}", program.what)
    Console().print(table)
    (BUILD / "README.md").write_text(_page(rows))
    return max((code for *_, code in rows), default=1)


def _run(program: Program) -> tuple[str, float, int]:
    """Return pytest's summary, how long it took, and 0 if all passed."""
    log = BUILD / f"{re.sub('[^a-z0-9]+', '-', program.name.lower()).strip('-')}.log"
    began = time.monotonic()
    with log.open("w") as out:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *program.tests]
        done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False)
    return (
        summary_of(log.read_text()) or f"no test ran, see {log.name}",
        time.monotonic() - began,
        0 if done.returncode == 0 else 1,
    )


def summary_of(log: str) -> str:
    """Return what pytest's own line says became of the tests; empty: there is none.

    What programs of others print may look like a part of it, and come behind it.
    """
    lines = re.findall(r"^\d+ [a-z]+,? .*in \d+\.\d+s\b", log, re.MULTILINE)
    counts = r"\d+ (?:passed|failed|errors?|skipped)\b"
    return ", ".join(re.findall(counts, lines[-1])) if lines else ""


def _page(rows: Sequence[tuple[Program, str, float, int]]) -> str:
    lines = ["# Programs of others with Quire", "", "| program | version | result | what |",
             "|---|---|---|---|"]  # fmt: skip
    lines += [f"| {p.name} | {p.version()} | {result} | {p.what} |" for p, result, _, _ in rows]
    lines += ["", "Not among them:", ""]
    return "\n".join([*lines, *(f"- {name}: {why}" for name, why in NOT_HERE.items()), ""])


if __name__ == "__main__":
    sys.exit(main())
