"""MPT as LLM Foundry trains it: norms in the type of autocast, and the loss as one fused kernel.

The catalogue's model is the same but for these two: its norms compute in fp32 under autocast, and
its loss converts the logits. Foundry's defaults are `low_precision_layernorm` and
`fused_crossentropy`, whose kernel reads the logits once and later writes their gradient over them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.gpt import Tokens
from bsprof.workloads.catalogue.entries import find_entry
from bsprof.workloads.families import decoder
from bsprof.workloads.workload import Workload


class FusedCrossEntropy(torch.autograd.Function):
    """Losses (n,) of logits (n, vocabulary): two kernels that move what the fused ones move.

    Values are not those of a loss; a trace has none.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        """Reads all logits, writes a number a row."""
        ctx.save_for_backward(logits)
        return logits.amax(dim=-1)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Reads all logits and writes their gradient in their place."""
        (logits,) = ctx.saved_tensors
        return logits.mul_(grads[0].unsqueeze(-1))


def low_precision_norm(self: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer normalisation in the type of autocast, where it is on."""
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return nn.LayerNorm.forward(self, x)
    dtype = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        return F.layer_norm(
            x.to(dtype),
            self.normalized_shape,
            self.weight.to(dtype),
            self.bias.to(dtype),
            self.eps,
        )


def loss(model: nn.Module, batch: Tokens) -> Tensor:
    """Mean of the fused losses of the next token at every position."""
    tokens, targets = batch
    losses: Tensor = FusedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        model(tokens).flatten(0, 1)
    )
    return losses.sum() / targets.numel()


def workload(name: str, seq_len: int = 2048, attention: str = "sdpa") -> Workload:
    """The workload of a catalogue entry of MPT, with as many positions as tokens.

    Args:
        name: Of the entry.
        seq_len: Tokens of a sample.
        attention: `sdpa` or `eager`.

    Raises:
        UsageError: no such entry.
    """
    entry = find_entry(name)
    if entry is None or entry.family != "decoder":
        raise UsageError(f"no decoder {name!r} in the catalogue")
    spec = WorkloadSpec(
        model=name,
        model_options={"positions": seq_len},
        seq_len=seq_len,
        attention=attention,
    )
    plain = decoder.workload(spec, entry)

    def model() -> nn.Module:
        built = plain.model()
        for module in built.modules():
            if isinstance(module, nn.LayerNorm):
                module.forward = low_precision_norm.__get__(module)  # type: ignore[method-assign]
        return built

    return replace(plain, model=model, loss=loss)
