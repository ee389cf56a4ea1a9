"""Places in a partition, as people write them."""

import click
import pytest

from ops.cli.options import place_of


def test_places() -> None:
    assert place_of("earliest", "--to") == {"to": "earliest"}
    assert place_of("17", "--to") == {"to": "offset", "offset": 17}
    assert place_of("1970-01-01T01:00:00.5+01:00", "--to") == {
        "to": "timestamp",
        "timestamp_ms": 500,
    }


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "²", "2026-13-01"])
def test_what_is_no_place_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither earliest, latest, an offset nor a time"):
        place_of(text, "--to")
