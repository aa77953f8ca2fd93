"""What is run: the options that define a workload, and facts read from it once it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Scalar = str | int | float | bool | None


class Precision(StrEnum):
    """How numbers are held and multiplied.

    `fp32` means PyTorch's defaults (convolutions may use TF32 on CUDA), `fp32-strict` turns TF32
    off, `tf32` allows it everywhere; `amp-*` is autocast over fp32 weights (fp16 with a gradient
    scaler); `bf16` and `fp16` hold weights in that type.
    """

    FP32 = "fp32"
    FP32_STRICT = "fp32-strict"
    TF32 = "tf32"
    AMP_BF16 = "amp-bf16"
    AMP_FP16 = "amp-fp16"
    BF16 = "bf16"
    FP16 = "fp16"


class Mode(StrEnum):
    """`train`: forward, backward, optimizer step. `infer`: evaluation forward only."""

    TRAIN = "train"
    INFER = "infer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Everything the user asked for about what is run; one micro-step follows from it.

    Attributes:
        model: Name of a built-in or of the catalogue, `timm:NAME`, `torchvision:NAME`,
            `hf:DIR-or-id`, `file.py:factory` or `pkg.mod:factory`, as given.
        model_options: What the model is built with, over its defaults: settings of a catalogue
            entry, keyword arguments of timm and torchvision, fields of a Hugging Face
            configuration, parameters of a factory.
        seq_len: Tokens per sample; None is the model's own default or does not apply.
        image_size: Pixels per side; None is the model's own default or does not apply.
        precision: See `Precision`.
        optimizer: Name of an optimizer in `torch.optim`, lower case (`adamw`, `sgd`), or of an
            8-bit one in bitsandbytes (`adamw8bit`); ignored when the workload brings its own.
        optimizer_options: Keyword arguments of the optimizer.
        clip_norm: Largest gradient norm, clipped once per optimizer step; None does not clip.
        activation_checkpointing: `none`, `full` (every block), or a number N (every Nth block).
        attention: `sdpa`, `eager` or None for the model's own default.
        lora_rank: Rank of the low-rank adapters that are trained in place of the weights; None
            trains the weights.
        lora_targets: Ends of the names of the linear layers that get adapters; empty for the
            family's usual ones.
        freeze: Patterns (`fnmatch`) of the names of parameters that are not trained.
        ema: Whether a moving average of the weights is kept and updated once per optimizer step.
        trust_remote_code: Whether code that comes with a Hugging Face model may run.
        seed: Seeds weights and data.
    """

    model: str
    model_options: Mapping[str, Scalar] = field(default_factory=dict)
    seq_len: int | None = None
    image_size: int | None = None
    precision: Precision = Precision.FP32
    optimizer: str = "adamw"
    optimizer_options: Mapping[str, Scalar] = field(default_factory=dict)
    clip_norm: float | None = None
    activation_checkpointing: str = "none"
    attention: str | None = None
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    ema: bool = False
    trust_remote_code: bool = False
    compile: bool = False
    channels_last: bool = False
    cudnn_benchmark: bool = False
    mode: Mode = Mode.TRAIN
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What the built workload turned out to be.

    Attributes:
        parameter_count: Elements in all parameters, tied ones once.
        trainable_parameter_count: Those that require a gradient.
        parameter_bytes: Bytes of all parameters, tied ones once.
        tokens_per_sample: Tokens per sample; None where samples have no tokens.
        batch_norm_modules: Number of batch-normalisation modules in training mode.
        dataset_size: Samples in the user's data set; None when unknown.
        optimizer: Class name of the optimizer that really ran; None in inference.
        uncounted_operators: Operators that `accounting` does not know, sorted.
    """

    parameter_count: int
    trainable_parameter_count: int
    parameter_bytes: int
    tokens_per_sample: int | None = None
    batch_norm_modules: int = 0
    dataset_size: int | None = None
    optimizer: str | None = None
    uncounted_operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKey:
    """Digests that say whether two sweeps measured the same thing (hex, 16 digits each).

    Attributes:
        sources: The factory's source file and what it imports from beside it; for a built-in,
            bsprof's own workload sources.
        parameters: Names, shapes and types of all parameters and buffers; samples in the data
            set and tokens per sample, where these are known.
        operators: The operators of one micro-step, in order.
        options: The workload spec.
        software: Versions of Python, torch, its libraries, packages of models, and bsprof.
    """

    sources: str
    parameters: str
    operators: str
    options: str
    software: str
