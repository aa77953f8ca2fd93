from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve

META = torch.device("meta")


def model_of(name: str, **options: Any) -> nn.Module:
    with META:
        return resolve(WorkloadSpec(model=name, model_options=options)).model()


def test_the_stride_of_a_bottleneck_is_on_its_middle_convolution() -> None:
    strided = [
        name
        for name, module in model_of("resnet50").named_modules()
        if isinstance(module, nn.Conv2d) and module.stride == (2, 2) and "blocks" in name
    ]
    first_of_stages = (3, 7, 13)
    assert strided == [
        f"blocks.{n}.{part}" for n in first_of_stages for part in ("conv2", "around.0")
    ]


def test_each_stage_halves_the_image_and_doubles_the_channels() -> None:
    shapes = []
    model = model_of("resnet50")
    for block in model.get_submodule("blocks").children():
        block.register_forward_hook(lambda _module, _inputs, y: shapes.append(tuple(y.shape)))
    model(torch.empty(2, 3, 224, 224, device="meta"))
    assert [shapes[n] for n in (2, 6, 12, 15)] == [
        (2, 256, 56, 56),
        (2, 512, 28, 28),
        (2, 1024, 14, 14),
        (2, 2048, 7, 7),
    ]


def test_depths_are_a_setting() -> None:
    assert len(model_of("resnet152", depths="1,2,3,1").get_submodule("blocks")) == 7  # type: ignore[arg-type]


def test_wrong_number_of_depths_is_refused() -> None:
    with pytest.raises(UsageError, match="resnet50 needs 4 numbers for the setting depths"):
        resolve(WorkloadSpec(model="resnet50", model_options={"depths": "1,1"}))


def test_groups_without_bottlenecks_are_refused() -> None:
    with pytest.raises(UsageError, match="groups and width_per_group have no effect on resnet18"):
        resolve(WorkloadSpec(model="resnet18", model_options={"groups": 32}))
    resolve(WorkloadSpec(model="resnet18", model_options={"groups": 32, "bottleneck": True}))
