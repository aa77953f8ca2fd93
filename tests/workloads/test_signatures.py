from __future__ import annotations

import functools
import math
from typing import Any

import pytest
from torch import nn

from bsprof.errors import WorkloadError
from bsprof.workloads.signatures import accepts, check_call, read_signature, takes
from bsprof.workloads.workload import Workload


def two(model: Any, batch: Any, extra: int = 3) -> tuple[Any, Any, int]:
    return model, batch, extra


class Callable2:
    def __call__(self, model: Any, batch: Any) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        two,
        lambda *everything: everything,
        functools.partial(two, extra=4),
        Callable2(),
        math.hypot,  # written in C
        None,  # what is no function is told elsewhere
        3,
    ],
)
def test_what_can_be_called_passes(function: Any) -> None:
    check_call("loss", function, ("model", "batch"))


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda batch: batch, r"test_signatures\.py:\d+: its parameters are \(batch\)"),
        (lambda a, b, c: (a, b, c), r"its parameters are \(a, b, c\)"),
        (lambda model, *, batch: (model, batch), r"its parameters are \(model, \*, batch\)"),
        (functools.partial(two, None, None), "its parameters are"),
    ],
)
def test_what_cannot_be_called_is_told_with_its_parameters(function: Any, found: str) -> None:
    with pytest.raises(
        WorkloadError, match=r"`loss` .* callable as loss\(model, batch\)"
    ) as caught:
        check_call("loss", function, ("model", "batch"))
    caught.match(found)


def test_a_class_is_called_with_what_its_constructor_takes() -> None:
    with pytest.raises(WorkloadError, match=r"`model` .* callable as model\(\)"):
        check_call("model", nn.Linear, ())


def test_named_arguments_count_where_there_are_any() -> None:
    def step(model: Any, batch: Any, *, scale: float) -> None: ...

    assert accepts(step, "scale")
    assert not accepts(math.hypot, "scale")
    check_call("step", step, ("model", "batch"), named=("scale",))
    with pytest.raises(WorkloadError):
        check_call("step", step, ("model", "batch"))
    signature = read_signature(two)
    assert signature is not None
    assert [takes(signature, n) for n in range(5)] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("field", "function"),
    [
        ("model", lambda width: nn.Linear(width, 1)),
        ("batch", lambda size: size),
        ("loss", lambda batch: batch),
        ("optimizer", lambda: None),
        ("count", lambda: 1),
        ("size", lambda batch, device: (batch, device)),
        ("checkpoint_blocks", lambda: None),
        ("micro_step", lambda model: model),
    ],
)
def test_a_workload_names_the_function_with_a_wrong_signature(field: str, function: Any) -> None:
    fields: dict[str, Any] = {
        "model": lambda: nn.Linear(4, 1),
        "batch": lambda size, device: (size, device),
        "loss": lambda model, batch: model(batch).mean(),
    }
    with pytest.raises(WorkloadError, match=f"`{field}` of the workload"):
        Workload(**(fields | {field: function}))
    Workload(**fields, micro_step=lambda model, batch, scale: (model, batch, scale))
