"""Whether a Spark job finds the format `quire` depends on the Python that Spark starts."""

from __future__ import annotations

from pathlib import Path

from ops.doctor.findings import Level
from ops.doctor.spark import SparkFacts, check_spark, look

RIGHT = SparkFacts("/venv/bin/python", (), "/venv/bin/python3", True)


def test_the_right_python_is_fine() -> None:
    (found,) = check_spark(RIGHT)
    assert found.level is Level.FINE


def test_nothing_is_said_without_spark() -> None:
    assert check_spark(RIGHT._replace(missing=("pyspark", "numpy"), workers_have_quire=False)) == []


def test_another_python_is_named_and_what_to_set() -> None:
    (found,) = check_spark(
        RIGHT._replace(workers_python="/usr/bin/python3", workers_have_quire=False)
    )
    assert found.level is Level.WARNING
    assert "/usr/bin/python3, which does not have Quire" in found.what
    assert "Failed to find the data source: quire" in found.what
    assert "PYSPARK_PYTHON=/venv/bin/python" in found.advice


def test_pyspark_alone_may_be_there_for_its_zookeeper() -> None:
    facts = RIGHT._replace(missing=("numpy", "pyarrow"), workers_have_quire=False)
    (found,) = check_spark(facts)
    assert found.level is Level.FINE
    assert "without numpy and pyarrow" in found.what
    assert "pip install pyspark" in found.what


def test_a_python_that_is_not_there_has_no_quire(tmp_path: Path) -> None:
    facts = look({"PATH": str(tmp_path), "PYSPARK_PYTHON": "python-of-another-machine"})
    assert (facts.workers_python, facts.workers_have_quire) == ("python-of-another-machine", False)
