"""Laws of which little or nothing was measured, and the laws that they are expected to be like."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bsprof.records.calibration import LikeLaw


def _kin() -> dict[str, LikeLaw]:
    found = {
        "batched_matmul/half": LikeLaw(law="matmul/half", factors={"bandwidth_share": 0.92}),
        "batched_matmul/tf32": LikeLaw(law="matmul/tf32", factors={"bandwidth_share": 0.92}),
        "attention_forward/flash1": LikeLaw(law="attention_forward/flash2", share=0.5),
        "attention_backward/flash1": LikeLaw(law="attention_backward/flash2", share=0.5),
        "attention_backward/flash3": LikeLaw(law="attention_forward/flash3", share=0.75),
        "attention_backward/cudnn": LikeLaw(law="attention_forward/cudnn", share=0.75),
        "fused": LikeLaw(law="elementwise", share=0.95),
        "reduction": LikeLaw(law="elementwise", share=0.9),
        "copy": LikeLaw(law="elementwise", share=0.95),
        "random": LikeLaw(law="elementwise", share=0.9),
        "layout": LikeLaw(law="elementwise", share=0.75),
        "loss": LikeLaw(law="elementwise", share=0.6, spread=0.4),
        "index": LikeLaw(law="elementwise", share=0.5, spread=0.4),
        "resample": LikeLaw(law="elementwise", share=0.5, spread=0.4),
        "other": LikeLaw(law="elementwise", share=0.7, spread=0.4),
        "fft": LikeLaw(law="elementwise", share=0.4, spread=0.5),
        "scan_or_sort": LikeLaw(law="elementwise", share=0.2, spread=0.6),
        "normalisation_backward/batch": LikeLaw(law="normalisation/batch"),
        "normalisation/batch_last": LikeLaw(law="normalisation/batch", share=1.2, spread=0.3),
        "normalisation_backward/batch_last": LikeLaw(
            law="normalisation_backward/batch", share=1.2, spread=0.3
        ),
    }
    for multipliers in ("half", "tf32", "fp32"):
        found[f"rnn/{multipliers}"] = LikeLaw(law=f"matmul/{multipliers}", share=0.6, spread=0.3)
        for way in ("forward", "data", "weight"):
            plain = f"convolution_{way}/{multipliers}"
            found[f"grouped_{way}/{multipliers}"] = LikeLaw(law=plain, share=0.6, spread=0.4)
            found[f"depthwise_{way}/{multipliers}"] = LikeLaw(
                law="depthwise_forward/tf32",
                share={"forward": 1.0, "data": 0.9, "weight": 0.5}[way],
                spread=0.4,
            )
            for kind in ("grouped", "depthwise"):
                found[f"{kind}_{way}_last/{multipliers}"] = LikeLaw(
                    law=f"{kind}_{way}/{multipliers}", spread=0.4
                )
    del found["depthwise_forward/tf32"]
    for way in ("forward", "data", "weight"):
        found[f"convolution_{way}/tf32"] = LikeLaw(law=f"convolution_{way}/half")
    return found


KIN: Mapping[str, LikeLaw] = MappingProxyType(_kin())
"""By law that has none, or too few, measurements of its own. FlashAttention-1 reaches about half
of what its successor does (abstract of arXiv 2307.08691); shares of elementwise's kin are guesses
around what kernels of these kinds reach; the spreads of the laws carry both."""


def order(laws: Mapping[str, object]) -> list[str]:
    """The laws sorted so that each comes after the one that it is like, and backward after forward.

    Backward attention is partly known from times of both passes.
    """

    def depth(law: str) -> int:
        if law in KIN:
            return 1 + depth(KIN[law].law)
        return 1 if law.startswith("attention_backward") else 0

    return sorted(laws, key=lambda law: (depth(law), law))
