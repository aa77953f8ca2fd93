from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.blocks import parse_checkpointing
from bsprof.workloads.checkpointing import apply_checkpointing, find_blocks
from bsprof.workloads.names import builtin_names
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

SMALL = {"gpt-tiny": {"seq_len": 4}, "encoder-tiny": {"seq_len": 4}}


def build(model: str, checkpointing: str) -> Training:
    options: dict[str, Any] = SMALL.get(model, {})
    spec = WorkloadSpec(model=model, activation_checkpointing=checkpointing, **options)
    return build_training(spec, resolve(spec), "cpu")


def counted(training: Training) -> list[int]:
    """How often each block runs its first submodule in one micro-step."""
    blocks = find_blocks(training.model, training.workload)
    counts = [0] * len(blocks)

    def count(index: int) -> Any:
        def hook(*_: Any) -> None:
            counts[index] += 1

        return hook

    for index, block in enumerate(blocks):
        next(block.children()).register_forward_hook(count(index))
    training.micro_step(training.make_batch(2), 1.0)
    return counts


@pytest.mark.parametrize("model", builtin_names())
def test_every_builtin_recomputes_its_blocks_with_the_same_gradient(model: str) -> None:
    plain, full = build(model, "none"), build(model, "full")
    torch.manual_seed(5)
    assert set(counted(plain)) == {1}
    torch.manual_seed(5)
    assert set(counted(full)) == {2}
    for ours, other in zip(plain.model.parameters(), full.model.parameters(), strict=True):
        if ours.grad is not None and other.grad is not None:
            assert ours.grad.shape == other.grad.shape


def test_gradients_are_those_without_checkpointing() -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build("gpt-tiny", checkpointing)
        batch = training.make_batch(2)
        torch.manual_seed(9)  # dropout must be drawn alike again in the recomputation
        training.micro_step(batch, 1.0)
        gradients.append([p.grad for p in training.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other)


def test_every_nth_block() -> None:
    assert counted(build("gpt-tiny", "2")) == [1, 2, 1, 2]
    assert counted(build("gpt-tiny", "4")) == [1, 1, 1, 2]


def test_more_than_there_are_blocks_has_no_effect() -> None:
    with pytest.raises(UsageError, match="--activation-checkpointing 5 has no effect"):
        build("gpt-tiny", "5")


@pytest.mark.parametrize("text", ["", "0", "-1", "some", "1.5", "FULL"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="write none, full, or a whole number N"):
        parse_checkpointing(text)


class Outer(nn.Module):
    """Two lists of like modules, one within the other, and a list of unlike ones."""

    def __init__(self) -> None:
        super().__init__()
        self.unlike = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
        self.empty = nn.ModuleList([nn.ReLU(), nn.ReLU()])
        self.layers = nn.ModuleList([Inner(), Inner(), Inner()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Inner(nn.Module):
    """A block with a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.experts[0](x) + self.experts[1](x)
        return y


def workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {"model": None, "batch": None, "loss": None}
    return Workload(**(values | changes))


def test_blocks_are_found_in_the_outermost_list_of_like_modules() -> None:
    model = Outer()
    assert list(find_blocks(model, workload())) == list(model.layers)


def test_model_without_blocks_asks_for_them() -> None:
    with pytest.raises(WorkloadError, match="of like modules in Linear") as caught:
        find_blocks(nn.Linear(3, 3), workload())
    assert "checkpoint_blocks" in caught.value.next_step


def test_own_list_of_blocks_wins() -> None:
    model = Outer()
    chosen = workload(checkpoint_blocks=lambda outer: [outer.layers[1]])
    assert list(find_blocks(model, chosen)) == [model.layers[1]]


class Block(nn.Module):
    """A block with a layer of its own, and a list of like layers inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return y


class Narrow(Block):
    """Another class of block."""


class EncoderStage(nn.Module):
    """A stage of a hierarchical model: what goes between stages, and blocks."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.between = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))


class ConvNormAct(nn.Sequential):
    """A chain that is a class of its own."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU())


def model_of(**parts: nn.Module) -> nn.Module:
    model = nn.Module()
    for name, part in parts.items():
        model.add_module(name, part)
    return model


def vit() -> nn.Module:
    head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    return model_of(patches=nn.Conv2d(3, 4, 4), blocks=nn.Sequential(Block(), Block()), head=head)


def resnet() -> nn.Module:
    stages = {
        f"layer{i + 1}": nn.Sequential(*(Block() for _ in range(n)))
        for i, n in enumerate((2, 1, 3))
    }
    return model_of(stem=nn.Sequential(nn.Linear(4, 4), nn.ReLU()), **stages)


def hierarchy() -> nn.Module:
    return model_of(stages=nn.Sequential(EncoderStage(2), EncoderStage(1), EncoderStage(2)))


def encoder_decoder() -> nn.Module:
    encoder = model_of(block=nn.ModuleList([Block(), Block()]))
    decoder = model_of(block=nn.ModuleList([Narrow(), Narrow()]))
    return model_of(shared=nn.Embedding(5, 4), encoder=encoder, decoder=decoder)


def flat() -> nn.Module:
    chain = (nn.Linear(4, 4), Block(), nn.ReLU(), Block(), Narrow(), Narrow(), nn.Linear(4, 2))
    return nn.Sequential(*chain)


def lists_of_lists() -> nn.Module:
    pairs = [nn.ModuleList([Block(), Narrow()]) for _ in range(2)]
    return model_of(layers=nn.ModuleList(pairs))


def named() -> nn.Module:
    return model_of(dense=nn.ModuleDict({"one": Block(), "two": Block()}))


def chains() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2)))


def shallow() -> nn.Module:
    return model_of(layer1=nn.Sequential(Block()), layer2=nn.Sequential(Block()))


def attributes() -> nn.Module:
    stages = {f"stage{index}": EncoderStage(1) for index in (1, 2)}
    for stage in stages.values():
        stage.blocks = nn.Identity()
        stage.one, stage.two = Block(), Block()
    return model_of(
        stem=nn.Sequential(nn.Linear(4, 4)), **stages, head=nn.Sequential(nn.Linear(4, 4))
    )


def mixers() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(Block(), nn.Linear(4, 40)) for _ in range(2)))


def uneven() -> nn.Module:
    return model_of(encoder=nn.ModuleList([Narrow()]), decoder=nn.ModuleList([Block(), Block()]))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (vit, ["blocks.0", "blocks.1"]),
        (resnet, ["layer1.0", "layer1.1", "layer2.0", "layer3.0", "layer3.1", "layer3.2"]),
        (
            hierarchy,
            [f"stages.{i}.blocks.{j}" for i, j in ((0, 0), (0, 1), (1, 0), (2, 0), (2, 1))],
        ),
        (encoder_decoder, [f"{side}.block.{i}" for side in ("encoder", "decoder") for i in (0, 1)]),
        (flat, ["1", "3", "4", "5"]),
        (lists_of_lists, [f"layers.{i}.{j}" for i in (0, 1) for j in (0, 1)]),
        (named, ["dense.one", "dense.two"]),
        (chains, ["0", "1"]),
        (shallow, ["layer1.0", "layer2.0"]),
        (attributes, [f"stage{index}.{block}" for index in (1, 2) for block in ("one", "two")]),
        (mixers, ["0", "1"]),
        (uneven, ["encoder.0", "decoder.0", "decoder.1"]),
        (lambda: nn.Sequential(ConvNormAct(), ConvNormAct()), ["0", "1"]),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), ["0", "1"]),
        (lambda: model_of(rnn=nn.ModuleList([nn.LSTM(4, 4), nn.LSTM(4, 4)])), ["rnn.0", "rnn.1"]),
    ],
)
def test_blocks_are_what_a_model_repeats(make: Any, names: list[str]) -> None:
    model = make()
    by_module = {module: name for name, module in model.named_modules()}
    assert [by_module[block] for block in find_blocks(model, workload())] == names


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        lambda: nn.Sequential(nn.ReLU(), nn.ReLU()),
        lambda: model_of(one=nn.Linear(4, 4), two=nn.Sequential(nn.Linear(4, 4))),
    ],
)
def test_layers_of_several_classes_are_no_blocks(make: Any) -> None:
    with pytest.raises(WorkloadError, match="found no blocks"):
        find_blocks(make(), workload())


def test_a_block_that_is_called_from_two_lists_is_one() -> None:
    block = Block()
    model = model_of(one=nn.ModuleList([block, Block()]), two=nn.ModuleList([block, Block()]))
    assert len(find_blocks(model, workload())) == 3


def test_transformers_keeps_no_cache_of_what_runs_again() -> None:
    class Config:
        __module__ = "transformers.models.llama"
        use_cache = True

    class Own:
        use_cache = True

    model = model_of(layers=nn.ModuleList([Block(), Block()]))
    other = model_of(layers=nn.ModuleList([Block(), Block()]))
    model.config, other.config = Config(), Own()  # type: ignore[assignment]
    for each in (model, other):
        assert apply_checkpointing(each, workload(), 1) == 2
    assert (model.config.use_cache, other.config.use_cache) == (False, True)


class WritesItsList(nn.Module):
    """Takes a list, changes it, and returns its sum: as HRNet's modules do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, parts: list[Tensor]) -> Tensor:
        parts[0] = self.layer(parts[0]).sin()
        return parts[0] + parts[1]


class SharesAList(nn.Module):
    """Two blocks that get one list, which grows in between: as in a DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(WritesItsList() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        parts = [x, 2 * x]
        for block in self.blocks:
            parts.insert(0, block(list(parts)))
        return parts[0]


def test_a_block_that_changes_its_list_keeps_its_gradient() -> None:
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = SharesAList()
        workload = Workload(
            model=SharesAList,
            batch=lambda size, device: torch.ones(size, 3, device=device),
            loss=lambda model, batch: model(batch).sum(),
        )
        if checkpointing:
            assert apply_checkpointing(model, workload, 1) == 2
        model(torch.linspace(-1, 1, 6).view(2, 3)).sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed, rtol=0, atol=0)
