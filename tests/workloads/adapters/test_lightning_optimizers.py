from __future__ import annotations

from typing import Any

import pytest
import torch

from bsprof.errors import WorkloadError
from bsprof.workloads.adapters.lightning_optimizers import single_optimizer
from bsprof.workloads.workload import Workload

WEIGHT = torch.nn.Parameter(torch.ones(3))
ADAM = torch.optim.AdamW([WEIGHT])
SGD = torch.optim.SGD([WEIGHT])
SCHEDULE = torch.optim.lr_scheduler.ConstantLR(ADAM)


@pytest.mark.parametrize(
    "configured",
    [
        ADAM,
        [ADAM],
        (ADAM,),
        ([ADAM], [SCHEDULE]),
        ([ADAM], []),
        {"optimizer": ADAM},
        {"optimizer": ADAM, "lr_scheduler": {"scheduler": SCHEDULE}, "monitor": "loss"},
        [{"optimizer": ADAM, "lr_scheduler": SCHEDULE}],
    ],
)
def test_the_optimizer_is_found_in_every_form(configured: Any) -> None:
    assert single_optimizer(configured) is ADAM


@pytest.mark.parametrize(
    "configured",
    [
        [ADAM, SGD],
        (ADAM, SGD),
        ([ADAM, SGD], [SCHEDULE]),
        [{"optimizer": ADAM}, {"optimizer": SGD}],
    ],
)
def test_several_optimizers_are_refused(configured: Any) -> None:
    with pytest.raises(WorkloadError, match="several optimizers") as caught:
        single_optimizer(configured)
    assert caught.value.found == "configure_optimizers returned AdamW, SGD"
    assert "Workload.from_step" in caught.value.next_step


@pytest.mark.parametrize(
    ("configured", "found"),
    [(None, "nothing"), ([], "a list"), ({"lr_scheduler": 1}, "a dict"), (3, "a int")],
)
def test_what_holds_no_optimizer_is_refused(configured: Any, found: str) -> None:
    with pytest.raises(WorkloadError, match="must return an optimizer") as caught:
        single_optimizer(configured)
    assert caught.value.found == found


def test_a_module_of_another_kind_is_refused() -> None:
    workload = Workload.from_lightning(lambda: torch.nn.Linear(4, 1), [torch.ones(4)] * 3)
    with pytest.raises(WorkloadError, match="needs a LightningModule") as caught:
        workload.model()
    assert caught.value.found == "a Linear"
