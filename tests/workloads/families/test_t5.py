from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.families.t5 import T5, relative_buckets
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
META = torch.device("meta")
SMALL = {
    "depths": "2,2",
    "width": 32,
    "heads": 2,
    "head_width": 8,
    "feed_forward": 48,
    "vocabulary": 64,
    "target_len": 6,
}


def t5(model: str = "t5-small", **options: Any) -> T5:
    """A small one in evaluation."""
    spec = WorkloadSpec(model=model, seq_len=9, mode=Mode.INFER, model_options={**SMALL, **options})
    built = build_training(spec, resolve(spec), "cpu").model
    assert isinstance(built, T5)
    return built


def text(length: int, seed: int = 3) -> Tensor:
    return torch.randint(1, 64, (2, length), generator=torch.Generator().manual_seed(seed))


def bucket_by_hand(key_minus_query: int, buckets: int, longest: int, both_sides: bool) -> int:
    """The class of one distance, in whole numbers.

    Of the half for long distances, the class is the largest j for which
    distance >= single (longest / single)^(j / ranges).
    """
    offset, distance = 0, -key_minus_query
    if both_sides:
        buckets //= 2
        if distance < 0:
            offset, distance = buckets, -distance
    distance = max(distance, 0)
    single = buckets // 2
    if distance < single:
        return offset + distance
    ranges = buckets - single
    j = 0
    while j + 1 < ranges and distance**ranges >= single**ranges * (longest // single) ** (j + 1):
        j += 1
    return offset + single + j


@pytest.mark.parametrize("both_sides", [False, True])
@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (16, 64)])
def test_buckets_equal_those_counted_by_hand(buckets: int, longest: int, both_sides: bool) -> None:
    size = 3 * longest
    found = relative_buckets(
        size, size, buckets=buckets, max_distance=longest, both_sides=both_sides
    )
    by_distance = {
        distance: bucket_by_hand(distance, buckets, longest, both_sides)
        for distance in range(-size + 1, size)
    }
    expected = torch.tensor([[by_distance[k - q] for k in range(size)] for q in range(size)])
    assert torch.equal(found, expected)
    assert set(found.unique().tolist()) <= set(range(buckets))


def test_all_blocks_of_a_stack_share_one_bias() -> None:
    tables = [name for name, _ in t5().named_parameters() if "bias" in name]
    assert tables == ["encoder.bias.table.weight", "decoder.bias.table.weight"]


@torch.no_grad()
def test_decoder_sees_no_future_and_encoder_sees_all() -> None:
    model, source, shifted = t5(), text(9), text(6, seed=4)
    changed = shifted.clone()
    changed[:, 3:] = (changed[:, 3:] + 1) % 64
    before, after = model(source, shifted), model(source, changed)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-5)
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)
    memory = model.encoder(model.tokens(source))
    changed = source.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 64
    moved = (memory - model.encoder(model.tokens(changed))).abs().amax(dim=-1)
    assert bool((moved > 1e-5).all())
    moved = (before - model(changed, shifted)).abs().amax(dim=-1)
    assert bool((moved > 1e-6).all())


@torch.no_grad()
def test_positions_are_relative() -> None:
    """The same text further to the right, seen alone, gives the same features."""
    model = t5()
    bias = model.encoder.bias(torch.zeros(1, 9, 32))
    assert torch.equal(bias[..., :-1, :-1], bias[..., 1:, 1:])
    assert not torch.equal(bias, bias.transpose(-1, -2))


@torch.no_grad()
def test_normalisation_takes_no_mean_away() -> None:
    norm = t5().encoder.norm
    x = torch.randn(3, 32) + 5
    expected = x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(norm(x), expected, atol=1e-5)


def test_output_is_tied_in_the_first_version_only() -> None:
    first, later = t5(), t5("t5-v1.1-small")
    assert first.head.weight is first.tokens.weight
    assert first.scale == 32**-0.5
    assert later.head.weight is not later.tokens.weight
    assert later.scale == 1.0


def test_target_is_shifted_to_the_right() -> None:
    workload = resolve(WorkloadSpec(model="t5-small"))
    tokens, shifted, target = workload.batch(3, CPU)
    assert tokens.shape == (3, 512)
    assert target.shape == (3, 114)
    assert bool((shifted[:, 0] == 0).all())
    assert torch.equal(shifted[:, 1:], target[:, :-1])
    assert workload.count is not None
    assert workload.count((tokens, shifted, target)) == 3 * 114


def flops_by_hand(
    depth: int, width: int, inner: int, feed_forward: int, matrices: int, n: int, t: int
) -> int:
    """One forward pass of a T5, product by product, 2 FLOPs a multiply-add.

    Four projections and two products over pairs an attention; a decoder's block has two, of which
    the second projects keys and values of the n tokens read. A bias needs the whole square of
    pairs also where it hides the future.
    """
    encoder = n * (4 * width * inner + matrices * width * feed_forward) + 2 * n * n * inner
    decoder = t * (4 * width * inner + matrices * width * feed_forward) + 2 * t * t * inner
    crossing = (2 * t + 2 * n) * width * inner + 2 * t * n * inner
    return 2 * (depth * (encoder + decoder + crossing) + t * width * 32_128)


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("t5-small", (6, 512, 8 * 64, 2048, 2)),
        ("t5-base", (12, 768, 12 * 64, 3072, 2)),
        ("t5-v1.1-base", (12, 768, 12 * 64, 2048, 3)),
    ],
)
def test_flops_are_those_counted_by_hand(model: str, sizes: tuple[int, ...]) -> None:
    """Sizes: Raffel et al. 2020, arXiv 1910.10683, section 3.1, and the authors' release notes."""
    workload = resolve(WorkloadSpec(model=model))
    with META:
        built = workload.model()
    with OperatorCounter() as counter:
        loss = workload.loss(built, workload.batch(1, META))
        forward = counter.totals.model_flops
        loss.backward()  # type: ignore[no-untyped-call]
    assert forward == flops_by_hand(*sizes, n=512, t=114)
    assert counter.totals.model_flops == 3 * forward
