"""Every test is in `make test` or in `make test-all`, once; and every simulated schedule too."""

import itertools
import re
from pathlib import Path

from tests.integration import ecosystem

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
MARKERS = ("integration", "smoke", "slow", "model")


def variables() -> dict[str, str]:
    return dict(re.findall(r"^([A-Z_]+) \??:?= (.*)$", MAKEFILE, re.MULTILINE))


def recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    return found[1]


def runs(target: str) -> list[str]:
    """Return which tests the pytest runs of a target choose, by their markers."""
    return [variables()[name] for name in re.findall(r'-m "\$\((\w+)\)"', recipe(target))]


def test_the_markers_of_a_test_name_one_run() -> None:
    expressions = runs("test") + runs("test-all")
    assert len(expressions) == 4
    for has in itertools.product((False, True), repeat=len(MARKERS)):
        marked = dict(zip(MARKERS, has, strict=True))
        chosen = [each for each in expressions if eval(each, {}, marked)]
        assert len(chosen) == 1, (marked, chosen)


def test_the_sample_and_the_rest_are_the_schedules_of_the_whole_run() -> None:
    for name in ("CLUSTER_SEEDS", "LEDGER_SEEDS"):
        first, rest = (
            re.findall(rf"{name}=(\d+)\.\.(\d+)", recipe(target)) for target in ("test", "test-all")
        )
        ((begin, middle),), ((goes_on, end),) = first, rest
        assert middle == goes_on
        assert f"{begin}..{end}" == variables()[name]


def test_only_what_runs_real_processes_is_called_smoke() -> None:
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark." + "smoke" in path.read_text(encoding="utf-8")
    ]
    assert marked
    assert [
        path for path in marked if not path.startswith(("tests/integration/", "tests/interop/"))
    ] == []


def test_the_rows_of_make_ecosystem_name_tests_that_exist() -> None:
    for program in ecosystem.PROGRAMS:
        paths = [one for one in program.tests if one.endswith(".py")]
        assert paths, program.name
        assert [one for one in paths if not (ROOT / one).is_file()] == []


def test_the_result_of_a_row_is_what_pytest_says_at_the_end() -> None:
    log = "[consumer] 25793 failed, 7 passed\n1 failed\n\n2 failed, 4 passed, 1 error in 3.05s\n"
    log += "%3|127.0.0.1:25793 failed: Connection refused\n"
    assert ecosystem.summary_of(log) == "2 failed, 4 passed, 1 error"
    assert ecosystem.summary_of("make: nothing to be done") == ""
