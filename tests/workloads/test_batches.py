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
from bsprof.workloads.batches import check_batch, describe, map_tensors, observed_size
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


def test_description_is_short() -> None:
    assert describe([torch.zeros(2, dtype=torch.int64)] * 6) == (
        "list with int64 (2,), int64 (2,), int64 (2,), int64 (2,), ..."
    )
    assert describe(3) == "int with no tensors"
