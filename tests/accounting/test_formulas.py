"""Formulas on shapes alone."""

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.accounting import formulas


@settings(max_examples=50, deadline=None)
@given(queries=st.integers(1, 40), keys=st.integers(1, 40))
def test_causal_pairs_are_the_lower_triangle(queries: int, keys: int) -> None:
    mask = torch.ones(queries, keys).tril()
    assert formulas.attended_pairs(queries, keys, causal=True) == int(mask.sum())
    assert formulas.attended_pairs(queries, keys, causal=False) == queries * keys


def test_square_causal_attention_is_half_plus_the_diagonal() -> None:
    assert formulas.attended_pairs(1024, 1024, causal=True) == 1024 * 1025 // 2


def test_packed_attention_counts_each_sequence_alone() -> None:
    rows = SimpleNamespace(shape=(7, 2, 8))
    arguments = {
        "query": rows,
        "key": rows,
        "value": rows,
        "is_causal": True,
        "cum_seq_q": torch.tensor([0, 3, 7]),
        "cum_seq_k": torch.tensor([0, 3, 7]),
    }
    pairs = 2 * (3 * 4 // 2 + 4 * 5 // 2)
    assert formulas.ragged_attention_flops(arguments, ()) == 2 * pairs * 16
    assert formulas.ragged_attention_backward_flops(arguments, ()) == 4 * pairs * 16
    assert formulas.ragged_attention_recomputed_flops(arguments, ()) == 2 * pairs * 8


def test_unpacked_ragged_attention_has_heads_next_to_last() -> None:
    rows = SimpleNamespace(shape=(5, 16, 2, 8))
    arguments = {
        "query": rows,
        "key": rows,
        "value": rows,
        "cu_seqlens_q": None,
        "cu_seqlens_k": None,
        "custom_mask_type": 1,
    }
    assert formulas.ragged_attention_flops(arguments, ()) == 2 * 5 * 2 * 136 * 16


def test_cudnn_rnn_applies_every_matrix_at_every_step() -> None:
    shapes = [(20, 4), (20, 5), (20,), (20,), (20, 5), (20, 5), (20,), (20,)]
    arguments = {
        "input": SimpleNamespace(shape=(3, 2, 4)),
        "weight": [SimpleNamespace(shape=s) for s in shapes],
        "output_mask": [True, True, True, True],
    }
    one = 2 * 3 * 2 * (20 * 4 + 3 * 20 * 5)
    assert formulas.cudnn_rnn_flops(arguments, ()) == one
    assert formulas.cudnn_rnn_backward_flops(arguments, ()) == 2 * one
    arguments["output_mask"] = [True, True, True, False]
    assert formulas.cudnn_rnn_backward_flops(arguments, ()) == one
