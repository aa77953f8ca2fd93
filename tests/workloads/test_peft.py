"""Models that the user's own peft has adapted, with the real package."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from bsprof.errors import UsageError
from bsprof.records import Category, Precision, WorkloadSpec
from bsprof.workloads.checkpointing import find_blocks
from bsprof.workloads.lora import LoraLinear
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

LAYERS, WIDTH, RANK = 2, 32, 4
GPT2 = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": 2, "vocab_size": 50, "n_positions": 16}
LLAMA = {
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}


def gpt2() -> nn.Module:
    model: nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2))
    return model


def llama() -> nn.Module:
    model: nn.Module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    return model


def adapted_by_peft() -> nn.Module:
    config = peft.LoraConfig(r=RANK, lora_alpha=RANK, lora_dropout=0.0, task_type="CAUSAL_LM")
    model: nn.Module = peft.get_peft_model(llama(), config)
    return model


def build(make: Any, **options: Any) -> Training:
    workload = Workload(
        model=make,
        batch=lambda b, device: torch.randint(50, (b, 8), device=device),
        loss=lambda model, batch: model(input_ids=batch, labels=batch).loss,
    )
    return build_training(WorkloadSpec(model="mine", **options), workload, "cpu")


def update(training: Training) -> None:
    training.micro_step(training.make_batch(2), 1.0)
    assert training.optimizer_step()


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_a_model_of_peft_trains_its_adapters_alone(checkpointing: str) -> None:
    training = build(adapted_by_peft, activation_checkpointing=checkpointing, ema=True)
    adapters = LAYERS * 2 * RANK * (WIDTH + WIDTH)
    assert training.facts.trainable_parameter_count == adapters
    update(training)
    resident = training.resident_bytes()
    assert resident[Category.GRADIENTS] == 4 * adapters
    assert resident[Category.OPTIMIZER_STATE] == 2 * 4 * adapters + 4 * LAYERS * 2 * 2
    with pytest.raises(UsageError, match="peft has adapted already"):
        build(adapted_by_peft, lora_rank=RANK)


def test_ours_computes_what_peft_computes() -> None:
    ours, theirs = build(llama, lora_rank=RANK), build(adapted_by_peft)
    assert ours.facts.trainable_parameter_count == theirs.facts.trainable_parameter_count
    assert ours.facts.parameter_count == theirs.facts.parameter_count
    mine = [p for p in ours.model.parameters() if p.requires_grad]
    others = [p for p in theirs.model.parameters() if p.requires_grad]
    with torch.no_grad():
        for one, other in zip(mine, others, strict=True):
            one.normal_()
            other.copy_(one)
        frozen = dict(theirs.model.named_parameters())
        for name, parameter in ours.model.named_parameters():
            if "lora_" not in name:
                inner = name.replace(".base.", ".base_layer.")
                frozen[f"base_model.model.{inner}"].copy_(parameter)
    batch = ours.make_batch(2)
    for training in (ours, theirs):
        training.micro_step(batch, 1.0)
    for one, other in zip(mine, others, strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16, Precision.AMP_BF16])
def test_conv1d_of_transformers_is_adapted(precision: Precision) -> None:
    training = build(gpt2, lora_rank=RANK, precision=precision, activation_checkpointing="full")
    assert training.facts.trainable_parameter_count == LAYERS * RANK * (WIDTH + 3 * WIDTH)
    assert len(find_blocks(training.model, training.workload)) == LAYERS
    adapters = [m for m in training.model.modules() if isinstance(m, LoraLinear)]
    assert {type(m.base).__name__ for m in adapters} == {"Conv1D"}
    update(training)


def test_the_cache_of_keys_and_values_does_not_grow_in_the_recomputation() -> None:
    gradients = []
    for checkpointing in ("none", "full"):
        training = build(llama, activation_checkpointing=checkpointing)
        training.micro_step(torch.arange(16).view(2, 8), 1.0)
        gradients.append([p.grad for p in training.model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other)
