from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from bsprof.errors import UsageError
from bsprof.workloads.optimizers import (
    EIGHT_BIT,
    make_optimizer,
    optimizer_names,
    state_tensors,
)


def weights() -> list[nn.Parameter]:
    return list(nn.Linear(3, 2, bias=False).parameters())


def test_names_are_those_of_torch_that_step_by_themselves() -> None:
    names = optimizer_names()
    assert {"adam", "adamw", "sgd", "adagrad", "rmsprop"} <= set(names)
    assert not {"lbfgs", "sparseadam", "optimizer"} & set(names)
    assert list(names) == sorted(names)


@pytest.mark.parametrize("name", sorted({*optimizer_names()} - {*EIGHT_BIT}))
def test_every_named_optimizer_steps(name: str) -> None:
    parameters = weights()
    optimizer = make_optimizer(name, {"lr": 0.5}, parameters)
    before = parameters[0].detach().clone()
    parameters[0].sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert type(optimizer).__name__.lower() == name
    assert not torch.equal(parameters[0], before)


def test_options_reach_the_optimizer() -> None:
    options = {"lr": 0.25, "betas": "0.8,0.95", "amsgrad": True}
    (group,) = make_optimizer("adamw", options, weights()).param_groups
    assert group["lr"] == 0.25
    assert group["betas"] == (0.8, 0.95)
    assert group["amsgrad"] is True


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adamww", {}, "near: adamw"),
        ("AdamW", {}, "near: adamw"),
        ("qqqq", {}, "use one of adadelta,"),
        ("adamw", {"beta": 1.0}, "near: betas"),
        ("sgd", {"betas": "0.9,0.9"}, "its options: dampening"),
        ("adamw", {"params": 1}, "no option 'params'"),
        ("adamw", {"betas": "0.9,x"}, "write numbers with commas"),
        ("adamw", {"betas": "0.9,7"}, "Invalid beta"),
        ("adamw", {"lr": -1.0}, "Invalid learning rate"),
        ("sgd", {"nesterov": True}, "Nesterov"),
    ],
)
def test_what_cannot_be_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_optimizer(name, options, weights())


def test_optimizer_that_refuses_the_parameters_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="2D"):
        make_optimizer("muon", {}, [nn.Parameter(torch.zeros(3))])


def test_state_tensors_looks_into_lists_and_mappings() -> None:
    parameters = weights()
    optimizer = make_optimizer("sgd", {}, parameters)
    tensors = [torch.zeros(1) for _ in range(4)]
    optimizer.state[parameters[0]] = {
        "one": tensors[0],
        "more": [tensors[1], {"deep": (tensors[2], "text")}],
        "step": 3,
        "none": None,
    }
    optimizer.state["shared"] = {"x": tensors[3]}  # type: ignore[index]
    found = list(state_tensors(optimizer))
    assert len(found) == 4
    assert all(any(t is known for known in tensors) for t in found)


@pytest.fixture
def bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name whose optimizers are those of torch."""

    class Eight(torch.optim.AdamW):
        pass

    class Momentum(torch.optim.SGD):
        def __init__(self, params: Any, lr: float, momentum: float = 0) -> None:
            if not momentum:
                raise NotImplementedError("SGD without momentum is not supported!")
            super().__init__(params, lr=lr, momentum=momentum)

    package, optim = ModuleType("bitsandbytes"), ModuleType("bitsandbytes.optim")
    package.__spec__ = sys.__spec__
    for name in EIGHT_BIT.values():
        setattr(optim, name, Momentum if name == "SGD8bit" else Eight)
    monkeypatch.setitem(sys.modules, "bitsandbytes", package)
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", optim)


@pytest.mark.usefixtures("bitsandbytes")
def test_optimizers_of_bitsandbytes_where_it_is_installed() -> None:
    assert {*EIGHT_BIT} <= {*optimizer_names()}
    optimizer = make_optimizer("adamw8bit", {"lr": 0.5, "betas": "0.8,0.9"}, iter(weights()))
    assert type(optimizer).__name__ == "Eight"
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    with pytest.raises(UsageError, match="use adamw8bit"):
        make_optimizer("pagedadamw8bit", {}, weights())
    with pytest.raises(UsageError, match="without momentum is not supported"):
        make_optimizer("sgd8bit", {"lr": 0.1}, weights())


def test_without_bitsandbytes_its_optimizers_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    assert not {*EIGHT_BIT} & {*optimizer_names()}
    with pytest.raises(UsageError, match="pip install bitsandbytes"):
        make_optimizer("adamw8bit", {}, weights())
    with pytest.raises(UsageError, match="near: adamw8bit"):
        make_optimizer("adamw8bits", {}, weights())
