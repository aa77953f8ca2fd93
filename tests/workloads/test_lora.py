from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import Category, Precision, WorkloadSpec
from bsprof.workloads.lora import SCALE, LoraLinear, apply_lora
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

RANK = 2


class Attention(nn.Module):
    """Two projections and an output, six features in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(6, 4)
        self.k_proj = nn.Linear(6, 4, bias=False)
        self.v_proj = nn.Linear(6, 6, bias=False)
        self.mlp = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.q_proj(x) @ self.k_proj(x).mT).softmax(-1)
        y: Tensor = self.mlp(weights @ self.v_proj(x))
        return y


class Net(nn.Module):
    """Two blocks and a head, (b, n, 6) to (b, n, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Attention(), Attention()])
        self.head = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        y: Tensor = self.head(x)
        return y


def build(make: Callable[[], nn.Module] = Net, **options: Any) -> Training:
    workload = Workload(
        model=make,
        batch=lambda b, device: torch.randn(b, 5, 6, device=device),
        loss=lambda model, batch: model(batch).float().square().mean(),
    )
    values: dict[str, Any] = {"model": "mine", "lora_rank": RANK}
    return build_training(WorkloadSpec(**(values | options)), workload, "cpu")


def adapted(model: nn.Module) -> dict[str, LoraLinear]:
    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLinear)}


def stir(model: nn.Module) -> None:
    """As if trained: B no longer zero."""
    for layer in adapted(model).values():
        nn.init.normal_(layer.lora_b)


def merged(model: nn.Module) -> Net:
    """The plain model whose weights are W + (alpha / r) B A."""
    plain = Net()
    state = {
        name.replace(".base.", "."): tensor.detach().clone()
        for name, tensor in model.state_dict().items()
        if "lora_" not in name
    }
    for name, layer in adapted(model).items():
        state[f"{name}.weight"] += SCALE * layer.lora_b.detach() @ layer.lora_a.detach()
    plain.load_state_dict(state)
    return plain


def test_the_adapted_model_starts_as_the_model() -> None:
    torch.manual_seed(0)
    plain = Net()
    model = build().model
    x = torch.randn(2, 5, 6)
    assert torch.equal(model(x), plain(x))
    assert list(adapted(model)) == [
        f"layers.{index}.{name}" for index in (0, 1) for name in ("q_proj", "v_proj")
    ]


def test_merged_weights_give_the_same_outputs_and_gradients() -> None:
    training = build(lora_targets=("v_proj", "mlp.0"))
    stir(training.model)
    batch = training.make_batch(3)
    plain = merged(training.model)
    assert torch.allclose(training.model(batch), plain(batch), atol=1e-6)
    training.micro_step(batch, 1.0)
    plain(batch).square().mean().backward()
    assert len(adapted(training.model)) == 4
    for name, layer in adapted(training.model).items():
        whole = plain.get_parameter(f"{name}.weight").grad
        assert whole is not None
        assert layer.lora_a.grad is not None
        assert layer.lora_b.grad is not None
        # W' = W + s B A, so dA = s B^T dW' and dB = s dW' A^T.
        assert torch.allclose(layer.lora_a.grad, SCALE * layer.lora_b.mT @ whole, atol=1e-6)
        assert torch.allclose(layer.lora_b.grad, SCALE * whole @ layer.lora_a.mT, atol=1e-6)


def test_only_adapters_are_trained() -> None:
    training = build(optimizer_options={"lr": 0.1})
    before = {name: p.detach().clone() for name, p in training.model.named_parameters()}
    for _ in range(3):
        training.micro_step(training.make_batch(2), 1.0)
        training.optimizer_step()
        training.zero_grad()
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, before[name]) is ("lora_" not in name), name
    adapters = 2 * RANK * ((6 + 4) + (6 + 6))
    assert training.facts.trainable_parameter_count == adapters
    plain = sum(p.numel() for p in Net().parameters())
    assert training.facts.parameter_count == plain + adapters


def test_resident_bytes_of_a_transformer_with_adapters() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, lora_rank=4)
    training = build_training(spec, resolve(spec), "cpu")
    training.micro_step(training.make_batch(2), 1.0)
    training.optimizer_step()
    adapters = 4 * 4 * (256 + 3 * 256)  # blocks x rank x (in + out) of qkv
    assert training.facts.trainable_parameter_count == adapters
    assert training.resident_bytes() == {
        Category.WEIGHTS: 4 * training.facts.parameter_count,
        Category.GRADIENTS: 4 * adapters,
        Category.OPTIMIZER_STATE: 2 * 4 * adapters + 4 * 8,  # a step counter for each tensor
    }


def test_usual_targets_are_told_and_named_ones_are_not() -> None:
    (note,) = build().notes
    assert note.code == "lora-targets"
    assert note.message == "--lora adapts the layers called q_proj, v_proj: 4 of 11 linear layers"
    assert build(lora_targets=("q_proj",)).notes == ()


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (("layers.0.q_proj",), ["layers.0.q_proj"]),
        (("mlp.2",), ["layers.0.mlp.2", "layers.1.mlp.2"]),
        (("1.k_proj", "head"), ["layers.1.k_proj", "head"]),
    ],
)
def test_targets_are_ends_of_names(targets: tuple[str, ...], names: list[str]) -> None:
    assert list(adapted(build(lora_targets=targets, lora_rank=1).model)) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_targets": ("proj",)}, "no linear layer has a name that ends with 'proj'"),
        ({"lora_targets": ("q_proj", "nope")}, "its linear layers: q_proj, k_proj, v_proj, mlp.0"),
        ({"lora_rank": 5}, r"--lora r=5 is above what layers.0.q_proj can have"),
        ({"lora_rank": 5}, "a layer of 6 inputs and 4 outputs"),
        ({"make": lambda: nn.Sequential(nn.Linear(6, 6))}, "its linear layers: 0"),
        ({"make": lambda: nn.Sequential(nn.LayerNorm(6))}, "no linear layer inside"),
        ({"make": lambda: nn.Linear(6, 6)}, "no linear layer inside"),
    ],
)
def test_what_cannot_be_adapted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(**options)


def test_a_model_that_peft_has_adapted_is_left_to_it() -> None:
    class Tuner(Net):
        __module__ = "peft.tuners.lora"

    with pytest.raises(UsageError, match="peft has adapted already"):
        build(Tuner)


def test_multihead_attention_reads_the_weight_of_its_output() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8), nn.Linear(6, 1))
    with pytest.raises(UsageError, match=r"its linear layers: linear1, linear2, 1\n"):
        apply_lora(model, 1, ("out_proj",))


def test_a_tied_weight_stays_tied_and_is_frozen() -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=8, lora_rank=4, lora_targets=("head",))
    training = build_training(spec, resolve(spec), "cpu")
    head = training.model.get_submodule("head")
    assert isinstance(head, LoraLinear)
    assert head.weight is training.model.get_parameter("tokens.weight")
    assert not head.weight.requires_grad
    assert training.facts.trainable_parameter_count == 4 * (256 + 1000)
    plain = WorkloadSpec(model="gpt-tiny", seq_len=8)
    alone = build_training(plain, resolve(plain), "cpu").facts
    assert training.facts.parameter_count == alone.parameter_count + 4 * (256 + 1000)


def test_a_layer_at_two_places_keeps_one_adapter() -> None:
    model = nn.Module()
    model.one = nn.Sequential(nn.Linear(4, 4))
    model.two = nn.Sequential(model.one[0], nn.ReLU())
    apply_lora(model, 1, ("one.0",))
    assert isinstance(model.one[0], LoraLinear)
    assert model.one[0] is model.two[0]


def test_what_reads_a_layer_finds_its_own_weight_and_sizes() -> None:
    base = nn.Linear(6, 4)
    layer = LoraLinear(base, 2)
    assert (layer.in_features, layer.out_features) == (6, 4)
    assert layer.weight is base.weight
    assert layer.bias is base.bias


def test_the_transposed_layer_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4))
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weight + self.bias

    monkeypatch.setitem(sys.modules, "transformers.pytorch_utils", SimpleNamespace(Conv1D=Conv1D))  # type: ignore[arg-type]
    model = nn.Sequential()
    model.c_attn = Conv1D()
    apply_lora(model, 3, ())
    layer = model.c_attn
    assert isinstance(layer, LoraLinear)
    assert (layer.in_features, layer.out_features) == (6, 4)
    nn.init.normal_(layer.lora_b)
    x = torch.randn(2, 6)
    whole = layer.weight + SCALE * (layer.lora_b @ layer.lora_a).mT
    assert torch.allclose(layer(x), x @ whole + layer.base.bias, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.FP32, torch.float32),
        (Precision.AMP_BF16, torch.float32),
        (Precision.BF16, torch.bfloat16),
    ],
)
def test_adapters_have_the_type_of_the_weights(precision: Precision, dtype: torch.dtype) -> None:
    training = build(precision=precision)
    assert {p.dtype for p in training.model.parameters()} == {dtype}
    training.micro_step(training.make_batch(2), 1.0)
    assert training.optimizer_step()


def test_gradients_with_checkpointing_are_those_without() -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build(activation_checkpointing=checkpointing)
        torch.manual_seed(3)
        stir(training.model)
        training.micro_step(training.make_batch(2), 1.0)
        gradients.append([p.grad for p in training.model.parameters() if p.requires_grad])
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert torch.equal(one, other)


def test_an_adapted_model_compiles_in_one_piece() -> None:
    training = build()
    stir(training.model)
    x = training.make_batch(2)
    compiled = torch.compile(training.model, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x), training.model(x))
    torch._dynamo.reset()


def test_the_workloads_own_optimizer_gets_the_adapters() -> None:
    given: list[nn.Parameter] = []

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        given.extend(parameters)
        return torch.optim.SGD(given, lr=0.1)

    workload = Workload(
        model=Net,
        batch=lambda b, device: torch.randn(b, 5, 6, device=device),
        loss=lambda model, batch: model(batch).mean(),
        optimizer=optimizer,
    )
    training = build_training(WorkloadSpec(model="mine", lora_rank=RANK), workload, "cpu")
    assert [id(p) for p in given] == [id(p) for p in training.model.parameters() if p.requires_grad]
    assert len(given) == 8


def test_an_optimizer_that_does_not_hold_the_adapters_is_refused() -> None:
    model = Net()
    early = torch.optim.AdamW(model.parameters())
    workload = Workload(
        model=lambda: model,
        batch=lambda b, device: torch.randn(b, 5, 6, device=device),
        loss=lambda model, batch: model(batch).square().mean(),
        optimizer=lambda params: early,  # noqa: ARG005
    )
    spec = WorkloadSpec(model="mine", lora_rank=RANK)
    with pytest.raises(UsageError, match="--lora has no effect"):
        build_training(spec, workload, "cpu")
