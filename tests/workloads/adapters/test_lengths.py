from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.lengths import (
    LONGEST,
    chosen,
    parse_lengths,
    sample_length,
    samples_needed,
)


@pytest.mark.parametrize(
    ("text", "percentile"),
    [("longest", 100.0), ("p95", 95.0), ("p99.5", 99.5), ("p100", 100.0), ("histogram", None)],
)
def test_lengths_are_read(text: str, percentile: float | None) -> None:
    assert parse_lengths(text) == percentile


@pytest.mark.parametrize("text", ["", "95", "p", "p0", "p101", "p-1", "pnan", "shortest", "pp5"])
def test_what_is_no_rule_of_lengths_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match="cannot read lengths=") as caught:
        parse_lengths(text)
    assert "'p95'" in caught.value.next_step


@dataclass
class Sample:
    """A user's own type of sample."""

    label: int
    text: torch.Tensor


@pytest.mark.parametrize(
    ("sample", "length"),
    [
        (torch.zeros(7), 7),
        (torch.zeros(3, 4, 5), 60),
        (np.zeros((2, 3)), 6),
        ((torch.tensor(3.0), torch.zeros(5)), 5),
        ({"label": 3, "x": torch.zeros(6)}, 6),
        ({"text": "a long text", "input_ids": [1, 2, 3]}, 3),
        (UserDict(input_ids=[1, 2]), 2),
        ([1, 2, 3, 4], 4),
        ([[1, 2, 3], 0], 3),
        ("word", 4),
        (Sample(1, torch.zeros(9)), 9),
        ((3, 4.5), 2),
        ([], None),
        (3, None),
        (torch.tensor(1), None),
        (object(), None),
        ({}, None),
    ],
)
def test_length_of_a_sample(sample: Any, length: int | None) -> None:
    assert sample_length(sample) == length


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.floats(0.1, 100),
    st.integers(1, 60),
)
def test_a_batch_ends_at_its_percentile(lengths: list[int], percentile: float, size: int) -> None:
    if size > len(lengths):
        return
    places = chosen(lengths, percentile, size)
    assert len(set(places)) == size
    taken, ordered = sorted(lengths[place] for place in places), sorted(lengths)
    assert any(ordered[end - size : end] == taken for end in range(size, len(lengths) + 1))
    share = percentile / 100 * len(lengths)
    assert sum(length <= taken[-1] for length in lengths) >= share - 1e-3
    # Longer than the percentile only where fewer than a batch are shorter.
    assert sum(length < taken[-1] for length in lengths) < max(size, share + 1e-3)
    if percentile == LONGEST:
        assert taken == ordered[-size:]


@given(st.floats(0.1, 100), st.integers(1, 10_000))
def test_enough_samples_for_a_batch_below_a_percentile(percentile: float, size: int) -> None:
    needed = samples_needed(percentile, size)
    places = chosen(range(needed), percentile, size)
    assert max(places) <= round(percentile * needed / 100, 6) + 1
    assert samples_needed(LONGEST, size) == size
