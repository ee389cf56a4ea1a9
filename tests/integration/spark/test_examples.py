"""The examples run as they are, on a part of what the demonstration publishes."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from client.pubsub import Publisher, TopicAdmin
from ops.demo import sources, words
from ops.demo.spark_counts import count_words
from ops.demo.story import TOPIC
from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.spark.topics import create

FILES = {
    f"json/{name}": content
    for name, content in sources.read_files(Path(json.__file__).parent).items()
}
LINES = {name: sources.split(content) for name, content in FILES.items()}
LINE_COUNT = sum(map(len, LINES.values()))


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster) -> str:
    """The demonstration's topic, with small ledgers."""

    async def fill() -> None:
        async with TopicAdmin(cluster.bootstrap_servers) as topics:
            await topics.create(TOPIC, partition_count=2, configs={"segment.bytes": "16384"})
        async with Publisher(cluster.bootstrap_servers, batch_size_max=4096) as publisher:
            for name, lines in LINES.items():
                for line in lines:
                    await publisher.enqueue(TOPIC, line, key=name.encode())

    asyncio.run(fill())
    return TOPIC


@pytest.fixture
def run(
    cluster: LocalCluster, spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Any]:  # fmt: skip
    """Run an example and return its variables; `SparkSession.builder` finds the tests' session."""
    monkeypatch.setenv("QUIRE_BOOTSTRAP", cluster.bootstrap_servers)
    monkeypatch.setenv("QUIRE_ZOOKEEPER", cluster.zookeeper)
    monkeypatch.setenv("QUIRE_TOPIC", topic)
    monkeypatch.setenv("QUIRE_CHECKPOINT", str(tmp_path / "checkpoint"))
    monkeypatch.setenv("QUIRE_FOLDER", str(tmp_path))

    def run_example(name: str) -> dict[str, Any]:
        return runpy.run_path(str(ROOT / "examples" / name))

    yield run_example
    for query in spark.streams.active:
        query.stop()


def test_running_counts(run: Any, spark: SparkSession) -> None:
    run("spark_running_counts.py")
    rows = spark.table("running_counts").collect()
    assert {row["package"] for row in rows} == {"json"}
    assert sum(row["lines"] for row in rows) == LINE_COUNT
    assert sum(row["bytes"] for row in rows) == sum(map(len, FILES.values()))


def test_to_parquet(run: Any, tmp_path: Path) -> None:
    run("spark_to_parquet.py")
    written = run("spark_to_parquet.py")["written"].collect()  # a second run finds nothing new
    assert len(written) == LINE_COUNT
    assert len({(row["partition"], row["offset"]) for row in written}) == LINE_COUNT
    content: dict[str, str] = {}
    for row in sorted(written, key=lambda row: (row["partition"], row["offset"])):
        content[row["file"]] = content.get(row["file"], "") + row["line"]
    assert {name: text.encode() for name, text in content.items()} == FILES
    files = list(tmp_path.glob("table/*/*.parquet"))
    types = {
        (column.name, column.physical_type)
        for file in files
        for column in pq.ParquetFile(file).schema
    }
    assert ("timestamp", "INT64") in types
    assert not [name for name, kind in types if kind == "INT96"]


def test_exactly_once(run: Any, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = create(cluster, "examples-shouted", partition_count=3)
    monkeypatch.setenv("QUIRE_COPY", copy)
    run("spark_exactly_once.py")
    copied = run("spark_exactly_once.py")["copied"].collect()  # a second run finds nothing new
    wanted = sorted(line.decode().upper() for lines in LINES.values() for line in lines)
    assert sorted(row["value"].decode() for row in copied) == wanted


def test_backfill_from_ledgers(run: Any) -> None:
    found = run("spark_backfill_from_ledgers.py")
    assert found["everything"].rdd.getNumPartitions() >= 8
    rows = {row["file"]: (row["lines"], row["bytes"]) for row in found["longest"].collect()}
    assert rows == {name: (len(LINES[name]), len(FILES[name])) for name in FILES}


def test_the_demonstrations_query_counts_like_python(
    cluster: LocalCluster, spark: SparkSession, topic: str
) -> None:
    lines = (
        spark.read.format("quire")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    counts: words.Counts = Counter()
    for kind, text, number in count_words(lines).collect():
        counts[kind, text] = number
    expected = words.count(line for some in LINES.values() for line in some)
    assert words.differences(expected, counts) == []


@pytest.mark.timeout(300)
def test_the_spark_demonstration(tmp_path: Path) -> None:
    """The same run as `quire demo spark`, on a small part of the standard library."""
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", "demo", "spark", "--json", "--source",
         str(Path(json.__file__).parent)],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["good"] is True
    assert report["lines"] == LINE_COUNT
    assert report["differences"] == []
    assert "every count is the same" in done.stderr
    assert not list(tmp_path.glob("quire-demo*")), "the scratch folder is not removed"
