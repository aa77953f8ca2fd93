"""Live bytes: by hand, on fake tensors, and against the allocator's own events."""

import gc
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from bsprof.accounting.live import LiveTracker, training_tensors
from bsprof.records.point import Category

W, G, S, A, T = (
    Category.WEIGHTS,
    Category.GRADIENTS,
    Category.OPTIMIZER_STATE,
    Category.ACTIVATIONS,
    Category.TEMPORARIES,
)


def nothing() -> dict[Category, list[torch.Tensor]]:
    return {}


def test_chain_holds_two_at_a_time() -> None:
    weight = torch.ones(1000)
    with LiveTracker(lambda: {W: [weight]}) as live:
        a = weight + 1
        b = a + 1
        del a
        c = b + 1
        del b
        d = c + 1
        del c, d
    assert live.peak_bytes == 4000 + 2 * 4000
    assert live.peak_by_category == {W: 4000, G: 0, S: 0, A: 0, T: 8000}


def test_views_and_in_place_results_are_no_new_bytes() -> None:
    with LiveTracker(nothing) as live:
        a = torch.ones(1000)
        a.view(10, 100).t()[3].add_(1)
    assert live.peak_bytes == 4000


def test_step_by_hand() -> None:
    weight = nn.Parameter(torch.ones(1000))
    model = nn.ParameterList([weight])
    with LiveTracker(lambda: training_tensors(model, None)) as live:
        weight.exp().sum().backward()
    # At the peak: the weight; exp's saved result, the loss and the seed of its gradient; and the
    # gradient that becomes weight.grad.
    assert live.peak_by_category == {W: 4000, G: 4000, S: 0, A: 4000 + 4 + 4, T: 0}


def test_accumulation_holds_the_first_gradient_and_makes_the_second() -> None:
    weight = nn.Parameter(torch.ones(1000))
    model = nn.ParameterList([weight])
    with LiveTracker(lambda: training_tensors(model, None)) as live:
        for _ in range(2):
            loss = weight.exp().sum()
            loss.backward()
            del loss
    assert live.peak_by_category == {W: 4000, G: 4000, S: 0, A: 4008, T: 4000}


def test_optimizer_state_made_in_the_step_is_state() -> None:
    weight = nn.Parameter(torch.ones(1000))
    model = nn.ParameterList([weight])
    optimizer = torch.optim.AdamW([weight], foreach=True)
    with LiveTracker(lambda: training_tensors(model, optimizer)) as live:
        weight.exp().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # Two moments and the step counter; the square root is the temporary of a foreach AdamW.
    assert live.peak_by_category == {W: 4000, G: 4000, S: 8004, A: 0, T: 4000}


def test_the_batch_is_counted_once_and_from_the_start() -> None:
    model, x = nn.Linear(100, 10, bias=False), torch.ones(50, 100)
    with LiveTracker(lambda: training_tensors(model, None)) as live, torch.inference_mode():
        y = model(x)
        live.end_forward()
    assert y.shape == (50, 10)
    assert live.peak_by_category == {W: 4000, G: 0, S: 0, A: 20000 + 2000, T: 0}


def test_tied_weights_and_buffers_count_once() -> None:
    model = nn.Module()
    model.a = nn.Linear(10, 10, bias=False)
    model.b = nn.Linear(10, 10, bias=False)
    model.b.weight = model.a.weight
    model.register_buffer("mask", torch.ones(10))
    model.register_buffer("part", model.mask[:5])
    with LiveTracker(lambda: training_tensors(model, None)) as live:
        pass
    assert live.peak_by_category[W] == 400 + 40


def test_resized_storage_changes_what_is_live() -> None:
    with LiveTracker(nothing) as live:
        a = torch.ones(1000)
        a.resize_(3000)
        del a
        torch.ones(100)
    assert live.peak_bytes == 12000


def test_recomputed_activations_are_activations() -> None:
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    x = torch.randn(512, 64, requires_grad=True)
    held = {}
    for again in (False, True):
        model.zero_grad()
        x.grad = None
        with LiveTracker(lambda: training_tensors(model, None)) as live:
            out = checkpoint(model, x, use_reentrant=False) if again else model(x)
            out.sum().backward()
            del out
        held[again] = live.peak_by_category
        assert held[again][A] >= 4 * x.nbytes
    assert held[True][A] <= held[False][A] + x.nbytes


def _convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class _Transformer(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True, dropout=dropout)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embedding(tokens))).flatten(0, 1)


def _resident_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    storages = {
        tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
        for tensors in training_tensors(model, optimizer).values()
        for tensor in tensors
    }
    return sum(storages.values())


def _allocator_peak(step: Callable[[], None]) -> int:
    """Highest sum of the allocator's own events during a step, from zero at its start."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak


def _peaks(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, optimizer: torch.optim.Optimizer
) -> tuple[int, int]:
    """Peak of one steady update by the tracker, and by the allocator."""

    def update() -> None:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    gc.collect()
    with LiveTracker(lambda: training_tensors(model, optimizer)) as live:
        update()
    resident = _resident_bytes(model, optimizer) + x.nbytes + y.nbytes
    return live.peak_bytes, resident + _allocator_peak(update)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("size", [4, 16])
def test_transformer_peak_is_the_allocators(dropout: float, size: int) -> None:
    model = _Transformer(dropout)
    x, y = torch.randint(0, 100, (size, 32)), torch.randint(0, 100, (size * 32,))
    live, allocated = _peaks(model, x, y, torch.optim.AdamW(model.parameters()))
    assert live == pytest.approx(allocated, rel=0.02)


def test_convnet_peak_misses_only_what_kernels_allocate_inside() -> None:
    model = _convnet()
    x, y = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    live, allocated = _peaks(model, x, y, torch.optim.SGD(model.parameters(), momentum=0.9))
    # Convolutions keep reordered copies of their data inside: up to a third of the peak here.
    assert 0.6 * allocated < live <= 1.02 * allocated


def test_fake_tensors_give_the_same_bytes() -> None:
    def peak() -> dict[Category, int]:
        model = _convnet()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        x, y = torch.randn(4, 3, 32, 32), torch.ones(4, dtype=torch.int64)
        with LiveTracker(lambda: training_tensors(model, optimizer)) as live:
            for _ in range(2):
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        return live.peak_by_category

    real = peak()
    with FakeTensorMode():
        fake = peak()
    assert fake == real
    assert real[S] > 0


def test_optimizer_phase_is_found_when_it_is_the_peak() -> None:
    model = nn.Linear(256, 256, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.ones(1, 256)
    parameter_bytes = 256 * 256 * 4

    def update() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    update()
    with LiveTracker(lambda: training_tensors(model, optimizer)) as live:
        update()
    # Weights, gradients, two moments, and one parameter size of foreach temporaries.
    assert live.peak_bytes == pytest.approx(5 * parameter_bytes, rel=0.01)
    assert live.peak_by_category[G] == parameter_bytes
    assert live.peak_by_category[S] == pytest.approx(2 * parameter_bytes, rel=0.001)
    assert live.peak_by_category[T] == pytest.approx(parameter_bytes, rel=0.01)
