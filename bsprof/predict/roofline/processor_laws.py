"""Laws of time on a processor: seconds as a sum of counts of a work, each at its measured price.

Everything runs in one thread's order, so a work's time is a sum: multiplications, elements that
are read, unfolded or written, bytes within the last cache and beyond, and the call itself. Prices
are not negative, so time never falls where a work grows.
"""

from __future__ import annotations

from collections.abc import Mapping

from bsprof.accounting.work import Work, WorkClass

CALL = "call"
"""Price of a call beyond that of the smallest operator, which every call pays on top."""

MEMORY = "memory_bytes"
"""Price of a byte that the last cache does not hold, on top of all others."""

PAGES = "pages"
"""Name of work that is no operator, and of its law: memory that the system hands out anew."""

SPREAD = "spread"
"""Term that is no price: 1 sigma of log(measured / fitted), each row left out in turn."""

HALF = "/half"
"""End of the names of laws for 16-bit numbers."""

_HALF_TYPES = ("bf16", "fp16")
_PRODUCTS = (WorkClass.MATMUL, WorkClass.BATCHED_MATMUL, WorkClass.RNN)
_CONVOLUTIONS = (
    WorkClass.CONVOLUTION_FORWARD,
    WorkClass.CONVOLUTION_DATA,
    WorkClass.CONVOLUTION_WEIGHT,
)
_ATTENTION = (WorkClass.ATTENTION_FORWARD, WorkClass.ATTENTION_BACKWARD)
_ROWS = (
    WorkClass.SOFTMAX,
    WorkClass.LOSS,
    WorkClass.NORMALISATION,
    WorkClass.NORMALISATION_BACKWARD,
    WorkClass.EMBEDDING,
    WorkClass.EMBEDDING_BACKWARD,
)

_LIKE: Mapping[str, str] = {
    "_safe_softmax": "_softmax",
    "gelu_tanh": "gelu",
    "gelu_backward_tanh": "gelu_backward",
    "erf": "exp",
    "log": "exp",
    "log1p": "exp",
    "expm1": "exp",
    "sin": "tanh",
    "cos": "tanh",
    "softplus": "tanh",
    "mish": "tanh",
    "elu": "exp",
    "leaky_relu": "relu",
    "leaky_relu_backward": "threshold_backward",
    "hardtanh_backward": "threshold_backward",
    "hardswish": "hardtanh",
    "hardswish_backward": "threshold_backward",
    "hardsigmoid": "hardtanh",
    "native_dropout": "bernoulli_",
    "uniform_": "bernoulli_",
    "normal_": "bernoulli_",
    "exponential_": "bernoulli_",
    "_to_copy": "copy_",
    "contiguous": "clone",
    "copy": "copy_",
    "nll_loss2d_backward": "nll_loss_backward",
    "nll_loss2d_forward": "nll_loss_forward",
    "_fused_rms_norm": "native_layer_norm",
    "_fused_rms_norm_backward": "native_layer_norm_backward",
    "zeros": "zero_",
    "zeros_like": "zero_",
    "ones_like": "zero_",
    "fill_": "zero_",
    "full": "zero_",
    "amax": "sum",
    "linalg_vector_norm": "sum",
    "_foreach_norm": "sum",
}
"""Operators that are not timed, and a timed one whose arithmetic is alike (heuristic)."""


def law_names(work: Work) -> tuple[str, ...]:
    """Laws that a work may follow, the most particular first; the last is that of its class."""
    if work.name == PAGES:
        return (PAGES,)
    kind = work.work_class
    half = HALF if work.compute in _HALF_TYPES else ""
    if kind in _CONVOLUTIONS:
        own = f"{kind.value}/{_convolution(work)}"
        dense = f"{kind.value}/dense"
        last = (f"{own}/last",) if work.channels_last else ()
        return _halved((*last, own, dense), half)
    if kind in _PRODUCTS:
        return _halved((kind.value, WorkClass.MATMUL.value), half)
    if kind in _ATTENTION:
        return _halved((kind.value,), half)
    name = work.name.rpartition(".")[2]
    names = [name, name.removesuffix("_")]
    if work.channels_last:
        names.insert(0, f"{name}/last")
    names += [_LIKE[n] for n in names if n in _LIKE]
    return _halved((*(f"{kind.value}/{n}" for n in names), kind.value, WorkClass.COPY.value), half)


def counts_of(work: Work) -> Mapping[str, float]:
    """What a work's law prices, by name; what matters most first."""
    counts = _counts(work)
    first = next(iter(counts))
    always = {first: counts.pop(first), CALL: 1.0, MEMORY: float(work.memory_bytes)}
    return {**always, **counts}


def _counts(work: Work) -> dict[str, float]:
    kind = work.work_class
    m, n, k, batch = (float(max(1, x)) for x in (work.m, work.n, work.k, work.batch))
    if kind in _CONVOLUTIONS:
        return _convolution_counts(work)
    if kind in _PRODUCTS and work.flops:
        return {
            "multiplications": work.flops / 2,
            "left": m * k * batch,
            "right": n * k * batch,
            "results": m * n * batch,
            "products": batch,
        }
    if kind in _ATTENTION and m * n > 1:
        return {
            "multiplications": m * n * k * batch,  # masked ones are computed all the same
            "scores": m * n * batch,
            "operands": (m + n) * k * batch,
            "heads": batch,
        }
    found = {"bytes": float(work.bytes)}
    if kind in _ROWS:
        found["rows"] = float(work.rows)
    return found


def is_free(work: Work) -> bool:
    """Whether a processor does not do it at all, or it is part of another work's law.

    Copies between layouts and the bias of a convolution are in what oneDNN's convolution takes.
    """
    if work.work_class is WorkClass.LAYOUT:
        return True
    return not work.calls and work.work_class is WorkClass.ELEMENTWISE


def _halved(names: tuple[str, ...], half: str) -> tuple[str, ...]:
    """Laws for 16 bits first, where the work is in them; those for 32 bits stand in."""
    own = tuple(f"{name}{half}" for name in names) if half else ()
    return tuple(dict.fromkeys((*own, *names)))


def _convolution(work: Work) -> str:
    if work.batch > 1:
        return "depthwise" if min(work.m, work.n, work.k) == 1 or _is_depthwise(work) else "grouped"
    if work.kernel_area == 1:
        return "pointwise"
    return "dense"


def _is_depthwise(work: Work) -> bool:
    """Whether each group has a single channel."""
    lengths = (work.m, work.n, work.k)
    return work.kernel_area in lengths and 1 in lengths


def _convolution_counts(work: Work) -> dict[str, float]:
    m, n, k, groups = (float(max(1, x)) for x in (work.m, work.n, work.k, work.batch))
    if work.work_class is WorkClass.CONVOLUTION_FORWARD:
        places, outer, inner = m, k, n
    elif work.work_class is WorkClass.CONVOLUTION_DATA:
        places, outer, inner = m, n, k
    else:
        places, outer, inner = k, m, n
    weights = outer * inner * groups
    item = 2.0 if work.compute in _HALF_TYPES else 4.0
    return {
        "multiplications": work.flops / 2,
        "images": max(0.0, work.bytes / item - weights),
        "weights": weights,
        "unfolded": places * outer * groups,
        "results": places * inner * groups,
    }
