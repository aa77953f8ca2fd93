"""Works of single operators from their sizes, as a trace would count them."""

from __future__ import annotations

from bsprof.accounting.work import Work, WorkClass

ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def product(m: int, n: int, k: int, compute: str, *, batch: int = 0) -> Work:
    """A matrix product (m, k) x (k, n); batched where a batch is given."""
    times = max(1, batch)
    flops = 2 * m * n * k * times
    return Work(
        work_class=WorkClass.BATCHED_MATMUL if batch else WorkClass.MATMUL,
        compute=compute,
        flops=flops,
        model_flops=flops,
        bytes=ITEM_BYTES[compute] * (m * k + k * n + m * n) * times,
        m=m,
        n=n,
        k=k,
        batch=times,
    )


def convolution(
    direction: WorkClass,
    compute: str,
    *,
    samples: int,
    channels_in: int,
    channels_out: int,
    pixels_in: int,
    pixels_out: int,
    area: int,
    stride: int = 1,
    groups: int = 1,
    channels_last: bool = False,
) -> Work:
    """One of the three products of a convolution, seen as a matrix product.

    Args:
        direction: Forward, or the gradient of data or weight.
        compute: Type of the multipliers.
        samples: Of the batch.
        channels_in, channels_out: Of all groups together.
        pixels_in, pixels_out: Of one channel of one sample.
        area: Pixels of the kernel.
        stride: Along its first dimension.
        groups: Parts that do not mix.
        channels_last: Layout.
    """
    m = samples * pixels_out
    n = channels_out // groups
    k = channels_in // groups * area
    if direction is WorkClass.CONVOLUTION_DATA:
        n, k = k, n
    elif direction is WorkClass.CONVOLUTION_WEIGHT:
        m, k = k, m
    flops = 2 * samples * pixels_out * channels_out * (channels_in // groups) * area
    elements = (
        samples * (channels_in * pixels_in + channels_out * pixels_out)
        + channels_out * (channels_in // groups) * area
    )
    return Work(
        work_class=direction,
        compute=compute,
        flops=flops,
        model_flops=flops,
        bytes=ITEM_BYTES[compute] * elements,
        m=m,
        n=n,
        k=k,
        batch=groups,
        kernel_area=area,
        stride=stride,
        channels_last=channels_last,
        backward=direction is not WorkClass.CONVOLUTION_FORWARD,
    )


def attention(
    implementation: str,
    compute: str,
    *,
    samples: int,
    heads: int,
    queries: int,
    head_size: int,
    causal: bool,
    key_heads: int | None = None,
    backward: bool = False,
) -> Work:
    """Fused self-attention; backward, the scores are computed once more."""
    products = 5 if backward else 2
    flops = products * 2 * samples * heads * queries * queries * head_size
    one = samples * queries * head_size * ITEM_BYTES[compute]
    keys = heads if key_heads is None else key_heads
    elements = (4 * heads + 4 * keys if backward else 2 * heads + 2 * keys) * one
    return Work(
        work_class=WorkClass.ATTENTION_BACKWARD if backward else WorkClass.ATTENTION_FORWARD,
        compute=compute,
        flops=flops,
        model_flops=flops,
        bytes=elements,
        m=queries,
        n=queries,
        k=head_size,
        batch=samples * heads,
        implementation=implementation,
        causal=causal,
        backward=backward,
    )


def traffic(
    kind: WorkClass,
    moved: int,
    compute: str,
    *,
    rows: int = 0,
    columns: int = 0,
    backward: bool = False,
    name: str = "",
    launches: int = 1,
) -> Work:
    """Work that moves bytes: elementwise, a normalisation, a softmax, a copy."""
    return Work(
        work_class=kind,
        compute=compute,
        bytes=moved,
        rows=rows,
        columns=columns,
        backward=backward,
        name=name,
        launches=launches,
    )
