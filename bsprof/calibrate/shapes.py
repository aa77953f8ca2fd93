"""The one fixed list of benchmarks. It reads no model: no shape in it is taken from one.

Widths, lengths and image sizes are chosen between those that models use, so that what is fitted
to them is always tested on others (a test compares them with traced models). Kernel sizes, strides
and sizes of heads are the usual ones: kernels are made for these.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bsprof.calibrate.benchmark import CPU, CUDA, Benchmark

_PRODUCTS = ("product.forward", "product.input", "product.weight")
_BATCHED = ("batched.plain", "batched.right", "batched.left")
_CONVOLUTIONS = ("convolution.forward", "convolution.input", "convolution.weight")
_ATTENTION = ("attention.forward", "attention.backward")


@functools.cache
def benchmarks(kind: str) -> tuple[Benchmark, ...]:
    """Those of one kind of device, each once.

    Args:
        kind: `cpu` or `cuda`.
    """
    return tuple({b.name: b for b in _all() if kind in b.kinds}.values())


def _all() -> Iterator[Benchmark]:
    yield from _host()
    yield from _cpu()
    yield from _cuda()


def _host() -> Iterator[Benchmark]:
    for name in ("operator", "engine"):
        yield Benchmark(program=f"host.{name}")
    for name in ("forward", "backward"):
        yield Benchmark(program=f"host.{name}", dims={"blocks": 6})
    yield Benchmark(program="step.adamw", dims={"tensors": 40, "elements": 24})
    yield Benchmark(program="step.sgd", dims={"tensors": 40, "elements": 24})


# A processor.

_CPU_PRODUCTS = (
    # (m, n, k): rows of all samples, and the two widths of a layer.
    (24, 88, 104),
    (24, 680, 712),
    (24, 2104, 424),
    (72, 200, 136),
    (72, 1096, 264),
    (136, 424, 472),
    (136, 936, 1160),
    (264, 88, 296),
    (264, 264, 1096),
    (264, 12, 424),
    (520, 328, 296),
    (520, 1096, 328),
    (520, 648, 648),
    (1048, 200, 200),
    (1048, 424, 1096),
    (1048, 136, 88),
    (2088, 264, 296),
    (2088, 712, 200),
    (2088, 2104, 136),
    (4136, 104, 168),
    (4136, 424, 296),
    (6, 520, 776),
    (24, 3016, 2008),  # weights that no cache holds
    (6, 2504, 1992),
    (72, 3016, 1160),
)
_CPU_HALF_PRODUCTS = ((24, 680, 712), (136, 424, 472), (520, 328, 296), (1048, 424, 440))
_CPU_BATCHED = (
    # (batch, m, n, k)
    (6, 24, 24, 40),
    (6, 72, 72, 40),
    (18, 104, 104, 72),
    (6, 232, 232, 72),
    (18, 168, 168, 40),
    (54, 104, 104, 40),
    (6, 488, 488, 72),
    (6, 232, 72, 232),
    (18, 104, 72, 104),
    (54, 104, 40, 104),
    (6, 488, 72, 488),
    (6, 24, 40, 24),
)
_CPU_CONVOLUTIONS = (
    # (batch, channels, filters, side, kernel, stride, groups)
    (4, 3, 40, 72, 7, 2, 1),
    (16, 3, 40, 36, 3, 1, 1),
    (1, 24, 24, 36, 3, 1, 1),
    (16, 24, 24, 36, 3, 1, 1),
    (1, 72, 72, 20, 3, 1, 1),
    (8, 72, 72, 20, 3, 1, 1),
    (32, 48, 48, 20, 3, 1, 1),
    (4, 80, 80, 44, 3, 1, 1),
    (8, 144, 144, 12, 3, 1, 1),
    (8, 272, 272, 6, 3, 1, 1),
    (2, 520, 520, 6, 3, 1, 1),
    (8, 40, 80, 36, 3, 2, 1),
    (8, 136, 272, 12, 3, 2, 1),
    (8, 40, 80, 36, 1, 2, 1),
    (8, 136, 272, 12, 1, 2, 1),
    (1, 72, 264, 20, 1, 1, 1),
    (8, 72, 264, 20, 1, 1, 1),
    (8, 264, 72, 20, 1, 1, 1),
    (4, 48, 48, 60, 1, 1, 1),
    (8, 520, 136, 6, 1, 1, 1),
    (8, 136, 520, 6, 1, 1, 1),
    (8, 72, 72, 36, 3, 1, 72),
    (8, 200, 200, 12, 5, 1, 200),
    (8, 88, 88, 20, 7, 1, 88),
    (8, 104, 104, 20, 3, 1, 8),
    (4, 3, 104, 72, 12, 12, 1),
    (16, 3, 88, 40, 4, 4, 1),
)
_CPU_LAST = (3, 7, 13, 16, 21)
"""Which of them are run with channels last too."""
_CPU_HALF_CONVOLUTIONS = (3, 16)
_CPU_ATTENTION = (
    # (batch, heads, length, head)
    (1, 3, 24, 64),
    (4, 3, 40, 64),
    (4, 6, 104, 32),
    (4, 3, 104, 64),
    (12, 6, 72, 32),
    (2, 3, 232, 64),
    (1, 6, 488, 64),
    (2, 3, 232, 128),
    (24, 3, 24, 64),
)
_CPU_ELEMENTS = ((8, 40), (104, 392), (520, 776), (1048, 1160), (2088, 1928))
"""Rows and columns of elementwise work: a call, a little, in the cache, in memory. No result is so
large that the C library would take fresh memory for it (32 MiB)."""
_CPU_POINTWISE = (
    "add",
    "add_",
    "mul",
    "mul_scalar",
    "mul_",
    "div",
    "div_",
    "sub",
    "neg",
    "relu",
    "relu_backward",
    "gelu",
    "gelu_backward",
    "gelu_tanh",
    "gelu_tanh_backward",
    "silu",
    "silu_backward",
    "sigmoid",
    "sigmoid_backward",
    "tanh",
    "tanh_backward",
    "hardtanh",
    "exp",
    "pow",
    "sqrt",
    "rsqrt",
    "lerp_",
    "addcmul_",
    "addcdiv_",
    "masked_fill",
    "where",
)
_CPU_ROWS = ((40, 24), (520, 104), (2088, 296), (264, 2104), (2088, 1928))
_ROWS = (
    "softmax",
    "softmax_backward",
    "log_softmax",
    "log_softmax_backward",
    "loss_backward",
    "layer_norm",
    "layer_norm_backward",
    "sum_rows",
    "sum_columns",
    "mean_columns",
)
_CPU_IMAGES = (
    # (batch, channels, side)
    (2, 24, 12),
    (8, 72, 20),
    (16, 40, 36),
    (8, 272, 12),
    (16, 80, 44),
)
_CPU_LOOKUPS = ((40, 24, 88), (520, 3016, 136), (2088, 3016, 296), (2088, 12040, 296))
"""Rows picked, vectors in the table, their width."""


def _cpu() -> Iterator[Benchmark]:
    only = (CPU,)
    for program in _PRODUCTS:
        yield from _of(program, "m n k", _CPU_PRODUCTS, only)
        yield from _of(program, "m n k", _CPU_HALF_PRODUCTS, only, ("bf16",))
    for program in _BATCHED:
        yield from _of(program, "batch m n k", _CPU_BATCHED, only)
    names = "batch channels filters side kernel stride groups"
    for program in _CONVOLUTIONS:
        shapes = [s for s in _CPU_CONVOLUTIONS if _is_asked(program, s[1])]
        yield from _of(program, names, shapes, only)
        last = [(*_CPU_CONVOLUTIONS[number], 1) for number in _CPU_LAST]
        yield from _of(program, f"{names} last", last, only)
        half = [_CPU_CONVOLUTIONS[number] for number in _CPU_HALF_CONVOLUTIONS]
        yield from _of(program, names, half, only, ("bf16",))
    for program in _ATTENTION:
        for causal in (0, 1):
            masked = [(*shape, causal) for shape in _CPU_ATTENTION[:: 1 + causal]]
            yield from _of(program, "batch heads length head causal", masked, only)
    for name in _CPU_POINTWISE:
        yield from _of(f"pointwise.{name}", "rows columns", _CPU_ELEMENTS, only)
    for name in ("add", "mul", "gelu", "gelu_backward", "relu"):
        yield from _of(f"pointwise.{name}", "rows columns", _CPU_ELEMENTS[1:4], only, ("bf16",))
    for name in _ROWS:
        yield from _of(f"rows.{name}", "rows columns", _CPU_ROWS, only)
    for name in ("softmax", "layer_norm", "layer_norm_backward", "sum_rows"):
        yield from _of(f"rows.{name}", "rows columns", _CPU_ROWS[2:3], only, ("bf16",))
    for name in ("sum_all", "loss"):
        yield from _of(f"rows.{name}", "rows columns", _CPU_ROWS[1:4:2], only)
    yield from _images(_CPU_IMAGES, only, ("fp32",))
    for name in ("embedding", "embedding_backward", "gather"):
        yield from _of(f"lookup.{name}", "rows table columns", _CPU_LOOKUPS, only)
    for name in ("onto", "cast", "cast_back", "filled"):
        yield from _of(f"copy.{name}", "rows columns", _CPU_ELEMENTS, only)
    for name in ("joined", "concatenated"):
        yield from _of(f"copy.{name}", "rows columns", _CPU_ELEMENTS[:4], only)
    turned = [(rows, columns, 8) for rows, columns in _CPU_ELEMENTS]
    yield from _of("copy.turned", "rows columns heads", turned, only)
    yield from _of("random.bernoulli", "rows columns", _CPU_ELEMENTS, only)
    # Far beyond caches, and beyond what the C library keeps to hand out again.
    large = ((4136, 3016),)
    for name in ("copy.onto", "copy.filled", "copy.made"):
        yield from _of(name, "rows columns", large, only)


# A GPU.

_WIDTHS = (
    # (n, k)
    (704, 704),
    (832, 3328),
    (3328, 832),
    (1216, 1216),
    (1728, 1728),
    (1728, 6912),
    (2688, 2688),
    (3456, 13824),
    (5376, 5376),
    (9728, 2432),
    (2432, 30208),
    (200, 584),
)
_CUDA_ROWS = (520, 2080, 4736, 9472)
_CUDA_SQUARES = (7424, 8832)
_CUDA_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
_CUDA_BATCHED = (
    (40, 136, 136, 64),
    (96, 264, 264, 64),
    (96, 520, 520, 64),
    (40, 1160, 1160, 128),
    (96, 264, 64, 264),
    (96, 520, 64, 520),
    (40, 1160, 128, 1160),
)
_CUDA_CONVOLUTIONS = (
    (40, 3, 72, 232, 7, 2, 1),
    (40, 3, 104, 232, 12, 12, 1),
    (40, 72, 72, 60, 3, 1, 1),
    (40, 136, 136, 30, 3, 1, 1),
    (40, 264, 264, 15, 3, 1, 1),
    (40, 520, 520, 8, 3, 1, 1),
    (40, 136, 264, 30, 3, 2, 1),
    (40, 264, 520, 15, 3, 2, 1),
    (40, 72, 288, 60, 1, 1, 1),
    (40, 288, 72, 60, 1, 1, 1),
    (40, 136, 544, 30, 1, 1, 1),
    (40, 544, 136, 30, 1, 1, 1),
    (40, 1088, 272, 15, 1, 1, 1),
    (40, 2080, 520, 8, 1, 1, 1),
    (40, 288, 520, 60, 1, 2, 1),
    (40, 104, 104, 60, 3, 1, 104),
    (40, 264, 264, 30, 5, 1, 264),
    (40, 104, 104, 60, 7, 1, 104),
    (40, 136, 136, 60, 3, 1, 34),
    (40, 264, 264, 30, 3, 1, 33),
)
_CUDA_ATTENTION = (
    (12, 11, 264, 64),
    (6, 11, 520, 64),
    (4, 11, 1160, 64),
    (3, 11, 2312, 64),
    (2, 11, 4232, 128),
    (3, 11, 1160, 128),
    (20, 11, 200, 64),
    (20, 11, 72, 32),
)
_CUDA_ELEMENTS = ((264, 776), (2088, 1928), (4136, 4232), (9480, 9160))
_CUDA_POINTWISE = (
    "add",
    "add_",
    "mul",
    "relu",
    "relu_backward",
    "gelu",
    "gelu_backward",
    "silu",
    "exp",
    "where",
)
_CUDA_LENGTHS = ((520, 776), (9480, 776), (4136, 4232), (2088, 30208), (33800, 264))
_CUDA_IMAGES = ((40, 72, 60), (40, 264, 30), (40, 520, 15), (40, 2080, 8), (160, 72, 60))
_CUDA_LOOKUPS = ((2088, 30016, 776), (9480, 30016, 1160), (18952, 60032, 776))


def _cuda() -> Iterator[Benchmark]:
    only = (CUDA,)
    half = ("bf16",)
    both = ("fp32", "bf16")
    layers = [(m, n, k) for n, k in _WIDTHS for m in _CUDA_ROWS]
    squares = [(side, side, side) for side in _CUDA_SQUARES]
    for program in _PRODUCTS:
        # Every width at one number of rows for each direction, all numbers of rows in bf16.
        yield from _of(program, "m n k", layers, only, half)
        some = layers[_PRODUCTS.index(program) + 1 :: len(_CUDA_ROWS)]
        yield from _of(program, "m n k", some, only, ("fp32", "tf32", "fp16"))
    yield from _of("product.forward", "m n k", squares, only, _CUDA_PRECISIONS)
    for program in _BATCHED:
        yield from _of(program, "batch m n k", _CUDA_BATCHED, only, both)
    names = "batch channels filters side kernel stride groups last"
    for program in _CONVOLUTIONS:
        asked = [s for s in _CUDA_CONVOLUTIONS if _is_asked(program, s[1])]
        for last in (0, 1):
            laid_out = [(*shape, last) for shape in asked]
            yield from _of(program, names, laid_out, only, half)
        first = [(*shape, 0) for shape in asked[::2]]
        yield from _of(program, names, first, only, ("fp32", "tf32"))
    for program in _ATTENTION:
        for causal in (0, 1):
            shapes = [(*shape, causal) for shape in _CUDA_ATTENTION]
            yield from _of(program, "batch heads length head causal", shapes, only, half)
            yield from _of(program, "batch heads length head causal", shapes[::3], only, ("fp32",))
    for name in _CUDA_POINTWISE:
        yield from _of(f"pointwise.{name}", "rows columns", _CUDA_ELEMENTS, only, both)
    for name in _ROWS:
        yield from _of(f"rows.{name}", "rows columns", _CUDA_LENGTHS, only, both)
    yield from _images(_CUDA_IMAGES, only, both)
    for name in ("embedding", "embedding_backward", "gather"):
        yield from _of(f"lookup.{name}", "rows table columns", _CUDA_LOOKUPS, only, both)
    for name in ("onto", "cast", "cast_back", "joined", "filled"):
        yield from _of(f"copy.{name}", "rows columns", _CUDA_ELEMENTS, only)
    turned = [(rows, columns, 8) for rows, columns in _CUDA_ELEMENTS]
    yield from _of("copy.turned", "rows columns heads", turned, only, both)
    for name in ("bernoulli", "dropout"):
        yield from _of(f"random.{name}", "rows columns", _CUDA_ELEMENTS[1:], only)
    steps = ((40, 1_300_000), (200, 130_000), (6, 20_000_000))
    for name in ("adamw_foreach", "adamw_fused", "sgd"):
        yield from _of(f"step.{name}", "tensors elements", steps, only)


# Both.


def _is_asked(program: str, channels: int) -> bool:
    """Whether training ever runs it: nobody asks for the gradient of a picture."""
    return program != "convolution.input" or channels > 3


def _images(
    shapes: Sequence[tuple[int, ...]], kinds: tuple[str, ...], precisions: Sequence[str]
) -> Iterator[Benchmark]:
    names = ("batch_norm", "max_pool", "average_pool", "pool_all")
    for name in (*names, *(f"{name}_backward" for name in names)):
        yield from _of(f"image.{name}", "batch channels side", shapes, kinds, precisions)
        if name.startswith("batch_norm"):
            last = [(*shape, 1) for shape in shapes[1:4]]
            yield from _of(f"image.{name}", "batch channels side last", last, kinds, precisions)
    for name in ("group_norm", "group_norm_backward"):
        grouped = [(*shape, 8) for shape in shapes[1:4]]
        yield from _of(f"image.{name}", "batch channels side groups", grouped, kinds, precisions)
    for name in ("upsample", "upsample_backward"):
        yield from _of(f"image.{name}", "batch channels side", shapes[1:3], kinds, precisions)


def _of(
    program: str,
    names: str,
    shapes: Iterable[tuple[int, ...]],
    kinds: tuple[str, ...],
    precisions: Sequence[str] = ("fp32",),
) -> Iterator[Benchmark]:
    keys = names.split()
    for precision in precisions:
        for shape in shapes:
            dims: Mapping[str, int] = dict(zip(keys, shape, strict=True))
            yield Benchmark(program=program, dims=dims, precision=precision, kinds=kinds)
