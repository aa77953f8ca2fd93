"""What holds for every vision family of the catalogue; what is particular has a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.accounting.counter import OperatorCounter
from bsprof.errors import UsageError
from bsprof.records import Mode, Precision, Scalar, WorkloadSpec
from bsprof.workloads.catalogue.entries import Entry, entries
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

FAMILIES = ("convnext", "diffusion", "efficientnet", "resnet", "unet", "vit")
ENTRIES = [entry for entry in entries().values() if entry.family in FAMILIES]
CPU, META = torch.device("cpu"), torch.device("meta")

# Reduced models: every part of the architecture is there, small.
_VIT: Mapping[str, Scalar] = {
    "layers": 2,
    "width": 32,
    "heads": 2,
    "mlp_width": 64,
    "image_size": 32,
    "classes": 10,
}
_RESNET: Mapping[str, Scalar] = {"depths": "1,1,1,1", "image_size": 64, "classes": 10}
REDUCED: Mapping[str, Mapping[str, Scalar]] = {
    "convnext-tiny": {
        "depths": "1,2,1,1",
        "widths": "8,8,16,16",
        "image_size": 32,
        "classes": 10,
    },
    "ddpm-cifar10": {
        "width": 32,
        "multipliers": "1,2",
        "blocks": 1,
        "attention_at": 8,
        "image_size": 16,
    },
    "deit-tiny-distilled-16": _VIT,
    "efficientnet-b0": {
        "depths": "1,2,1,1,1,1,1",
        "widths": "8,8,8,16,16,16,24,24,64",
        "image_size": 64,
        "classes": 10,
    },
    "resnet18": _RESNET,
    "resnet50": _RESNET,
    "unet": {"widths": "8,16", "image_size": 32},
    "unet-original": {"widths": "8,16", "image_size": 32},
    "vit-s-16": _VIT,
}
BLOCKS = {
    "convnext-tiny": 5,
    "ddpm-cifar10": 8,
    "deit-tiny-distilled-16": 2,
    "efficientnet-b0": 8,
    "resnet18": 4,
    "resnet50": 4,
    "unet": 3,
    "unet-original": 3,
    "vit-s-16": 2,
}
LARGER = {"resnet18": 96, "resnet50": 96, "efficientnet-b0": 96, "ddpm-cifar10": 32}
"""An image size that the reduced model also takes; 64 for the others."""


def build(model: str, **more: Any) -> Training:
    options = {**REDUCED[model], **more.pop("model_options", {})}
    if "image_size" in more:
        options.pop("image_size", None)
    spec = WorkloadSpec(model=model, model_options=options, **more)
    return build_training(spec, resolve(spec), "cpu")


def without_draws(model: str) -> dict[str, Scalar]:
    """Settings that take all randomness out of training."""
    settings = entries()[model].config
    return {key: 0.0 for key in ("dropout", "stochastic_depth") if key in settings}


def answers(training: Training, batch: Any) -> Tensor:
    """What the model says of a batch."""
    inputs = (batch[0], batch[2]) if training.spec.model.startswith("ddpm") else batch[:1]
    said: Tensor = training.model(*inputs)
    return said


def forward_flops(entry: Entry, **more: Any) -> int:
    """FLOPs of one sample's forward pass in evaluation, by the project's own accounting."""
    workload = resolve(WorkloadSpec(model=entry.name, **more))
    with META:
        model = workload.model().eval()
    with torch.no_grad(), OperatorCounter() as counter:
        workload.loss(model, workload.batch(1, META))
    assert counter.totals.uncounted == ()
    return counter.totals.model_flops


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_parameter_count_is_the_published_one(entry: Entry) -> None:
    with META:
        model = resolve(WorkloadSpec(model=entry.name)).model()
    count = sum(p.numel() for p in model.parameters())
    exact = "torchvision" in entry.source or entry.family == "diffusion"
    assert count == pytest.approx(entry.parameters, rel=0 if exact else 1e-3, abs=0)


# torchvision states "GFLOPS" and timm "GMACs"; both count multiply-adds, and an entry holds twice
# that. https://docs.pytorch.org/vision/stable/models.html, and the addresses in the entries.
@pytest.mark.parametrize(
    ("name", "published_gmacs"),
    [
        ("resnet50", 4.089),
        ("vit-b-16", 17.564),
        ("convnext-tiny", 4.456),
        ("efficientnet-b0", 0.386),
        ("deit-tiny-16", 1.26),
        ("ddpm-256", 248.7),  # arXiv 2305.10924, table 2
    ],
)
def test_flops_are_the_published_ones(name: str, published_gmacs: float) -> None:
    entry = entries()[name]
    assert entry.forward_flops == pytest.approx(2e9 * published_gmacs)
    assert forward_flops(entry) == pytest.approx(2e9 * published_gmacs, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_flops_of_all_entries_are_the_published_ones(entry: Entry) -> None:
    if entry.forward_flops is not None:
        assert forward_flops(entry) == pytest.approx(entry.forward_flops, rel=0.02)
    else:
        assert forward_flops(entry) > 0


@pytest.mark.slow
def test_flops_of_efficientnet_b2_are_the_published_ones_at_their_image_size() -> None:
    flops = forward_flops(entries()["efficientnet-b2"], image_size=288)
    assert flops == pytest.approx(2 * 1.088e9, rel=0.02)  # torchvision's page of efficientnet_b2


@pytest.mark.parametrize("model", REDUCED)
def test_trains(model: str) -> None:
    options = {"lr": 0.003}
    training = build(model, optimizer_options=options, model_options=without_draws(model))
    batch = training.make_batch(3)
    first = float(training.workload.loss(training.model, batch).detach())
    for _ in range(6):
        training.micro_step(batch, 1.0)
        without = [name for name, p in training.model.named_parameters() if p.grad is None]
        assert without == []
        assert training.optimizer_step()
        training.zero_grad()
    last = float(training.workload.loss(training.model, batch).detach())
    assert last < 0.995 * first


@pytest.mark.parametrize("model", REDUCED)
def test_samples_do_not_mix_in_evaluation(model: str) -> None:
    training = build(model, mode=Mode.INFER)
    batch = training.make_batch(3)
    training.micro_step(batch, 1.0)
    with torch.no_grad():
        together = answers(training, batch)
        parts = [tuple(tensor[i : i + 1] for tensor in batch) for i in range(3)]
        alone = torch.cat([answers(training, part) for part in parts])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    assert together.std() > 0


@pytest.mark.parametrize("model", REDUCED)
def test_checkpointing_gives_the_same_gradient(model: str) -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build(model, activation_checkpointing=checkpointing)
        batch = training.make_batch(2)
        torch.manual_seed(1)  # for what is dropped
        training.micro_step(batch, 1.0)
        gradients.append({name: p.grad for name, p in training.model.named_parameters()})
    for name, plain in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], plain, msg=name)


@pytest.mark.parametrize("model", REDUCED)
def test_blocks_for_checkpointing_are_all_residual_blocks(model: str) -> None:
    training = build(model)
    assert training.workload.checkpoint_blocks is not None
    blocks = list(training.workload.checkpoint_blocks(training.model))
    assert len(blocks) == len(set(blocks)) == BLOCKS[model]
    modules = list(training.model.modules())
    ran: list[nn.Module] = []
    for block in blocks:
        assert block in modules
        block.register_forward_hook(lambda module, *_: ran.append(module))
    training.micro_step(training.make_batch(2), 1.0)
    assert ran == blocks


@pytest.mark.parametrize("model", REDUCED)
def test_training_asks_nothing_of_the_device(model: str) -> None:
    """On the meta device no tensor has a value, so a synchronisation would fail."""
    workload = resolve(WorkloadSpec(model=model, model_options=REDUCED[model]))
    with META:
        training = workload.model()
    loss = workload.loss(training, workload.batch(2, META))
    loss.backward()
    assert loss.shape == ()


@pytest.mark.parametrize("precision", [Precision.AMP_BF16, Precision.BF16])
@pytest.mark.parametrize("model", REDUCED)
def test_trains_in_bf16(model: str, precision: Precision) -> None:
    training = build(model, precision=precision)
    training.micro_step(training.make_batch(2), 1.0)
    assert all(bool(p.grad.isfinite().all()) for p in training.model.parameters())  # type: ignore[union-attr]


@pytest.mark.parametrize("model", REDUCED)
def test_batches_are_random_fresh_and_repeatable(model: str) -> None:
    def spec(seed: int) -> WorkloadSpec:
        return WorkloadSpec(model=model, model_options=REDUCED[model], seed=seed)

    one, again, other = resolve(spec(0)), resolve(spec(0)), resolve(spec(1))
    batch, repeated, differing = one.batch(4, CPU), again.batch(4, CPU), other.batch(4, CPU)
    assert all(len(tensor) == 4 for tensor in batch)
    assert all(map(torch.equal, batch, repeated))
    assert not torch.equal(batch[0], differing[0])
    assert not torch.equal(batch[0], one.batch(4, CPU)[0])
    assert batch[0].std() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("model", REDUCED)
def test_image_size_replaces_the_setting(model: str) -> None:
    size = LARGER.get(model, 64)
    training = build(model, image_size=size)
    batch = training.make_batch(2)
    assert batch[0].shape[-2:] == (size, size)
    training.micro_step(batch, 1.0)


@pytest.mark.parametrize(
    ("model", "size", "advice"),
    [
        ("convnext-tiny", 31, "at least 32"),
        ("ddpm-256", 240, "a multiple of 32, at least 32"),
        ("efficientnet-b0", 31, "at least 32"),
        ("resnet50", 31, "at least 32"),
        ("vit-b-16", 200, "a multiple of 16, at least 16"),
        ("vit-h-14", 0, "a multiple of 14, at least 14"),
    ],
)
def test_image_size_that_does_not_fit_is_refused(model: str, size: int, advice: str) -> None:
    with pytest.raises(UsageError, match=f"{model} cannot take images of {size} x {size}") as error:
        resolve(WorkloadSpec(model=model, image_size=size))
    assert error.value.next_step == f"use --image-size with {advice}"


def test_images_of_one_stride_leave_one_pixel() -> None:
    for model in ("resnet18", "efficientnet-b0"):
        training = build(model, image_size=32)
        training.micro_step(training.make_batch(2), 1.0)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_facts_have_a_source(entry: Entry) -> None:
    assert entry.source.startswith("https://")
    assert (entry.forward_flops is None) == (entry.flops_source == "")
    assert len(entry.summary) < 80


@pytest.mark.slow
@pytest.mark.parametrize("model", REDUCED)
def test_compiles_whole(model: str) -> None:
    training = build(model, model_options=without_draws(model))
    batch = training.make_batch(2)
    expected = training.workload.loss(training.model, batch)
    compiled = torch.compile(training.model, fullgraph=True, dynamic=False, backend="aot_eager")
    loss = training.workload.loss(compiled, batch)
    loss.backward()
    torch.testing.assert_close(loss, expected)
