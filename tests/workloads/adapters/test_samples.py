from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.samples import IndexedSamples, StreamedSamples


class Stream:
    """Counts up, from its start each time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.integers(0, 5))
def test_fewer_keys_are_the_first_of_more(size: int, few: int, more: int, seed: int) -> None:
    few, more = sorted((few, more))
    samples = IndexedSamples(range(size), range(size), seed)
    first = list(samples.examined(few))
    longer = list(samples.examined(more))
    assert list(samples.examined(few)) == first
    assert len(set(longer)) == len(longer)
    assert set(longer) <= set(range(size))
    if 2 * more > size:
        assert sorted(longer) == list(range(size))
    else:
        assert len(longer) == more
        assert longer[:few] == first
    assert list(IndexedSamples(range(size), range(size), seed).examined(more)) == longer


def test_samples_are_read_at_their_positions() -> None:
    samples = IndexedSamples("abcdefgh", [7, 2, 4], seed=0)
    assert samples.size == 3
    assert samples.read([0, 2]) == ["h", "e"]
    assert sorted(samples.draw(3)) == ["c", "e", "h"]


def test_several_are_read_at_once_where_the_data_set_can() -> None:
    asked = []

    class AtOnce:
        def __getitems__(self, positions: list[int]) -> list[int]:
            asked.append(positions)
            return [10 * position for position in positions]

    assert IndexedSamples(AtOnce(), range(5), seed=0).read([1, 3]) == [10, 30]
    assert asked == [[1, 3]]


def test_draws_differ_and_repeat_with_their_seed() -> None:
    one, same, other = (IndexedSamples(range(1000), range(1000), seed) for seed in (1, 1, 2))
    first, second = one.draw(20), one.draw(20)
    assert first != second
    assert len(set(first)) == 20
    assert [same.draw(20), same.draw(20)] == [first, second]
    assert other.draw(20) != first


def test_more_than_there_are_cannot_be_drawn() -> None:
    for samples in (IndexedSamples(range(5), range(5), 0), StreamedSamples(Stream(5))):
        samples.draw(3)
        with pytest.raises(WorkloadError, match="cannot make a batch of 6 samples") as caught:
            samples.draw(6)
        assert caught.value.found == "the data set has 5"


def test_a_stream_goes_on_and_begins_again() -> None:
    samples = StreamedSamples(Stream(5))
    assert samples.size is None
    assert [samples.draw(2) for _ in range(3)] == [[0, 1], [2, 3], [0, 1]]


def test_what_is_examined_of_a_stream_is_kept() -> None:
    samples = StreamedSamples(Stream(5))
    assert list(samples.examined(2)) == [0, 1]
    assert list(samples.examined(9)) == [0, 1, 2, 3, 4]
    assert list(samples.examined(3)) == [0, 1, 2]
    assert samples.read([4, 0]) == [4, 0]
    assert samples.draw(2) == [0, 1]


def test_a_generator_is_read_once() -> None:
    samples = StreamedSamples(iter(range(4)))
    assert list(samples.examined(1)) == [0]
    assert samples.draw(3) == [1, 2, 3]
    with pytest.raises(WorkloadError, match="batch of 1 samples"):
        samples.draw(1)


def test_a_stream_that_knows_its_length_says_so() -> None:
    class Sized(Stream):
        def __len__(self) -> int:
            return self.count

    class Refuses(Stream):
        def __len__(self) -> int:
            raise NotImplementedError

    assert StreamedSamples(Sized(7)).size == 7
    assert StreamedSamples(Refuses(7)).size is None
