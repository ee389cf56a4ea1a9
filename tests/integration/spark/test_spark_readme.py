"""The example that opens the page of the Spark source, as it stands there."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.integration.cluster import ROOT, LocalCluster
from tests.integration.spark.topics import create

README = (ROOT / "client/spark/README.md").read_text(encoding="utf-8")


def test_the_first_example(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    create(cluster, "orders", partition_count=2)
    for customer, amount in (("ann", 5), ("bob", 7), ("ann", 10)):
        producer.produce("orders", str(amount), key=customer)
    assert producer.flush(30) == 0
    example = next(
        text for text in re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
        if '"subscribe", "orders"' in text
    )  # fmt: skip
    names: dict[str, Any] = {
        "spark": spark,
        "BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "CHECKPOINT": str(tmp_path),
    }
    exec(example, names)
    shown = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert [[cell.strip() for cell in row] for row in shown] == [
        ["customer", "sum(amount)"], ["ann", "15.0"], ["bob", "7.0"],
    ]  # fmt: skip
