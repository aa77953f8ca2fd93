from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.speech import SpeechModel, sinusoids
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")
META = torch.device("meta")
SMALL = {
    "depths": "2,2",
    "width": 32,
    "heads": 2,
    "vocabulary": 64,
    "mels": 4,
    "frames": 24,
    "positions": 10,
}


def speech(**options: Any) -> SpeechModel:
    """A small one in evaluation."""
    spec = WorkloadSpec(
        model="whisper-tiny", seq_len=6, mode=Mode.INFER, model_options={**SMALL, **options}
    )
    built = build_training(spec, resolve(spec), "cpu").model
    assert isinstance(built, SpeechModel)
    return built


def sound() -> Tensor:
    return torch.randn(2, 4, 24, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_decoder_sees_no_future_and_encoder_sees_all() -> None:
    model, heard = speech(), sound()
    tokens = torch.arange(12).reshape(2, 6)
    changed = tokens.clone()
    changed[:, 3:] += 20
    before, after = model(heard, tokens), model(heard, changed)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-5)
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)
    louder = heard.clone()
    louder[:, :, -1] += 50
    moved = (model.encoder(heard) - model.encoder(louder)).abs().amax(dim=-1)
    assert moved.shape == (2, 12)
    assert bool((moved > 1e-6).all())
    moved = (before - model(louder, tokens)).abs().amax(dim=-1)
    assert bool((moved > 1e-7).all())


def test_positions_of_the_audio_are_sinusoids() -> None:
    found = sinusoids(5, 8)
    for position in range(5):
        for i in range(4):
            angle = position / 10_000 ** (i / 3)
            assert float(found[position, i]) == pytest.approx(math.sin(angle), abs=1e-5)
            assert float(found[position, 4 + i]) == pytest.approx(math.cos(angle), abs=1e-5)


def test_trained_parameters_are_all_but_the_positions_of_the_audio() -> None:
    """37,184,640 for tiny: the count without them, as in the authors' own code."""
    with META:
        model = resolve(WorkloadSpec(model="whisper-tiny")).model()
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 37_184_640


def test_a_sample_is_30_seconds_and_its_text() -> None:
    workload = resolve(WorkloadSpec(model="whisper-large-v3", seq_len=100))
    spectrograms, tokens, targets = workload.batch(2, CPU)
    assert spectrograms.shape == (2, 128, 3000)
    assert tokens.shape == targets.shape == (2, 100)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert workload.count is not None
    assert workload.count((spectrograms, tokens, targets)) == 200
    assert resolve(WorkloadSpec(model="whisper-tiny")).tokens_per_sample == 448


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("whisper-tiny", 39e6),
        ("whisper-base", 74e6),
        ("whisper-small", 244e6),
        ("whisper-medium", 769e6),
        ("whisper-large-v2", 1550e6),
        ("whisper-large-v3-turbo", 809e6),
    ],
)
def test_counts_are_near_what_the_authors_say(model: str, published: float) -> None:
    """https://github.com/openai/whisper; coarse figures, and tiny's is 3 % above its weights."""
    assert entries()[model].parameters == pytest.approx(published, rel=0.035)


def flops_by_hand(depth: int, width: int, mels: int, t: int) -> tuple[int, int]:
    """One forward pass of Whisper, product by product, and its first convolution alone.

    Per frame of the halved 3000 and layer: four projections and a network of 8 width^2. Causal
    attention of the decoder computes t (t + 1) / 2 pairs.
    """
    frames, n, block = 3000, 1500, 12 * width**2
    first = 2 * frames * mels * width * 3
    second = 2 * n * width * width * 3
    encoder = depth * 2 * (n * block + 2 * n * n * width)
    decoder = depth * 2 * (t * block + t * (t + 1) * width)
    crossing = depth * 2 * ((2 * t + 2 * n) * width**2 + 2 * t * n * width)
    return first + second + encoder + decoder + crossing + 2 * t * width * 51_865, first


@pytest.mark.parametrize(
    ("model", "depth", "width"), [("whisper-tiny", 4, 384), ("whisper-base", 6, 512)]
)
def test_flops_are_those_counted_by_hand(model: str, depth: int, width: int) -> None:
    """Sizes: Radford et al. 2022, arXiv 2212.04356, table 1."""
    workload = resolve(WorkloadSpec(model=model))
    with META:
        built = workload.model()
    with OperatorCounter() as counter:
        loss = workload.loss(built, workload.batch(1, META))
        forward = counter.totals.model_flops
        loss.backward()  # type: ignore[no-untyped-call]
    by_hand, first = flops_by_hand(depth, width, mels=80, t=448)
    assert forward == by_hand
    # No gradient of the spectrogram: the first convolution has one product less behind it.
    assert counter.totals.model_flops == 3 * forward - first
