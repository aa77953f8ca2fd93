"""Which kernel `scaled_dot_product_attention` runs on a CUDA device. Pure: loads no torch.

Rules of `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` (pytorch at 001f694, torch 2.14) and
of its earlier forms: FlashAttention 1 and no mask in the efficient kernel in torch 2.0, masks from
2.1, FlashAttention 2 from 2.2, grouped queries from 2.5, cuDNN first on Hopper and data-centre
Blackwell from 2.8, grouped queries in the efficient kernel and three-dimensional inputs from 2.14.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import floor

from bsprof.predict.target import Software

FIRST_TORCH = (2, 0)
"""First torch that has the function (1.13 had a private one that nothing used)."""

GROUPED_SINCE = (2, 5)
"""First torch in which fewer heads of keys than of queries can be asked for (`enable_gqa`)."""

HALF = ("float16", "bfloat16")


class AttentionBackend(StrEnum):
    """Kernels of attention; `math` is plain matrix products with the whole score matrix."""

    FLASH = "flash"
    EFFICIENT = "efficient"
    CUDNN = "cudnn"
    MATH = "math"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCall:
    """One call, after autocast.

    Attributes:
        query_shape, key_shape, value_shape: Batch, heads, length, head size; any number of
            dimensions, as given.
        dtype: As torch writes it, of all three.
        mask_shape: None without a mask. `causal` is not a mask.
        mask_requires_grad: Whether the mask is trained (a position bias).
        dropout: Probability.
        training: Whether a query, key or value requires a gradient and gradients are recorded.
        enable_gqa: Whether fewer heads of keys than of queries are meant.
        last_stride_one: Whether elements of a head lie next to each other in memory.
    """

    query_shape: tuple[int, ...]
    key_shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    dtype: str
    mask_shape: tuple[int, ...] | None = None
    mask_requires_grad: bool = False
    causal: bool = False
    dropout: float = 0.0
    training: bool = True
    enable_gqa: bool = False
    last_stride_one: bool = True


def fused_attention_exists(software: Software) -> bool:
    """Whether the software has the function at all; before, models write attention out."""
    return software.torch >= FIRST_TORCH


def attention_backend(
    call: AttentionCall,
    compute_capability: tuple[int, int],
    software: Software,
    *,
    allowed: Collection[AttentionBackend] = tuple(AttentionBackend),
    order: Sequence[AttentionBackend] | None = None,
) -> AttentionBackend:
    """The kernel that torch would choose.

    Args:
        call: Shapes and options.
        compute_capability: Of the device.
        software: Whose rules apply.
        allowed: Those that the program has not switched off.
        order: The program's own priorities; None for torch's.

    Raises:
        RuntimeError: None of the allowed kernels can run it, as in torch.
    """
    rules = {
        AttentionBackend.FLASH: _flash,
        AttentionBackend.EFFICIENT: _efficient,
        AttentionBackend.CUDNN: _cudnn,
        AttentionBackend.MATH: lambda *_: True,
    }
    for backend in order or default_order(compute_capability, software):
        if backend in allowed and rules[backend](call, compute_capability, software):
            return backend
    raise RuntimeError(
        f"no available attention kernel among {', '.join(sorted(allowed))} for {call}"
    )


def default_order(
    compute_capability: tuple[int, int], software: Software
) -> tuple[AttentionBackend, ...]:
    """torch's priorities. cuDNN stands last, behind one that always runs, save where preferred."""
    usual = (AttentionBackend.FLASH, AttentionBackend.EFFICIENT, AttentionBackend.MATH)
    prefers_cudnn = (
        software.torch >= (2, 8)
        and software.cudnn >= 9
        and compute_capability in ((9, 0), (10, 0), (10, 3))
    )
    return (AttentionBackend.CUDNN, *usual) if prefers_cudnn else (*usual, AttentionBackend.CUDNN)


def _common(call: AttentionCall, software: Software, *, grouped: bool) -> bool:
    """What all fused kernels ask: four dimensions, equal batches and heads, no empty sequence."""
    ranks = {len(call.query_shape), len(call.key_shape), len(call.value_shape)}
    unbatched = software.torch >= (2, 14)
    if ranks != {4} and not (unbatched and ranks == {3}):
        return False
    if not call.last_stride_one or 0 in (call.query_shape[-2], call.key_shape[-2]):
        return False
    if len({shape[:-3] for shape in (call.query_shape, call.key_shape, call.value_shape)}) > 1:
        return False
    heads, *others = (s[-3] for s in (call.query_shape, call.key_shape, call.value_shape))
    if call.enable_gqa and grouped:
        return others[0] == others[1] and heads % others[0] == 0
    shared = software.torch >= (2, 14) and set(others) == {1}
    return set(others) == {heads} or shared


def _flash(call: AttentionCall, capability: tuple[int, int], software: Software) -> bool:
    second = software.torch >= (2, 2)
    if (
        not _common(call, software, grouped=software.torch >= GROUPED_SINCE)
        or call.mask_shape is not None
    ):
        return False
    sizes = {shape[-1] for shape in (call.query_shape, call.key_shape, call.value_shape)}
    size = max(sizes)
    if len(sizes) > 1 or size > (256 if second else 128) or (not second and size % 8):
        return False
    if call.dtype not in (HALF if capability >= (8, 0) else HALF[:1]):
        return False
    if capability < ((8, 0) if second else (7, 5)):
        return False
    if second and call.causal and call.query_shape[-2] != call.key_shape[-2]:
        return False
    return not call.training or _flash_backward(size, call, capability, software)


def _flash_backward(
    size: int, call: AttentionCall, capability: tuple[int, int], software: Software
) -> bool:
    """Large heads do not fit the shared memory of small devices in the backward pass."""
    small = (8, 6) <= capability <= (8, 9) or capability >= (12, 0)
    if not small:
        return True
    if software.torch < (2, 2):
        return size <= 64
    relaxed = software.torch >= (2, 5) and size > 224 and call.dropout == 0
    return size <= 192 or relaxed


def _efficient(call: AttentionCall, capability: tuple[int, int], software: Software) -> bool:
    if not _common(call, software, grouped=software.torch >= (2, 14)):
        return False
    if software.torch < (2, 1) and (call.mask_shape is not None or call.dropout > 0):
        return False
    if call.dtype not in ("float32", "float16", "bfloat16")[: 3 if capability >= (8, 0) else 2]:
        return False
    half = call.dtype in HALF
    alignment = 4 if capability >= (8, 0) else 1
    if capability >= (8, 0) or (capability >= (7, 0) and half):
        alignment = max(alignment, 128 // (16 if half else 32))
    sizes = (call.query_shape[-1], call.value_shape[-1])
    return call.query_shape[-1] == call.key_shape[-1] and not any(s % alignment for s in sizes)


def _cudnn(call: AttentionCall, capability: tuple[int, int], software: Software) -> bool:
    if software.torch < (2, 5) or software.cudnn < 9 or capability < (8, 0):
        return False
    if not _common(call, software, grouped=True) or len(call.query_shape) < 4:
        return False
    if call.dtype not in HALF or call.dropout * 16 != floor(call.dropout * 16):
        return False
    size, value_size = call.query_shape[-1], call.value_shape[-1]
    if max(size, value_size) > 128 or size % 8 or value_size % 8:
        return False
    if call.key_shape[-2] == 1 or (call.dropout > 0 and call.query_shape[-2] == 1):
        return False
    return call.mask_shape is None or _cudnn_mask(call)


def _cudnn_mask(call: AttentionCall) -> bool:
    assert call.mask_shape is not None
    if call.mask_requires_grad or len(call.mask_shape) not in (2, 4):
        return False
    target = (*call.query_shape[:-1], call.key_shape[-2])[-len(call.mask_shape) :]
    return all(have in (1, want) for have, want in zip(call.mask_shape, target, strict=True))
