"""One transformer layer alone, as public notebooks time it against micro-batch.

The layer is in training mode with gradients on, its input random and needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bsprof.validate.models.eager_blocks import BertBlock, Gpt2Block
from bsprof.validate.models.eager_t5 import Attention, FeedForward, TwoLayers
from bsprof.workloads.workload import Workload


class T5EncoderBlock(nn.Module):
    """A block of T5's encoder that is no stack's first: its position bias is zeros."""

    def __init__(self, width: int, heads: int, head: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, head)
        self.feed_forward = FeedForward(width, TwoLayers(width, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, width) to (b, n, width)."""
        n, heads = x.shape[1], self.attention.heads
        y: Tensor = self.feed_forward(
            self.attention(x, torch.zeros(1, heads, n, n, dtype=x.dtype, device=x.device))
        )
        return y


WIDTH = 1024
"""Of all three."""

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "bert-large": lambda: BertBlock(WIDTH, 16, 4 * WIDTH),
    "gpt2-medium": lambda: Gpt2Block(WIDTH, 16, 1024),
    "t5-large-encoder": lambda: T5EncoderBlock(WIDTH, 16, 64, 4 * WIDTH),
}
"""By the model that they are a layer of."""


def workload(layer: str = "bert-large", seq_len: int = 128, summed: bool = False) -> Workload:
    """The layer on random numbers.

    Args:
        layer: Of `LAYERS`.
        seq_len: Tokens of a sample.
        summed: Whether the loss is the sum of the output, of which the backward pass starts. Else
            it is one number of it, which costs nothing: for the forward pass alone.
    """

    def batch(micro_batch_size: int, device: torch.device) -> Tensor:
        return torch.randn(micro_batch_size, seq_len, WIDTH, device=device)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        out: Tensor = model(batch)
        return out.sum() if summed else out[0, 0, 0]

    return Workload(
        model=LAYERS[layer], batch=batch, loss=loss, tokens_per_sample=seq_len, uses_seq_len=True
    )
