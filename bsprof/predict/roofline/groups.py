"""Which law a work follows: one name for each set of coefficients, and what it expects at first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bsprof.accounting.work import Work, WorkClass
from bsprof.predict.roofline.laws import (
    AttentionLaw,
    ContractionLaw,
    ConvolutionLaw,
    Law,
    TrafficLaw,
)
from bsprof.predict.roofline.laws.attention import attention_terms
from bsprof.predict.roofline.laws.contraction import contraction_terms, convolution_terms
from bsprof.predict.roofline.laws.traffic import row_terms, traffic_terms
from bsprof.predict.roofline.shape import inner_sizes

MULTIPLIERS: Mapping[str, str] = {
    "bf16": "half",
    "fp16": "half",
    "fp8": "half",
    "tf32": "tf32",
    "fp32": "fp32",
    "fp64": "fp32",
}
"""From compute type to the multipliers whose shapes it needs."""

_CONVOLUTIONS: Mapping[WorkClass, str] = {
    WorkClass.CONVOLUTION_FORWARD: "convolution_forward",
    WorkClass.CONVOLUTION_DATA: "convolution_data",
    WorkClass.CONVOLUTION_WEIGHT: "convolution_weight",
}

_ATTENTION = ("flash1", "flash2", "flash3", "efficient", "cudnn")
_ATTENTION_NAMES: Mapping[str, str] = {name: name for name in _ATTENTION} | {"flash": "flash2"}

_TRAFFIC_SHARES: Mapping[WorkClass, float] = {
    WorkClass.ELEMENTWISE: 0.9,
    WorkClass.FUSED: 0.85,
    WorkClass.REDUCTION: 0.8,
    WorkClass.COPY: 0.85,
    WorkClass.LAYOUT: 0.7,
    WorkClass.LOSS: 0.6,
    WorkClass.EMBEDDING: 0.35,
    WorkClass.EMBEDDING_BACKWARD: 0.35,
    WorkClass.INDEX: 0.4,
    WorkClass.POOLING: 0.6,
    WorkClass.RESAMPLE: 0.5,
    WorkClass.RANDOM: 0.7,
    WorkClass.OPTIMIZER_FOREACH: 0.8,
    WorkClass.OPTIMIZER_FUSED: 0.75,
    WorkClass.SCAN_OR_SORT: 0.2,
    WorkClass.FFT: 0.4,
    WorkClass.OTHER: 0.6,
}
"""Share of the bandwidth that large works of a class reach; where nothing is measured, these are
guesses, and the spreads of their laws say so."""


_NORMALISATIONS = (
    ("layer", 0.7, 0.6),
    ("batch", 0.4, 0.4),
    ("batch_last", 0.4, 0.4),
    ("group", 0.35, 0.35),
)
"""What is normalised over, and shares forward and backward as `_TRAFFIC_SHARES`."""


def law_name(work: Work) -> str:
    """The law that a work follows: `matmul/half`, `attention_forward/flash2`, `softmax`.

    A convolution with one channel a group is `depthwise`, one with other groups `grouped`. These,
    and batch norm, run other kernels where channels come last, and have laws of their own there.
    Attention that is computed by separate operators (`math`) follows the law of `efficient`.
    """
    kind = work.work_class
    if kind in _CONVOLUTIONS:
        return _convolution(work)
    if kind in (WorkClass.ATTENTION_FORWARD, WorkClass.ATTENTION_BACKWARD):
        return f"{kind.value}/{_ATTENTION_NAMES.get(work.implementation, 'efficient')}"
    if kind in (WorkClass.MATMUL, WorkClass.BATCHED_MATMUL, WorkClass.RNN):
        return f"{kind.value}/{MULTIPLIERS.get(work.compute, 'fp32')}"
    if kind in (WorkClass.NORMALISATION, WorkClass.NORMALISATION_BACKWARD):
        return f"{kind.value}/{_normalisation(work)}"
    if kind in _TRAFFIC_SHARES or kind is WorkClass.SOFTMAX:
        return kind.value
    return WorkClass.OTHER.value


def _normalisation(work: Work) -> str:
    """Over what an operator normalises: its passes over the data depend on it."""
    if "batch_norm" in work.name or "instance_norm" in work.name:
        return "batch_last" if work.channels_last else "batch"
    return "group" if "group_norm" in work.name else "layer"


def _convolution(work: Work) -> str:
    stem = _CONVOLUTIONS[work.work_class]
    multipliers = MULTIPLIERS.get(work.compute, "fp32")
    if work.batch > 1:
        kind = "depthwise" if min(inner_sizes(work)) <= 1 else "grouped"
        stem = stem.replace("convolution", kind) + ("_last" if work.channels_last else "")
    return f"{stem}/{multipliers}"


def _laws() -> dict[str, Law]:
    found: dict[str, Law] = {}
    for multipliers in ("half", "tf32", "fp32"):
        crooked = 0.05 if multipliers == "fp32" else 0.5
        found[f"matmul/{multipliers}"] = ContractionLaw(
            terms=contraction_terms(0.93, misaligned=crooked)
        )
        found[f"batched_matmul/{multipliers}"] = ContractionLaw(
            terms=contraction_terms(0.8, misaligned=crooked)
        )
        found[f"rnn/{multipliers}"] = ContractionLaw(
            terms=contraction_terms(0.5, misaligned=crooked)
        )
        for stem in _CONVOLUTIONS.values():
            share = 0.75 if stem.endswith("forward") else 0.65
            winograd = 1.3 if multipliers == "fp32" else 1.03
            terms = convolution_terms(share, winograd=winograd, misaligned=crooked)
            found[f"{stem}/{multipliers}"] = ConvolutionLaw(terms=terms)
            for layout in ("", "_last"):
                grouped = stem.replace("convolution", "grouped") + layout
                terms = convolution_terms(0.5, winograd=1.03, misaligned=crooked)
                found[f"{grouped}/{multipliers}"] = ConvolutionLaw(terms=terms)
                depthwise = stem.replace("convolution", "depthwise") + layout
                terms = traffic_terms(0.4, spread=0.5)
                found[f"{depthwise}/{multipliers}"] = TrafficLaw(terms=terms)
    shares = {"flash1": 0.45, "flash2": 0.75, "flash3": 0.85, "efficient": 0.4, "cudnn": 0.75}
    for name in _ATTENTION:
        for direction, products, factor in (("forward", 2, 1.0), ("backward", 5, 0.75)):
            law = AttentionLaw(products=products, terms=attention_terms(shares[name] * factor))
            found[f"attention_{direction}/{name}"] = law
    for over, forward, backward in _NORMALISATIONS:
        found[f"normalisation/{over}"] = TrafficLaw(terms=row_terms(forward))
        found[f"normalisation_backward/{over}"] = TrafficLaw(terms=row_terms(backward))
    found[WorkClass.SOFTMAX.value] = TrafficLaw(terms=row_terms(0.8, long_rows=0.5))
    for kind, share in _TRAFFIC_SHARES.items():
        found[kind.value] = TrafficLaw(terms=traffic_terms(share))
    return found


LAWS: Mapping[str, Law] = MappingProxyType(_laws())
"""Every law, by name."""


EXPECTED_DEPARTURES: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("attention_forward/flash2", "hopper"): {"share": 0.55},
    ("attention_backward/flash2", "hopper"): {"share": 0.6},
    ("attention_forward/efficient", "hopper"): {"share": 0.6},
    ("attention_backward/efficient", "hopper"): {"share": 0.6},
}
"""Factors by which a family is expected to depart from its relative before any data.

Kernels written for Ampere do not use Hopper's tensor cores as they want to be used:
FlashAttention-2 reaches 35 % of an H100's peak (abstract of arXiv 2407.08608), 0.8 of an A100's
ceiling here."""
