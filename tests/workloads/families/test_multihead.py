from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bsprof.workloads.families.multihead import MultiHead


def twin(ours: MultiHead) -> nn.MultiheadAttention:
    """PyTorch's own attention with the same weights."""
    theirs = nn.MultiheadAttention(32, ours.heads, batch_first=True)
    parts = (ours.query, ours.key, ours.value)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([part.weight for part in parts]),
            "in_proj_bias": torch.cat([part.bias for part in parts]),
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    return theirs


@pytest.fixture(params=["sdpa", "eager"])
def kind(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


def test_equals_pytorchs_own(kind: str) -> None:
    ours = MultiHead(32, 4, kind=kind)
    x = torch.randn(2, 6, 32)
    assert torch.allclose(ours(x), twin(ours)(x, x, x, need_weights=False)[0], atol=1e-6)


def test_causal_attention_equals_pytorchs_own(kind: str) -> None:
    ours = MultiHead(32, 4, causal=True, kind=kind)
    x = torch.randn(2, 6, 32)
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    theirs = twin(ours)(x, x, x, need_weights=False, attn_mask=future)[0]
    assert torch.allclose(ours(x), theirs, atol=1e-6)


def test_memory_is_read_under_either_kind_of_mask(kind: str) -> None:
    ours = MultiHead(32, 4, kind=kind)
    x, memory = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    theirs = twin(ours)
    seen = torch.rand(2, 5) < 0.6
    seen[:, 0] = True
    expected = theirs(x, memory, memory, need_weights=False, key_padding_mask=~seen)[0]
    for mask in (seen[:, None, None, :], as_numbers(seen)[:, None, None, :]):
        assert torch.allclose(ours(x, memory, mask), expected, atol=1e-6)


def as_numbers(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))


def test_scale_and_head_width_are_free(kind: str) -> None:
    ours = MultiHead(32, 2, head_width=8, scale=0.5, bias=False, kind=kind)
    x = torch.randn(1, 4, 32)
    query, key, value = (
        part(x).reshape(4, 2, 8).transpose(0, 1) for part in (ours.query, ours.key, ours.value)
    )
    weights = (0.5 * query @ key.transpose(1, 2)).softmax(-1)
    expected = ours.out((weights @ value).transpose(0, 1).reshape(1, 4, 16))
    assert torch.allclose(ours(x), expected, atol=1e-6)
    assert ours.out.bias is None


def test_only_the_key_may_lack_a_bias(kind: str) -> None:
    ours = MultiHead(32, 4, key_bias=False, kind=kind)
    assert ours.key.bias is None
    assert ours.query.bias is not None
    assert ours.value.bias is not None


def test_dropout_is_for_training_only(kind: str) -> None:
    ours = MultiHead(32, 4, dropout=0.5, kind=kind)
    x = torch.randn(2, 6, 32)
    assert not torch.allclose(ours(x), ours(x))
    ours.eval()
    assert torch.equal(ours(x), ours(x))
