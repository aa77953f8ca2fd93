"""Work: what one operator asks of a device, as far as its time depends on it. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WorkClass(StrEnum):
    """Operators that share a law of time; finer than `OperatorClass`, which says what they do."""

    MATMUL = "matmul"
    BATCHED_MATMUL = "batched_matmul"
    CONVOLUTION_FORWARD = "convolution_forward"
    CONVOLUTION_DATA = "convolution_data"
    CONVOLUTION_WEIGHT = "convolution_weight"
    ATTENTION_FORWARD = "attention_forward"
    ATTENTION_BACKWARD = "attention_backward"
    RNN = "rnn"
    FFT = "fft"
    NORMALISATION = "normalisation"
    NORMALISATION_BACKWARD = "normalisation_backward"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    FUSED = "fused"  # a chain of elementwise operators and reductions in one compiled kernel
    REDUCTION = "reduction"
    EMBEDDING = "embedding"
    EMBEDDING_BACKWARD = "embedding_backward"
    INDEX = "index"
    LOSS = "loss"
    POOLING = "pooling"
    RESAMPLE = "resample"
    RANDOM = "random"
    COPY = "copy"
    LAYOUT = "layout"  # transposes that a library makes between channels first and last
    OPTIMIZER_FOREACH = "optimizer_foreach"
    OPTIMIZER_FUSED = "optimizer_fused"
    SCAN_OR_SORT = "scan_or_sort"
    COLLECTIVE = "collective"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator, or one kernel of it where its kernels follow different laws.

    A contraction is a product of (m, k) and (k, n), `batch` times: for a convolution m is the
    output's pixels of all samples, n the output channels of a group, k the input channels of a
    group times the kernel's area, batch the groups; for the gradient of the input n is that k and k
    that n, for the gradient of the weight m is that k and k that m. A transposed convolution is the
    gradient of another one's input, and the other way round. For a recurrent layer m is samples, n
    gates times units, k units, batch steps times layers times directions. For attention m is
    queries, n keys, k the size of a head, batch samples times heads. All are 1 where there is no
    contraction.

    Attributes:
        work_class: Whose law it follows.
        compute: Type that its multipliers take: `fp32`, `tf32`, `bf16`, `fp16`, `fp64`; for work
            without contractions the type of its widest floating input.
        flops: Of the hardware, recomputed and masked ones included.
        model_flops: Of the mathematics; 0 where the work is recomputation.
        bytes: Read and written at its border.
        launches: Kernels that CUDA launches for it.
        calls: Operators that the host dispatches for it: 1, or 0 for a part of another's and for
            kernels that compiled code launches.
        m, n, k, batch: See above.
        kernel_area: Pixels of a convolution's kernel, also of one that layout copies are for.
        stride: Of a convolution, along its first dimension.
        channels_last: Layout of a convolution's data.
        implementation: Of attention: `flash`, `efficient`, `cudnn`, `math`; else empty.
        causal: Whether attention is.
        backward: Whether it runs in a backward pass.
        recomputed: Whether it computes again what a forward pass did (checkpointing).
        name: Of the operator: `aten.mm`.
        rows, columns: Of a normalisation, softmax or loss: how many vectors of what length; 0
            where that is not known.
        memory_bytes: On a processor, what of its operands the last cache no longer holds.
    """

    work_class: WorkClass
    compute: str
    flops: int = 0
    model_flops: int = 0
    bytes: int = 0
    launches: int = 1
    calls: int = 1
    m: int = 1
    n: int = 1
    k: int = 1
    batch: int = 1
    kernel_area: int = 1
    stride: int = 1
    channels_last: bool = False
    implementation: str = ""
    causal: bool = False
    backward: bool = False
    recomputed: bool = False
    name: str = ""
    rows: int = 0
    columns: int = 0
    memory_bytes: int = 0
