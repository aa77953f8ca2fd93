from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bsprof.errors import WorkloadError
from bsprof.workloads.batches import (
    check_batch,
    describe,
    describe_no_tensor,
    map_tensors,
    move,
    observed_size,
    tensors_in,
)
from bsprof.workloads.workload import Workload

CPU = torch.device("cpu")


def workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {"model": None, "batch": None, "loss": None}
    return Workload(**(values | changes))


@dataclass
class Pair:
    """A user's own batch type."""

    x: Tensor
    y: Tensor


Named = namedtuple("Named", "x y")


def _nested(size: int) -> st.SearchStrategy[Any]:
    tensor = st.integers(1, 3).map(lambda rest: torch.zeros(size, rest))
    return st.recursive(
        tensor,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
            inner.map(lambda x: {"skip": None, "x": x}),
            inner.map(lambda x: UserDict(x=x)),
            st.tuples(inner, inner).map(lambda xy: Pair(*xy)),
            st.tuples(inner, inner).map(lambda xy: Named(*xy)),
            inner.map(lambda x: (torch.tensor(3.0), "text", 5, x)),
        ),
        max_leaves=5,
    )


@given(st.integers(0, 40).flatmap(lambda b: st.tuples(st.just(b), _nested(b))))
def test_size_is_read_back_from_any_nesting(sized: tuple[int, Any]) -> None:
    size, batch = sized
    assert observed_size(workload(), batch) == size
    check_batch(workload(), batch, size, CPU)


def test_wrong_size_names_both_numbers() -> None:
    with pytest.raises(WorkloadError) as caught:
        check_batch(workload(), {"x": torch.zeros(7, 2)}, 8, CPU)
    assert "batch(8, device) returned 7 samples, not 8" in caught.value.doing
    assert "float32 (7, 2)" in caught.value.found


def test_wrong_device_names_both_devices() -> None:
    batch = (torch.zeros(8), torch.zeros(8, device="meta"))
    with pytest.raises(WorkloadError, match="a tensor on meta, not on cpu"):
        check_batch(workload(), batch, 8, CPU)
    check_batch(workload(), torch.zeros(8, device="meta"), 8, torch.device("meta", 0))


def test_own_size_function_wins() -> None:
    sequence_first = workload(size=lambda batch: batch.shape[1])
    check_batch(sequence_first, torch.zeros(128, 4), 4, CPU)
    with pytest.raises(WorkloadError, match="returned 128 samples, not 4"):
        check_batch(workload(), torch.zeros(128, 4), 4, CPU)


def test_size_function_that_raises_is_the_users_fault() -> None:
    with pytest.raises(WorkloadError, match="`size` of the workload"):
        observed_size(workload(size=lambda batch: batch["x"]), {})


@pytest.mark.parametrize("batch", [None, "text", (), {"x": 3}, torch.tensor(1.0), object()])
def test_batch_without_tensors_asks_for_a_size_function(batch: Any) -> None:
    with pytest.raises(WorkloadError, match="`size` function"):
        observed_size(workload(), batch)


def test_map_tensors_keeps_containers() -> None:
    batch = OrderedDict(x=torch.ones(2), pair=Named(torch.ones(2), "text"))
    changed = map_tensors(lambda t: t * 2, batch)
    assert type(changed) is OrderedDict
    assert type(changed["pair"]) is Named
    assert changed["pair"].y == "text"
    assert torch.equal(changed["pair"].x, torch.full((2,), 2.0))


@given(_nested(3))
def test_tensors_are_changed_wherever_they_are_found(batch: Any) -> None:
    before = [tensor.clone() for tensor in tensors_in(batch)]
    changed = map_tensors(lambda t: t + 1, batch)
    assert type(changed) is type(batch)
    for old, new in zip(before, tensors_in(changed), strict=True):
        assert torch.equal(old + 1, new)
    for old, now in zip(before, tensors_in(batch), strict=True):
        assert torch.equal(old, now)


def test_containers_of_the_users_own_are_changed_too() -> None:
    @dataclass(frozen=True)
    class Fixed:
        x: Tensor
        name: str = "kept"

    class Samples(list[Tensor]):
        """A list with a name."""

    fixed = map_tensors(torch.neg, Fixed(torch.ones(2)))
    assert (fixed.x.sum().item(), fixed.name) == (-2.0, "kept")
    samples = map_tensors(torch.neg, Samples([torch.ones(2)]))
    assert type(samples) is Samples
    assert samples[0].sum().item() == -2.0
    same = UserDict(text="no tensor")
    assert map_tensors(torch.neg, same) is same


def test_a_batch_moves_with_all_its_parts() -> None:
    class Graph:
        """Knows how to move itself, and shows no tensor."""

        place = CPU

        def to(self, device: torch.device) -> Graph:
            moved = Graph()
            moved.place = device
            return moved

    meta = torch.device("meta")
    batch = {"graph": Graph(), "pair": Pair(torch.ones(2), torch.ones(2)), "words": ["a", 3]}
    moved = move(batch, meta)
    assert moved["graph"].place == meta
    assert {tensor.device for tensor in tensors_in(moved)} == {meta}
    assert moved["words"] == ["a", 3]


@pytest.mark.parametrize(
    ("output", "found", "advice"),
    [
        ({"loss": 1, "logits": 2}, "a dict with keys loss, logits", "output['loss']"),
        ({"nll": 1, "kl": 2}, "a dict with keys nll, kl", "one of them"),
        ((torch.ones(1), 2), "a tuple of Tensor, int", "the mean over the batch"),
        (None, "nothing", "the mean over the batch"),
        (1.0, "a float", "the mean over the batch"),
    ],
)
def test_what_is_no_tensor_is_told_with_its_parts(output: Any, found: str, advice: str) -> None:
    told = describe_no_tensor(output)
    assert told[0] == found
    assert advice in told[1]


def test_description_is_short() -> None:
    assert describe([torch.zeros(2, dtype=torch.int64)] * 6) == (
        "list with int64 (2,), int64 (2,), int64 (2,), int64 (2,), ..."
    )
    assert describe(3) == "int with no tensors"
