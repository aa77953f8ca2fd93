"""`mlp`: four linear layers on flat inputs."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images, image_batches
from bsprof.workloads.workload import Workload

INPUTS = 784
WIDTH = 512
CLASSES = 10


def build_model() -> nn.Module:
    """A multi-layer perceptron: (b, 784) to (b, 10)."""
    return nn.Sequential(
        nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU()),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()),
        nn.Linear(WIDTH, CLASSES),
    )


def loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy."""
    inputs, labels = batch
    return F.cross_entropy(model(inputs), labels)


def workload(spec: WorkloadSpec) -> Workload:
    """The workload of `--model mlp`."""
    return Workload(
        model=build_model,
        batch=image_batches((INPUTS,), CLASSES, spec.seed),
        loss=loss,
        checkpoint_blocks=lambda model: list(model.children())[:-1],
    )
