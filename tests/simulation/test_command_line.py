"""What is wrong on the command line is said in a sentence."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import _parse
from tests.simulation.mutants.table import PLANTS


@pytest.mark.parametrize(
    ("text", "seeds"), [("813", range(813, 814)), ("0..1500", range(1500)), ("7..8", range(7, 8))]
)
def test_seeds(text: str, seeds: range) -> None:
    assert _parse(["--seeds", text]).seeds == seeds


def test_by_default_there_are_neither_seeds_nor_a_mutant() -> None:
    options = _parse([])
    assert options.seeds is None
    assert options.mutant == ""


@pytest.mark.parametrize("text", ["813,814", "", "..5", "a..b", "5..5", "9..3"])
def test_seeds_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["--seeds", text])
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"argument --seeds: {text!r}" in last


def test_a_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    name = next(iter(PLANTS))
    assert _parse(["--mutant", name]).mutant == name
    with pytest.raises(SystemExit):
        _parse(["--mutant", f"{name}s"])
    assert name in capsys.readouterr().err.splitlines()[-1]
