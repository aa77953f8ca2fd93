"""Decoders of transformers as Hugging Face's Trainer ran them in 2024, with peft's LoRA.

Today's transformers builds the modules. What has changed since is written out here: most models
converted their logits to fp32, and all shifted them by a copy before the loss; fused kernels
compute the loss in place of the logits. peft holds adapters in fp32 beside weights of 16 bits.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.workloads.builtins.gpt import Tokens, token_batches
from bsprof.workloads.workload import Workload

CONFIGS: dict[str, dict[str, Any]] = {
    "mistral-7b": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32_000,
        "max_position_embeddings": 32_768,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    },
    "santacoder": {
        "model_type": "gpt_bigcode",
        "n_embd": 2048,
        "n_head": 16,
        "n_layer": 24,
        "n_inner": 8192,
        "n_positions": 2048,
        "vocab_size": 49_280,
        "multi_query": True,
        "activation_function": "gelu_pytorch_tanh",
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "tie_word_embeddings": True,
    },
}
"""By name: fields of the published `config.json`."""

UPCASTS = frozenset({"mistral-7b"})
"""Models whose code of 2024 converted their logits to fp32; GPT-BigCode's took the loss of them in
their own type."""


class InPlaceCrossEntropy(torch.autograd.Function):
    """The sum of losses by a kernel that later writes the gradient over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """Losses of logits (n, vocabulary)."""
        losses = logits.new_empty(logits.shape[0], dtype=torch.float32)
        ctx.save_for_backward(logits, torch.empty_like(losses), targets)
        return losses

    @staticmethod
    def backward(ctx: Any, *_grads: Any) -> Any:
        """The memory of the logits, as their gradient."""
        return ctx.saved_tensors[0], None


class FusedNorm(torch.autograd.Function):
    """RMS norm as one kernel: it keeps its input and one number a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Over the last dimension."""
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        """The gradient is written over the one that comes in."""
        return grads[0], None


def _fused_norm(self: nn.Module, x: Tensor) -> Tensor:
    weight = self.weight
    assert isinstance(weight, Tensor)
    out: Tensor = FusedNorm.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


def workload(
    name: str,
    seq_len: int = 4096,
    rank: int = 0,
    targets: str = "",
    fused: bool = False,
    old_loss: bool = False,
    windowed: bool = True,
) -> Workload:
    """A Trainer's causal language model with all blocks checkpointed.

    Args:
        name: Of `CONFIGS`.
        seq_len: Tokens of a packed sample.
        rank: Of the adapters; 0 trains all weights.
        targets: Ends of the names of adapted layers, with spaces between.
        fused: Whether norms and the loss are fused kernels.
        old_loss: Whether the model converts its logits itself, as before transformers 4.45. Since
            then a function does, while the model still holds them in their own type.
        windowed: Whether the model has a window of attention, for which transformers makes a mask
            that torch's fastest kernels do not take; FlashAttention's own package knows windows.
    """
    config = dict(CONFIGS[name])
    if not windowed and "sliding_window" in config:
        config["sliding_window"] = None
    vocabulary = int(config["vocab_size"])

    def model() -> nn.Module:
        transformers = importlib.import_module("transformers")
        settings = transformers.AutoConfig.for_model(
            **config, use_cache=False, attn_implementation="sdpa"
        )
        built: nn.Module = transformers.AutoModelForCausalLM.from_config(settings)
        built.to(torch.bfloat16)  # here, not by `--precision`: adapters stay in fp32
        if rank:
            built = _adapted(built, rank, targets)
        if fused:
            for module in built.modules():
                if type(module).__name__.endswith("RMSNorm"):
                    module.forward = _fused_norm.__get__(module)
        return built

    def loss(model: nn.Module, batch: Tokens) -> Tensor:
        tokens, _ = batch
        logits = model(input_ids=tokens, use_cache=False).logits
        wide = logits.float() if name in UPCASTS else logits
        if old_loss:  # one name for both: what was converted is gone
            logits = wide
        shifted = wide[..., :-1, :].contiguous().view(-1, vocabulary)
        labels = tokens[..., 1:].contiguous().view(-1)
        if fused:
            losses: Tensor = InPlaceCrossEntropy.apply(  # type: ignore[no-untyped-call]
                shifted, labels
            )
            return losses.sum() / labels.numel()
        return F.cross_entropy(shifted, labels)

    return Workload(
        model=model,
        batch=token_batches(vocabulary, seq_len, 0),
        loss=loss,
        tokens_per_sample=seq_len,
    )


def _adapted(model: nn.Module, rank: int, targets: str) -> nn.Module:
    """The model with peft's adapters; only these are trained."""
    peft = importlib.import_module("peft")
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=rank,
        lora_dropout=0.1,
        target_modules=targets.split(),
        task_type="CAUSAL_LM",
    )
    adapted: nn.Module = peft.get_peft_model(model, settings)
    adapted.enable_input_require_grads()  # type: ignore[operator]
    return adapted
