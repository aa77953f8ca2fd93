from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest
import torch

from bsprof.accounting.counter import OperatorCounter
from bsprof.errors import UsageError
from bsprof.records import Mode, Scalar, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.unet import output_size
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

META = torch.device("meta")


def by_hand(name: str) -> tuple[int, int]:
    """Parameters and multiply-adds of a U-Net from figure 1 of the paper, layer by layer."""
    config = entries()[name].config
    widths = cast(tuple[int, ...], config["widths"])
    size, channels = cast(int, config["image_size"]), cast(int, config["channels"])
    lost, norm = (0, True) if config["padding"] else (2, False)
    parameters = products = 0

    def conv(narrow: int, wide: int) -> None:
        nonlocal parameters, products, size
        size -= lost
        parameters += 9 * narrow * wide + (2 * wide if norm else wide)
        products += 9 * narrow * wide * size * size

    for level, (narrow, wide) in enumerate(pairwise((channels, *widths))):
        size //= 2 if level else 1
        conv(narrow, wide)
        conv(wide, wide)
    for wide, narrow in pairwise(reversed(widths)):
        parameters += 4 * wide * narrow + narrow
        products += 4 * wide * narrow * size * size
        size *= 2
        conv(2 * narrow, narrow)
        conv(narrow, narrow)
    classes = cast(int, config["classes"])
    parameters += widths[0] * classes + classes
    products += widths[0] * classes * size * size
    return parameters, products


@pytest.mark.parametrize("name", ["unet", "unet-original"])
def test_parameters_and_flops_are_those_of_the_layers(name: str) -> None:
    workload = resolve(WorkloadSpec(model=name))
    with META:
        model = workload.model()
    parameters, products = by_hand(name)
    assert sum(p.numel() for p in model.parameters()) == parameters
    with torch.no_grad(), OperatorCounter() as counter:
        workload.loss(model, workload.batch(1, META))
    assert counter.totals.model_flops == pytest.approx(2 * products, rel=1e-3)
    assert counter.totals.uncounted == ()


def test_original_answers_for_the_middle_of_an_image() -> None:
    images, labels = resolve(WorkloadSpec(model="unet-original")).batch(1, META)
    assert images.shape == (1, 1, 572, 572)
    assert labels.shape == (1, 388, 388)


def test_padded_answers_for_every_pixel() -> None:
    workload = resolve(WorkloadSpec(model="unet", image_size=64))
    images, labels = workload.batch(2, META)
    with META:
        logits = workload.model()(images)
    assert logits.shape == (2, 2, 64, 64)
    assert labels.shape == (2, 64, 64)


def test_sizes_that_fit_have_a_closed_form() -> None:
    """Four halvings lose 184 pixels in all and need 12 more than a multiple of 16."""
    for size in range(1, 700):
        fits = size >= 188 and (size - 188) % 16 == 0
        assert output_size(size, 4, padding=False) == (size - 184 if fits else None)
        assert output_size(size, 4, padding=True) == (None if size % 16 else size)


@pytest.mark.parametrize("model", ["unet", "unet-original"])
def test_output_size_is_what_the_model_gives(model: str) -> None:
    options: dict[str, Scalar] = {"widths": "8,16,32"}
    padding = model == "unet"
    fitting = [size for size in range(4, 120) if output_size(size, 2, padding=padding)]
    assert len(fitting) > 10
    for size in fitting:
        spec = WorkloadSpec(model=model, model_options=options, image_size=size)
        workload = resolve(spec)
        with META:
            logits = workload.model()(workload.batch(2, META)[0])
        assert logits.shape[-1] == output_size(size, 2, padding=padding)


def test_the_middle_is_what_lies_below_the_answer() -> None:
    """Pixels of an image that no answer can depend on do not change it; the middle does."""
    options: dict[str, Scalar] = {"widths": "8,16", "image_size": 32}
    spec = WorkloadSpec(model="unet-original", model_options=options, mode=Mode.INFER)
    model = build_training(spec, resolve(spec), "cpu").model
    image = torch.randn(1, 1, 32, 32)
    corner, centre = image.clone(), image.clone()
    corner[..., 0, 0] += 100
    centre[..., 16, 16] += 100
    with torch.no_grad():
        said, with_corner, with_centre = model(image), model(corner), model(centre)
    assert torch.equal(said[..., 8:, 8:], with_corner[..., 8:, 8:])
    assert int((said != with_centre).any(dim=1).nonzero()[:, 1:].float().mean()) in range(5, 11)


@pytest.mark.parametrize(
    ("model", "size", "fitting"),
    [("unet", 500, 496), ("unet", 8, 16), ("unet-original", 512, 508), ("unet-original", 100, 188)],
)
def test_image_size_that_does_not_fit_is_refused(model: str, size: int, fitting: int) -> None:
    with pytest.raises(UsageError, match=f"{model} cannot take images of {size} x {size}") as error:
        resolve(WorkloadSpec(model=model, image_size=size))
    assert error.value.next_step == (f"use --image-size {fitting}, or add multiples of 16 to that")
    resolve(WorkloadSpec(model=model, image_size=fitting))
    resolve(WorkloadSpec(model=model, image_size=fitting + 16))


def test_a_single_width_is_refused() -> None:
    with pytest.raises(UsageError, match="unet needs two widths or more"):
        resolve(WorkloadSpec(model="unet", model_options={"widths": 64}))
