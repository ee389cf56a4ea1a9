"""RACKS: copies spread over racks, exactly as far as there are racks to spread them over."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from client.errors import NotEnoughBookies
from client.ids import BookieId
from client.ledger.core.placement import RackPlacement, RackRelation, relation


def bookies(layout: str) -> list[BookieId]:
    """Name bookies by their racks: "aab" is a0, a1 and b2."""
    return [BookieId(f"{rack}{number}") for number, rack in enumerate(layout)]


def rack_of(bookie: BookieId) -> str:
    return bookie[0]


def placement(
    racks_min: int = 2, *, enforced: bool = False, local_rack: str | None = None
) -> RackPlacement:
    return RackPlacement(rack_of, racks_min=racks_min, enforced=enforced, local_rack=local_rack)


def racks(ensemble: Sequence[BookieId]) -> str:
    return "".join(map(rack_of, ensemble))


@pytest.mark.parametrize("seed", range(10))
def test_three_copies_in_three_racks(seed: int) -> None:
    chosen = placement().choose_ensemble(3, 3, bookies("aaabbbccc"), random.Random(seed))
    assert sorted(racks(chosen)) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(10))
def test_the_last_places_are_neighbours_of_the_first(seed: int) -> None:
    chosen = racks(placement().choose_ensemble(4, 2, bookies("aaaabbbb"), random.Random(seed)))
    assert chosen in ("abab", "baba")


def test_every_layout_that_can_be_spread_is() -> None:
    """Against brute force, over small clusters."""
    rng = random.Random(5)
    for layout in ("aab", "aabb", "abcc", "aaab", "aabbc", "aaabc", "abcd", "aaaabb"):
        writable = bookies(layout)
        for size, write_quorum in ((2, 2), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2)):
            if size > len(writable):
                continue
            strict = placement(enforced=True)
            possible = any(
                strict.is_spread(order, write_quorum)
                for order in itertools.permutations(writable, size)
            )
            if possible:
                chosen = strict.choose_ensemble(size, write_quorum, writable, rng)
                assert strict.is_spread(chosen, write_quorum)
                assert len({*chosen}) == size
            else:
                with pytest.raises(NotEnoughBookies):
                    strict.choose_ensemble(size, write_quorum, writable, rng)
                loose = placement().choose_ensemble(size, write_quorum, writable, rng)
                assert len({*loose}) == size, "too few racks are better than no ledger"


def test_one_rack_is_no_rack() -> None:
    rng = random.Random(7)
    writable = bookies("aaaaaa")
    chosen = Counter(placement().choose_ensemble(2, 2, writable, rng)[0] for _ in range(3000))
    assert set(chosen) == set(writable)
    assert max(chosen.values()) < 1.4 * min(chosen.values())


def test_bookies_of_equal_racks_are_equally_likely() -> None:
    rng = random.Random(7)
    writable = bookies("aabbcc")
    chosen: Counter[BookieId] = Counter()
    for _ in range(2000):
        chosen.update(placement().choose_ensemble(3, 3, writable, rng))
    assert max(chosen.values()) < 1.2 * min(chosen.values())


def test_the_first_one_is_local() -> None:
    for seed in range(10):
        chosen = placement(local_rack="b").choose_ensemble(
            3, 3, bookies("aabbcc"), random.Random(seed)
        )
        assert racks(chosen)[0] == "b"
    chosen = placement(local_rack="z").choose_ensemble(3, 3, bookies("aabb"), random.Random(1))
    assert len(chosen) == 3, "nobody is there"


def test_too_few_bookies() -> None:
    with pytest.raises(NotEnoughBookies):
        placement().choose_ensemble(3, 3, bookies("ab"), random.Random(1))


def test_a_replacement_comes_from_the_rack_of_the_one_that_leaves() -> None:
    writable = bookies("abcabc")
    ensemble = writable[:3]
    for seed in range(10):
        chosen = placement().choose_replacements(
            ensemble, [1], 3, writable, [ensemble[1]], random.Random(seed)
        )
        assert chosen == {1: BookieId("b4")}


def test_a_replacement_avoids_the_racks_of_its_neighbours_first() -> None:
    """Rack b is gone: c is free, a is taken."""
    writable = [BookieId(name) for name in ("a0", "a1", "c2")]
    ensemble = [BookieId("a0"), BookieId("b9")]
    for seed in range(10):
        chosen = placement().choose_replacements(
            ensemble, [1], 2, writable, [BookieId("b9")], random.Random(seed)
        )
        assert chosen == {1: BookieId("c2")}


def test_replacements_without_a_free_rack_are_taken_unless_that_is_forbidden() -> None:
    ensemble = [BookieId("a0"), BookieId("b9")]
    writable = [BookieId("a0"), BookieId("a1")]
    arguments = ([1], 2, writable, [BookieId("b9")], random.Random(1))
    assert placement().choose_replacements(ensemble, *arguments) == {1: BookieId("a1")}
    assert placement(enforced=True).choose_replacements(ensemble, *arguments) == {}


def test_as_many_replacements_as_there_are_candidates() -> None:
    ensemble = bookies("abc")
    writable = [*ensemble, BookieId("d7")]
    chosen = placement().choose_replacements(ensemble, [0, 2], 3, writable, [], random.Random(1))
    assert chosen == {0: BookieId("d7")}
    assert placement().choose_replacements(ensemble, [0], 3, ensemble, [], random.Random(1)) == {}


@pytest.mark.parametrize(
    ("own", "theirs", "found"),
    [
        ("/a", "/a", RackRelation.SAME),
        ("/a", "/b", RackRelation.OTHER),
        ("/a", None, RackRelation.UNKNOWN),
        ("/a", "", RackRelation.UNKNOWN),
        (None, "/a", RackRelation.UNKNOWN),
        (None, None, RackRelation.UNKNOWN),
    ],
)
def test_who_has_no_rack_is_not_in_the_same_one(
    own: str | None, theirs: str | None, found: RackRelation
) -> None:
    assert relation(own, theirs) is found
