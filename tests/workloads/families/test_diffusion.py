from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bsprof.accounting.counter import OperatorCounter
from bsprof.errors import UsageError
from bsprof.records import Mode, Scalar, WorkloadSpec
from bsprof.workloads.families.diffusion import PixelAttention, noised_batches, timestep_features
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU, META = torch.device("cpu"), torch.device("meta")
SMALL: dict[str, Scalar] = {
    "width": 32,
    "multipliers": "1,2",
    "blocks": 1,
    "attention_at": 8,
    "image_size": 16,
}


def attention_sizes(name: str, **more: Any) -> list[int]:
    """Pixels per side wherever the network attends, in the order it does."""
    workload = resolve(WorkloadSpec(model=name, **more))
    with META:
        model = workload.model()
    sizes: list[int] = []
    for module in model.modules():
        if isinstance(module, PixelAttention):
            module.register_forward_hook(
                lambda _module, inputs, _y: sizes.append(inputs[0].shape[-1])
            )
    workload.loss(model, workload.batch(1, META))
    return sizes


def test_attention_stands_at_16_pixels_and_in_the_middle() -> None:
    assert attention_sizes("ddpm-cifar10") == [16, 16, 4, 16, 16, 16]
    assert attention_sizes("ddpm-256") == [16, 16, 8, 16, 16, 16]
    assert attention_sizes("ddpm-cifar10", image_size=64) == [16, 16, 8, 16, 16, 16]


def test_flops_without_attention_are_the_published_ones() -> None:
    """arXiv 2305.10924, table 1: 6.1 GMACs, counted by module and so without attention's products.

    The five places of 16 x 16 pixels and the one of 4 x 4 multiply n x n scores twice.
    """
    workload = resolve(WorkloadSpec(model="ddpm-cifar10"))
    with META:
        model = workload.model().eval()
    with torch.no_grad(), OperatorCounter() as counter:
        workload.loss(model, workload.batch(1, META))
    attention = sum(2 * 256 * n**2 for n in (5 * [16 * 16] + [4 * 4]))
    assert round((counter.totals.model_flops / 2 - attention) / 1e9, 1) == 6.1


def test_eager_attention_equals_sdpa() -> None:
    noise = []
    for attention in ("sdpa", "eager"):
        spec = WorkloadSpec(
            model="ddpm-cifar10", model_options=SMALL, mode=Mode.INFER, attention=attention
        )
        training = build_training(spec, resolve(spec), "cpu")
        images, _, timesteps, _ = training.make_batch(2)
        with torch.no_grad():
            noise.append(training.model(images, timesteps))
    torch.testing.assert_close(noise[0], noise[1])


def test_time_changes_the_answer() -> None:
    spec = WorkloadSpec(model="ddpm-cifar10", model_options=SMALL, mode=Mode.INFER)
    model = build_training(spec, resolve(spec), "cpu").model
    images = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        early, late = (model(images, torch.tensor([t])) for t in (1, 900))
    assert not torch.allclose(early, late, atol=1e-3)


def test_timesteps_are_sines_and_cosines() -> None:
    features = timestep_features(torch.tensor([0, 7]), 8)
    assert features.dtype is torch.float32
    assert features[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    expected = [math.sin(7 * 10_000 ** (-n / 3)) for n in range(4)]
    assert features[1, :4].tolist() == pytest.approx(expected, rel=1e-5)


def test_noise_schedule_goes_from_the_image_to_noise() -> None:
    _, noise, timesteps, kept = noised_batches(4, 1000, seed=0)(4096, CPU)
    assert timesteps.min() >= 0
    assert timesteps.max() < 1000
    assert timesteps.float().mean() == pytest.approx(499.5, rel=0.05)
    order = timesteps.argsort()
    assert bool((kept[order].diff() <= 0).all())
    assert kept.max() > 0.99
    # The paper ends where almost nothing of the image is left: section 4.
    assert kept.min() < 1e-4
    assert noise.std() == pytest.approx(1, rel=0.02)


def test_loss_compares_the_noise_that_was_mixed_in() -> None:
    workload = resolve(WorkloadSpec(model="ddpm-cifar10"))
    images, noise, timesteps, kept = workload.batch(4, CPU)

    def unmixes(noisy: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        assert torch.equal(given, timesteps)
        share = kept[:, None, None, None]
        return (noisy - share.sqrt() * images) / (1 - share).sqrt()

    loss = workload.loss(unmixes, (images, noise, timesteps, kept))  # type: ignore[arg-type]
    assert float(loss) == pytest.approx(0, abs=1e-6)


def test_a_width_that_its_groups_cannot_share_is_refused() -> None:
    with pytest.raises(UsageError, match="the setting width of ddpm-cifar10 cannot be 48"):
        resolve(WorkloadSpec(model="ddpm-cifar10", model_options={"width": 48}))
