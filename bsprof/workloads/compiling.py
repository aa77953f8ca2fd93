"""`--compile`: compile a model for one size, and find out whether that happened."""

from __future__ import annotations

from typing import cast

import torch
import torch._dynamo.config
import torch._dynamo.utils
from torch import nn

from bsprof.errors import WorkloadError
from bsprof.records import Note


def compile_model(model: nn.Module) -> nn.Module:
    """The model compiled for the shapes it will meet and no others, over the same parameters.

    Each micro-batch size needs a process of its own: a second size would compile again beside
    the first.
    """
    # Past its limit of recompilations torch.compile goes on in eager mode without a word.
    if hasattr(torch._dynamo.config, "fail_on_recompile_limit_hit"):
        torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.utils.counters.clear()
    # Not model.compile(): that leaves a bare nn.Sequential eager (torch 2.13.0).
    return cast(nn.Module, torch.compile(model, dynamic=False))


def check_compiled() -> tuple[Note, ...]:
    """After a step of a compiled model: a note when parts of it stayed eager.

    Raises:
        WorkloadError: nothing was compiled, as when the loss calls another method than forward.
    """
    counters = torch._dynamo.utils.counters
    if not counters["stats"]["unique_graphs"]:
        raise WorkloadError(
            "--compile has compiled nothing",
            found="a whole step without one compiled graph",
            next_step="call the model itself in loss(model, batch), model(x), not one of its "
            "methods; or leave --compile out",
        )
    breaks = sum(counters["graph_break"].values())
    if not breaks:
        return ()
    reason = next(iter(counters["graph_break"])).splitlines()[0]
    return (
        Note(
            code="graph-breaks",
            message=f"torch.compile left parts of the model eager ({breaks} graph breaks): "
            f"{reason}",
            hint="TORCH_LOGS=graph_breaks shows where",
        ),
    )
