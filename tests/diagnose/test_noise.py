"""The noise scale against its closed form: the interval, the worker's run, the command line."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
import torch
from torch import nn

import bsprof
from bsprof import Workload
from bsprof.cli import main
from bsprof.diagnose.noise.interval import Window, estimate
from bsprof.diagnose.noise.records import Question
from bsprof.diagnose.noise.run import measure
from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec

WIDTH = 24
OFF = 0.5
"""Distance of the weights from the true ones, |off|."""
CLOSED_FORM = (WIDTH * (OFF**2 + 1) + OFF**2) / OFF**2
"""Linear regression, unit Gaussian inputs and noise: tr(S) = d (|off|^2 + 1) + |off|^2."""


def regression(*, samples_seed: int = 0, width: int = WIDTH) -> Workload:
    """Weights at zero, true ones `OFF` away."""
    true = torch.full((width, 1), OFF / width**0.5)
    generator = torch.Generator().manual_seed(samples_seed)

    def model():
        found = nn.Linear(width, 1, bias=False)
        nn.init.zeros_(found.weight)
        return found

    def batch(samples, device):
        x = torch.randn(samples, width, generator=generator)
        y = x @ true + torch.randn(samples, 1, generator=generator)
        return x.to(device), y.to(device)

    def loss(model, batch):
        return 0.5 * (model(batch[0]) - batch[1]).square().mean()

    return Workload(model=model, batch=batch, loss=loss)


def workload() -> Workload:
    """For `--model`."""
    return regression()


def still() -> Workload:
    """Every batch is the same."""
    made = regression()
    first = {}

    def batch(samples, device):
        if samples not in first:
            first[samples] = made.batch(samples, device)
        return first[samples]

    return Workload(model=made.model, batch=batch, loss=made.loss)


def measured(seed: int = 0, *, pieces=64, updates=1, size=16, **options):
    spec = WorkloadSpec(model=f"{__file__}:workload", **options)
    question = Question(micro_batch_size=size, accumulation_steps=pieces, updates=updates)
    return measure(spec, regression(samples_seed=seed), "cpu", question, beat=lambda: None)


def window_of(seed: int, *, pieces: int = 64, samples: int = 16) -> Window:
    generator = torch.Generator().manual_seed(seed)
    off = torch.full((WIDTH,), OFF / WIDTH**0.5, dtype=torch.float64)
    x = torch.randn(pieces, samples, WIDTH, generator=generator, dtype=torch.float64)
    noise = torch.randn(pieces, samples, generator=generator, dtype=torch.float64)
    gradients = ((x @ off - noise)[..., None] * x).mean(1)
    mean = gradients.mean(0)
    return Window(
        samples=samples,
        squares=gradients.square().sum(1).tolist(),
        products=(gradients @ mean).tolist(),
        total=float(mean @ mean),
    )


@pytest.mark.parametrize("first_seed", [0, 1000])
def test_the_interval_covers_the_closed_form(first_seed):
    found = [
        estimate([window_of(seed)]).noise_scale for seed in range(first_seed, first_seed + 100)
    ]
    named = [scale for scale in found if scale is not None]
    assert len(named) == 100
    covered = sum(scale.low <= CLOSED_FORM <= scale.high for scale in named)
    assert 85 <= covered <= 96
    assert statistics.median(scale.high / scale.low for scale in named) < 3
    assert statistics.median(s.value for s in named) == pytest.approx(CLOSED_FORM, rel=0.05)


@pytest.mark.slow
def test_measured_runs_cover_the_closed_form():
    found = [measured(seed).plain.noise_scale for seed in range(100)]
    assert None not in found
    covered = sum(scale.low <= CLOSED_FORM <= scale.high for scale in found)
    assert 85 <= covered <= 96
    assert statistics.median(scale.high / scale.low for scale in found) < 3


def test_leaving_out_a_piece_is_the_estimate_without_it():
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(6, 5, generator=generator, dtype=torch.float64) + 1

    def window(rows):
        mean = rows.mean(0)
        return Window(
            samples=2,
            squares=rows.square().sum(1).tolist(),
            products=(rows @ mean).tolist(),
            total=float(mean @ mean),
        )

    for place, without in enumerate(window(gradients).without_each()):
        rest = torch.cat([gradients[:place], gradients[place + 1 :]])
        assert without.variance == pytest.approx(window(rest).parts.variance)
        assert without.signal == pytest.approx(window(rest).parts.signal)


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        ([], "0 pieces, at least 16"),
        ([window_of(0, pieces=2)] * 3, "6 pieces, at least 16"),
        ([window_of(0, pieces=8)], "8 pieces, at least 16"),
        ([window_of(0, samples=1, pieces=16)], "not enough"),
        ([Window(samples=4, squares=[2.0] * 20, products=[2.0] * 20, total=2.0)], "do not differ"),
        (
            [Window(samples=4, squares=[float("nan")] * 20, products=[0.0] * 20, total=1.0)],
            "finite",
        ),
    ],
)
def test_too_little_gives_no_number(windows, reason):
    found = estimate(windows)
    assert found.noise_scale is None
    assert found.reason.startswith("not enough")
    assert reason in found.reason


def test_a_measured_run_follows_the_noise_over_its_steps():
    found = measured(pieces=32, updates=4, size=64, optimizer_options={"lr": 0.02})
    assert [at.step for at in found.steps] == [0, 1, 2, 3]
    assert found.steps[0].preconditioned is None  # no second moments before the first step
    first, last = found.steps[0].plain.noise_scale, found.steps[-1].plain.noise_scale
    assert first.low <= CLOSED_FORM <= first.high
    assert last.value > first.value  # nearer to the optimum there is less signal
    assert found.plain.pieces == 128
    assert found.preconditioned is not None
    assert found.preconditioned.pieces == 96
    assert any("branch test" in sentence for sentence in found.says)
    assert any("never as the best batch" in sentence for sentence in found.says)


def test_what_adam_sees_is_the_plain_one_where_all_directions_are_alike():
    # Unit covariance: v is nearly the same for every weight, so the factor drops out of the ratio.
    found = measured(pieces=64, updates=2, size=64, optimizer_options={"lr": 0.0})
    plain = found.steps[1].plain.noise_scale
    adam = found.steps[1].preconditioned.noise_scale
    assert adam.low < plain.value < adam.high or 0.3 < adam.value / plain.value < 3
    assert measured(updates=2, optimizer="sgd").preconditioned is None


def test_a_batch_that_never_changes_shows_no_noise():
    question = Question(micro_batch_size=4, accumulation_steps=16, updates=1)
    spec = WorkloadSpec(model=f"{__file__}:still")
    found = measure(spec, still(), "cpu", question, beat=lambda: None)
    assert found.plain.noise_scale is None
    assert "is the data random?" in found.plain.reason


def test_the_command_line(capfd):
    model = f"{Path(__file__)}:workload"
    words = ["noise", "--model", model, "--device", "cpu", "--micro-batch-size", "32"]
    assert main([*words, "--accumulation-steps", "64", "--updates", "2"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("Gradient noise scale: ")
    assert "90 % interval" in out
    assert "branch test" in out
    assert main([*words, "--accumulation-steps", "4", "--updates", "1", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["plain"]["noise_scale"] is None
    assert document["plain"]["reason"] == "not enough: 4 pieces, at least 16 are needed"
    assert document["says"][0].startswith("Gradient noise scale: not enough")


def test_questions_that_cannot_be():
    with pytest.raises(UsageError, match="show no noise"):
        bsprof.measure_noise("mlp", accumulation_steps=1)
    with pytest.raises(UsageError, match="in inference"):
        bsprof.measure_noise(WorkloadSpec(model="mlp", mode=bsprof.Mode.INFER))
