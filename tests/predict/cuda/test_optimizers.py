"""Temporaries of optimizers against the reference's table (P: bytes of the parameters in fp32)."""

import pytest
import torch

from bsprof.predict.cuda.optimizers import host_state, optimizer_defaults
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Semantics, Software, TraceTarget

SIZES = (1000, 3000, 1000)
PARAMETERS = 4 * (1000 * 3000 + 3000 + 3000 * 1000 + 1000)
LARGEST = 4 * 3000 * 1000
SMALL = 64 * 1024
"""Step counters, norms and the like."""

OLD, NEW = Software(torch=(1, 13)), Software(torch=(2, 13))


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.Linear(*SIZES[1:]))


def measured(live, optimizer_class, software=NEW, clip=False, **options):
    """Bytes that live in a steady update before the step, and what the step adds at its peak."""
    with cuda_semantics(TraceTarget(software=software)):
        net = model()
        optimizer = optimizer_class(net.parameters(), lr=0.1, **options)
        for _ in range(2):
            net(torch.ones(1, SIZES[0])).sum().backward()
            before = live.now
            live.restart()
            if clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            else:
                optimizer.step()
            extra = live.peak - before
            optimizer.step()
            optimizer.zero_grad()
        return before, extra


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
MOMENTUM = {"momentum": 0.9}
DECAY = {"momentum": 0.9, "weight_decay": 1e-4}


@pytest.mark.parametrize(
    ("optimizer", "options", "steady", "extra"),
    [
        (ADAM, {}, 4, PARAMETERS),
        (ADAMW, {}, 4, PARAMETERS),
        (ADAMW, {"foreach": False}, 4, 3 * LARGEST),
        (ADAMW, {"fused": True}, 4, 0),
        (ADAM, {"amsgrad": True}, 5, PARAMETERS),
        (SGD, MOMENTUM, 3, 0),
        (SGD, DECAY, 3, PARAMETERS),
        (SGD, {**DECAY, "foreach": False}, 3, LARGEST),
        (SGD, {**DECAY, "fused": True}, 3, 0),
    ],
    ids=str,
)
def test_temporaries_are_those_of_the_table(live, optimizer, options, steady, extra):
    before, added = measured(live, optimizer, **options)
    assert before == pytest.approx(steady * PARAMETERS, abs=SMALL)
    if options.get("foreach") is False and optimizer is ADAMW:
        assert LARGEST <= added <= extra + SMALL  # "about": freed temporaries overlap
    else:
        assert added == pytest.approx(extra, abs=SMALL)


def test_torch_before_2_loops_over_parameters(live):
    _, added = measured(live, SGD, software=OLD, **DECAY)
    assert added == pytest.approx(LARGEST, abs=SMALL)


@pytest.mark.parametrize("software", [OLD, NEW], ids=str)
def test_clipping_adds_next_to_nothing(live, software):
    _, added = measured(live, SGD, software=software, clip=True)
    assert added < SMALL


def test_clipping_takes_all_tensors_at_once_where_cuda_does(live):
    measured(live, SGD, software=NEW, clip=True)
    assert "_foreach_norm" in live.names
    live.names.clear()
    measured(live, SGD, software=OLD, clip=True)
    assert "_foreach_norm" not in live.names


def test_the_default_is_chosen_as_on_cuda():
    chosen = [
        optimizer_defaults(ADAMW, {}, TraceTarget(software=software)) for software in (OLD, NEW)
    ]
    assert chosen == [{"foreach": False}, {"foreach": True}]


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": False}, {"foreach": True}])
def test_what_the_options_say_stands(options):
    assert optimizer_defaults(ADAMW, options, TraceTarget()) == options


def test_differentiable_optimizers_loop():
    chosen = optimizer_defaults(ADAMW, {"differentiable": True}, TraceTarget())
    assert chosen["foreach"] is False


def test_the_cpu_keeps_its_own_default():
    target = TraceTarget(semantics=Semantics.CPU)
    assert optimizer_defaults(ADAMW, {"lr": 0.1}, target) == {"lr": 0.1}


class Foreign:
    def __init__(self, params, foreach=None):
        self.params, self.foreach = params, foreach


@pytest.mark.parametrize("optimizer", [Foreign, torch.optim.LBFGS])
def test_others_keep_their_options(optimizer):
    assert optimizer_defaults(optimizer, {}, TraceTarget()) == {}


def test_step_counters_lie_in_host_memory_unless_the_device_reads_them():
    assert host_state({}) == host_state({"fused": False}) == {"step"}
    assert host_state({"fused": True}) == host_state({"capturable": True}) == frozenset()
