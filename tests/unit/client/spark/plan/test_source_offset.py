"""The offset in the checkpoint: its text, and traps 1 and 2 of Spark's data source API."""

import json

import pytest

from client.errors import ConfigError
from client.spark.plan.source_offset import SourceOffset, advance, initial, parse_offset, starts
from client.spark.splits import Position, TopicPartition

A0, A2, A10, B0 = (
    TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("a", 10), TopicPartition("b", 0)
)  # fmt: skip


def test_its_text_is_what_the_document_says() -> None:
    offset = SourceOffset(
        {A0: 12345}, {"a": "the-id"}, {A0: 50}, {A0: Position(ledger_id=77, entry_id=9012)}
    )
    assert json.dumps(offset.to_json()) == (
        '{"$quire": {"base": {"a": {"0": 50}}, "hints": {"a": {"0": {"e": 9012, "l": 77}}}, '
        '"ids": {"a": "the-id"}, "v": 1}, "a": {"0": 12345}}'
    )
    assert parse_offset(offset.to_json()) == offset


def test_trap_2_equal_offsets_have_equal_text_whatever_order_they_were_made_in() -> None:
    forward = SourceOffset({A0: 1, A2: 2, A10: 3, B0: 4}, {"a": "x", "b": "y"})
    backward = SourceOffset({B0: 4, A10: 3, A2: 2, A0: 1}, {"b": "y", "a": "x"})
    text = json.dumps(forward.to_json())
    assert text == json.dumps(backward.to_json())
    assert text.index('"2"') < text.index('"10"')


def test_a_topic_may_have_any_name() -> None:
    offset = SourceOffset({TopicPartition(name, 0): 1 for name in ("base", "ids", "v", "t")})
    assert parse_offset(offset.to_json()) == offset


def test_plain_offsets_of_sparks_kafka_source_are_read() -> None:
    assert parse_offset({"a": {"0": 5}}) == SourceOffset({A0: 5})


@pytest.mark.parametrize("tree", [{"a": 5}, {"a": {"x": 5}}, {"$quire": {"v": 2}}, {"$quire": 1}])
def test_what_is_no_offset_is_refused(tree: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="the checkpoint"):
        parse_offset(tree)


def test_trap_1_the_end_of_the_first_batch_tells_where_it_began() -> None:
    begin = initial({A0: 50}, {"a": "x"})
    end = advance(begin, {A0: 100}, {"a": "x"}, {})
    asked_anew = initial({A0: 250}, {"a": "x"})
    assert starts(asked_anew, end) == {A0: 50}


def test_base_goes_when_an_offset_tells_the_start() -> None:
    first = advance(initial({A0: 50}, {}), {A0: 100}, {}, {})
    second = advance(first, {A0: 200}, {}, {})
    assert second.base == {}
    assert starts(first, second) == {A0: 100}


def test_base_stays_while_nothing_has_been_read() -> None:
    """Two sources in one query: the other one's batches do not move this offset."""
    begin = initial({A0: 50, A2: 7}, {})
    first = advance(begin, {A0: 60, A2: 7}, {}, {})
    second = advance(first, {A0: 60, A2: 9}, {}, {})
    assert second.base == {A2: 7}
    assert starts(first, second) == {A0: 60, A2: 7}


def test_a_new_partition_has_its_beginning_in_the_offset_that_first_names_it() -> None:
    start = SourceOffset({A0: 60}, {"a": "x"})
    end = advance(start, {A0: 60, A2: 30}, {"a": "x"}, {A2: 0})
    assert starts(start, end) == {A0: 60, A2: 0}
    assert advance(end, {A0: 60, A2: 40}, {"a": "x"}, {}).base == {}


def test_an_offset_that_tells_no_beginning_says_so() -> None:
    assert starts(SourceOffset({}), SourceOffset({A0: 3})) == {A0: None}
