"""Laws of which little or nothing was measured, and the laws that they are expected to be like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bsprof.predict.roofline.groups import LAWS
from bsprof.records.calibration import Coefficient, LawTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Kin:
    """What a law takes over.

    Attributes:
        law: From which one.
        share: Factor on its share: how much better the largest works do.
        factors: Factors on other terms.
        spread: 1 sigma of the logarithm of the share's factor.
    """

    law: str
    share: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)
    spread: float = 0.15


def _kin() -> dict[str, Kin]:
    found = {
        "batched_matmul/half": Kin(law="matmul/half", factors={"bandwidth_share": 0.92}),
        "batched_matmul/tf32": Kin(law="matmul/tf32", factors={"bandwidth_share": 0.92}),
        "attention_forward/flash1": Kin(law="attention_forward/flash2", share=0.5),
        "attention_backward/flash1": Kin(law="attention_backward/flash2", share=0.5),
        "attention_backward/flash3": Kin(law="attention_forward/flash3", share=0.75),
        "attention_backward/cudnn": Kin(law="attention_forward/cudnn", share=0.75),
        "fused": Kin(law="elementwise", share=0.95),
        "reduction": Kin(law="elementwise", share=0.9),
        "copy": Kin(law="elementwise", share=0.95),
        "random": Kin(law="elementwise", share=0.9),
        "layout": Kin(law="elementwise", share=0.75),
        "loss": Kin(law="elementwise", share=0.6, spread=0.4),
        "index": Kin(law="elementwise", share=0.5, spread=0.4),
        "resample": Kin(law="elementwise", share=0.5, spread=0.4),
        "other": Kin(law="elementwise", share=0.7, spread=0.4),
        "fft": Kin(law="elementwise", share=0.4, spread=0.5),
        "scan_or_sort": Kin(law="elementwise", share=0.2, spread=0.6),
        "normalisation_backward/batch": Kin(law="normalisation/batch"),
    }
    for multipliers in ("half", "tf32", "fp32"):
        found[f"rnn/{multipliers}"] = Kin(law=f"matmul/{multipliers}", share=0.6, spread=0.3)
        for way in ("forward", "data", "weight"):
            plain = f"convolution_{way}/{multipliers}"
            found[f"grouped_{way}/{multipliers}"] = Kin(law=plain, share=0.6, spread=0.4)
            found[f"depthwise_{way}/{multipliers}"] = Kin(
                law="depthwise_forward/tf32",
                share={"forward": 1.0, "data": 0.9, "weight": 0.5}[way],
                spread=0.4,
            )
    del found["depthwise_forward/tf32"]
    for way in ("forward", "data", "weight"):
        found[f"convolution_{way}/tf32"] = Kin(law=f"convolution_{way}/half")
    return found


KIN: Mapping[str, Kin] = MappingProxyType(_kin())
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


def taken_over(law: str, kin: Kin, terms: LawTerms) -> dict[str, Coefficient]:
    """Terms of a law from those of its kin: its share scaled, errors widened by the spread."""
    found = {}
    for name, term in LAWS[law].terms.items():
        known = terms.terms.get(name)
        if known is None:
            continue
        factor = kin.share if name == "share" else kin.factors.get(name, 1.0)
        value = min(max(known.value * factor, term.low), term.high)
        relative = known.error / known.value
        if name == "share":
            relative = (relative**2 + kin.spread**2) ** 0.5
        found[name] = Coefficient(value=value, error=value * relative)
    return found
