"""The gradient scaler runs without reading values, and adds only small blocks."""

import warnings

import pytest
import torch

from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Semantics, TraceTarget


def scaled_updates(live, semantics, unscale=False, **options):
    """The number of the parameters' values, and the bytes an update adds beside the optimizer's."""
    device = "cuda" if semantics is Semantics.CUDA else "cpu"
    with cuda_semantics(TraceTarget(semantics=semantics)):
        net = torch.nn.Linear(1000, 1000)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, **options)
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(2):
            with torch.autocast(device, dtype=torch.float16):
                loss = net(torch.ones(2, 1000)).sum()
            scaler.scale(loss).backward()
            before = live.now
            live.restart()
            if unscale:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            extra = live.peak - before
            optimizer.zero_grad()
        assert scaler.is_enabled()
        return optimizer.state[net.weight], extra


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}], ids=str)
@pytest.mark.parametrize("unscale", [False, True])
def test_every_update_is_taken_and_gradients_are_unscaled_in_place(live, options, unscale):
    state, extra = scaled_updates(live, Semantics.CUDA, unscale, **options)
    assert state["momentum_buffer"].shape == (1000, 1000)
    assert extra < 4096


def test_it_works_under_the_cpus_semantics_too(live):
    state, _ = scaled_updates(live, Semantics.CPU)
    assert state["momentum_buffer"].shape == (1000, 1000)


@pytest.mark.usefixtures("live")
def test_the_old_name_stands_for_the_same():
    with cuda_semantics(TraceTarget()), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        scaler = torch.cuda.amp.GradScaler()
        assert scaler.is_enabled()
        assert scaler.scale(torch.ones(1)).shape == (1,)
