"""The sets that are scored, and what each must show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a set must show, in shares; None is not asked.

    Attributes:
        title: Of the set.
        sets: Names of the sets that it is made of.
        mean, median, ninetieth: Of the absolute error, at most.
    """

    title: str
    sets: tuple[str, ...]
    mean: float | None = None
    median: float | None = None
    ninetieth: float | None = None


BARS = (
    Bar(title="NeuSight training, fp32", sets=("neusight-training",), mean=0.12, median=0.08),
    Bar(title="NeuSight inference", sets=("neusight-inference",), median=0.06, ninetieth=0.14),
    Bar(title="NeuSight, Switch Transformer", sets=("neusight-switch",)),
    Bar(title="GPT-2 124M compiled, bf16", sets=("gpt2-compiled",), median=0.09, ninetieth=0.20),
    Bar(title="LLM Foundry, A100", sets=("llm-foundry-a100",), median=0.06, ninetieth=0.14),
    Bar(title="LLM Foundry, H100", sets=("llm-foundry-h100",), median=0.10, ninetieth=0.18),
    Bar(title="timm training, NCHW", sets=("timm-3090-nchw",), median=0.07, ninetieth=0.16),
    Bar(title="timm training, NHWC", sets=("timm-3090-nhwc",), median=0.08, ninetieth=0.18),
    Bar(title="timm training, NCHW, grouped", sets=("timm-3090-nchw-grouped",)),
    Bar(title="timm training, NHWC, grouped", sets=("timm-3090-nhwc-grouped",)),
    Bar(title="timm inference, RTX 4090", sets=("timm-4090-infer",), median=0.07, ninetieth=0.22),
    Bar(title="layers, RTX 4090", sets=("layers-rtx-4090",), median=0.06),
    Bar(title="layers, H100", sets=("layers-h100",), median=0.15),
    Bar(title="Sia, BERT", sets=("sia-bert",), median=0.06),
    Bar(title="Sia, ResNet-50", sets=("sia-resnet50",), median=0.11),
)

COVERED = (0.85, 0.96)
"""Shares of measured times between which 90 % intervals may hold."""
WIDTH = 0.40
"""Median full width of the intervals, at most."""

OTHER_MEDIAN = 0.20
"""Of the medians of groups of other files, at most."""
OTHER_FAR = 0.40
OTHER_FAR_SHARE = 0.10
"""Groups whose median is above `OTHER_FAR`, at most."""
OTHER_SCORED = 0.60
"""Rows of supported models that are scored, at least."""
