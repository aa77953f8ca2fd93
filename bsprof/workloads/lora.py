"""LoRA: low-rank adapters beside frozen linear layers (Hu et al. 2021, arXiv 2106.09685).

A layer y = W x becomes y = W x + (alpha / r) B A x, where A (r, in) starts random and B (out, r)
at zero, so that the adapted model computes at first what the model computed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import Note

SCALE = 1.0
"""alpha / r with alpha = r, as the paper sets it (section 4.1)."""

USUAL_TARGETS = frozenset(
    {
        "q_proj",  # Llama, Qwen, Mistral, Gemma, OPT, Whisper
        "v_proj",
        "query",  # BERT, RoBERTa, ViT
        "value",
        "q",  # T5
        "v",
        "to_q",  # diffusion models
        "to_v",
        "wq",  # Llama as published
        "wv",
        "q_lin",  # DistilBERT
        "v_lin",
        "query_proj",  # DeBERTa
        "value_proj",
        "qkv",  # timm
        "to_qkv",
        "qkv_proj",  # Phi-3
        "c_attn",  # GPT-2
        "query_key_value",  # Pythia, BLOOM, Falcon
        "Wqkv",  # MPT
    }
)
"""Names of query and value projections, and of projections that fuse them with the keys: what
the paper adapts (its section 7.1), as well-known models call it."""

_SHOWN = 12  # names in a message


class LoraLinear(nn.Module):
    """A linear layer with an adapter: (..., in) to (..., out).

    The adapter has the type and the device of the layer's weight (peft holds it in fp32 beside
    weights of 16 bits), and no dropout. What reads the layer's `weight`, `bias` or sizes instead
    of calling it finds those of the layer, and passes the adapter by.

    Args:
        base: The layer, an `nn.Linear` or the `Conv1D` of transformers; its parameters stay.
        rank: Rank of the adapter, at most the smaller of in and out.
    """

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__()
        self.base = base
        self.in_features, self.out_features = _sizes(base)
        self.lora_a = nn.Parameter(self.weight.new_empty(rank, self.in_features))
        self.lora_b = nn.Parameter(self.weight.new_zeros(self.out_features, rank))
        # The start of nn.Linear, which the authors' code takes for A.
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    @property
    def weight(self) -> Tensor:
        """The layer's own weight, without the adapter."""
        return cast(Tensor, self.base.weight)

    @property
    def bias(self) -> Tensor | None:
        """The layer's own bias."""
        return cast(Tensor | None, self.base.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output plus the adapter's."""
        # Scaled in every implementation, whatever the factor is: a pass over the output that real
        # runs pay for.
        y: Tensor = self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * SCALE
        return y


def apply_lora(model: nn.Module, rank: int, targets: Sequence[str]) -> tuple[Note, ...]:
    """Put adapters beside linear layers, and freeze every parameter but theirs.

    A weight that an adapted layer shares with another module (an output projection tied to the
    embedding) stays shared; the adapter acts in that layer alone. A layer that stands at several
    places keeps being one layer, with one adapter.

    Args:
        model: Changed in place.
        rank: Rank of the adapters.
        targets: Layers are adapted whose qualified name is one of these or ends with a dot and
            one of these; empty takes the query and value projections (`USUAL_TARGETS`).

    Returns:
        A note that says which layers were taken, where `targets` left that open.

    Raises:
        UsageError: no layer has such a name, a layer is smaller than the rank, or the model has
            adapters of peft already.
    """
    _refuse_peft(model)
    linears = _linear_layers(model)
    chosen = _named(linears, targets) if targets else _usual(linears)
    for name, layer in chosen.items():
        if rank > min(_sizes(layer)):
            wide, high = _sizes(layer)
            raise UsageError(
                f"--lora r={rank} is above what {name} can have",
                found=f"a layer of {wide} inputs and {high} outputs",
                next_step=f"use a rank of at most {min(wide, high)}, or other targets",
            )
    model.requires_grad_(False)
    adapters = {id(layer): LoraLinear(layer, rank) for layer in chosen.values()}
    for parent in list(model.modules()):
        if isinstance(parent, LoraLinear):
            continue
        for name, child in list(parent._modules.items()):
            if id(child) in adapters:
                setattr(parent, name, adapters[id(child)])
    if targets:
        return ()
    return (
        Note(
            code="lora-targets",
            message=f"--lora adapts the layers called {_listed(chosen)}: {len(chosen)} of "
            f"{len(linears)} linear layers",
            hint="name others with targets=",
        ),
    )


def _refuse_peft(model: nn.Module) -> None:
    if any(type(m).__module__.partition(".")[0] == "peft" for m in model.modules()):
        raise UsageError(
            "--lora has no place in a model that peft has adapted already",
            found="modules of peft in the model",
            next_step="leave --lora out: what the model trains is honoured as it is",
        )


def _linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Linear layers with weights in floating point, by qualified name.

    Left out are those of `nn.MultiheadAttention`, which reads their weights and calls no layer.
    """
    conv1d = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", nn.Linear)
    passed_over = {id(m.out_proj) for m in model.modules() if isinstance(m, nn.MultiheadAttention)}
    return {
        name: module
        for name, module in model.named_modules()
        if name
        and isinstance(module, (nn.Linear, conv1d))
        and id(module) not in passed_over
        and module.weight.is_floating_point()
    }


def _named(linears: Mapping[str, nn.Module], targets: Sequence[str]) -> dict[str, nn.Module]:
    """The layers that the targets name; every target has to name one."""
    chosen: dict[str, nn.Module] = {}
    for target in targets:
        hits = [name for name in linears if name == target or name.endswith(f".{target}")]
        if not hits:
            raise _none_found(f"no linear layer has a name that ends with {target!r}", linears)
        chosen |= {name: linears[name] for name in hits}
    return chosen


def _usual(linears: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """The query and value projections."""
    chosen = {n: layer for n, layer in linears.items() if n.rpartition(".")[2] in USUAL_TARGETS}
    if not chosen:
        raise _none_found("--lora found no query or value projections to adapt", linears)
    return chosen


def _none_found(doing: str, linears: Mapping[str, nn.Module]) -> UsageError:
    found = f"its linear layers: {_listed(linears)}" if linears else "no linear layer inside"
    step = "name layers with targets=, like r=16,targets=q_proj+v_proj" if linears else ""
    return UsageError(doing, found=found, next_step=step or "leave --lora out")


def _listed(names: Iterable[str]) -> str:
    """The distinct ends of qualified names, each from its last part that is no number."""
    ends = dict.fromkeys(_end(name) for name in names)
    return ", ".join([*ends][:_SHOWN]) + (", ..." if len(ends) > _SHOWN else "")


def _end(name: str) -> str:
    parts = name.split(".")
    words = [index for index, part in enumerate(parts) if not part.isdecimal()]
    return ".".join(parts[words[-1] if words else 0 :])


def _sizes(layer: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a linear layer."""
    rows, columns = cast(Tensor, layer.weight).shape
    # The Conv1D of transformers holds its weight the other way round.
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)
