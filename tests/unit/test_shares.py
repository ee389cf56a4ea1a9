"""Which integration tests stay in one process when two run side by side."""

from pathlib import Path

from tests.conftest import share_of

ROOT = Path(__file__).parents[2]


def test_a_file_stays_together() -> None:
    one, other = "tests/unit/test_a.py::test_x[a::b]", "tests/unit/test_a.py::test_y"
    assert share_of(one) == share_of(other) == "tests/unit/test_a.py"


def test_folders_with_dear_fixtures_stay_together_and_one_spark_is_enough() -> None:
    assert share_of("tests/integration/spark/test_sink.py::test_x") == "spark"
    assert share_of("tests/integration/test_bench.py::test_x") == "spark"
    assert share_of("tests/integration/page/test_page.py::test_x") == "page"
