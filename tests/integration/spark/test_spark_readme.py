"""The examples of the first page and of the page of the Spark source, as they stand there."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.spark.topics import create

README = (ROOT / "client/spark/README.md").read_text(encoding="utf-8")
FIRST_PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def shown(output: str) -> list[list[str]]:
    """Return the cells of the first two columns of a table that Spark printed."""
    rows = (line.split("|")[1:3] for line in output.splitlines() if "|" in line)
    return [[cell.strip() for cell in row] for row in rows]


def example(page: str, mark: str) -> str:
    """Return the first block of Python on a page that contains a text."""
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return next(text for text in blocks if mark in text)


@pytest.mark.usefixtures("spark")
def test_the_example_of_the_first_page(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets the session that is there, and its topic has another name, as others may use that."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    create(cluster, "first-page", partition_count=1)
    for text in ("hello, world", "hello from kcat"):
        producer.produce("first-page", text)
    assert producer.flush(30) == 0
    text = example(FIRST_PAGE, "SparkSession")
    assert '"127.0.0.1:9092"' in text and '"greetings"' in text
    text = text.replace("127.0.0.1:9092", cluster.bootstrap_servers)
    exec(text.replace('"greetings"', '"first-page"'), {})
    assert shown(capsys.readouterr().out) == [
        ["offset", "value"], ["0", "hello, world"], ["1", "hello from kcat"],
    ]  # fmt: skip


def test_the_first_example(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    create(cluster, "orders", partition_count=2)
    for customer, amount in (("ann", 5), ("bob", 7), ("ann", 10)):
        producer.produce("orders", str(amount), key=customer)
    assert producer.flush(30) == 0
    names: dict[str, Any] = {
        "spark": spark,
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "CHECKPOINT": str(tmp_path),
    }
    exec(example(README, '"subscribe", "orders"'), names)
    assert shown(capsys.readouterr().out) == [
        ["customer", "sum(amount)"], ["ann", "15.0"], ["bob", "7.0"],
    ]  # fmt: skip
