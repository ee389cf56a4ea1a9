"""What a task does with its splits."""

import gc

import pytest
from pyspark.sql.datasource import InputPartition

from client.spark.read import task_reader
from client.spark.read.task_reader import read_task
from client.spark.splits import TaskSplits
from tests.unit.client.spark.test_options import parse


def test_a_batch_without_tasks_has_one_in_spark() -> None:
    assert list(read_task(InputPartition(None), parse())) == []


@pytest.mark.parametrize(("switch", "frozen_at"), [("true", [2]), ("false", [])])
def test_garbage_is_frozen_once_at_the_second_task(
    monkeypatch: pytest.MonkeyPatch, switch: str, frozen_at: list[int]
) -> None:
    monkeypatch.setattr(task_reader, "_tasks_begun", 0)
    found: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append(task_reader._tasks_begun))
    for _ in range(4):
        assert list(read_task(TaskSplits(()), parse(gcFreeze=switch))) == []
    assert found == frozen_at
