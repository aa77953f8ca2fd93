"""Sends `scaled_dot_product_attention` on fake CPU tensors to the kernel a CUDA device would run.

Around each kernel stands what torch does around it (`attention.cpp`): boolean masks become additive
ones, head sizes are padded for flash, masks are padded and expanded for the efficient kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from bsprof.predict.cuda.attention import (
    GROUPED_SINCE,
    AttentionBackend,
    AttentionCall,
    attention_backend,
    fused_attention_exists,
)
from bsprof.predict.cuda.overrides import COMPOSITE, Kernel, kernels
from bsprof.predict.target import TraceTarget

aten = torch.ops.aten

FLASH_ALIGNMENT = 8
"""Head sizes are padded to a multiple of it."""

MASK_ALIGNMENT = 16
"""Strides of the efficient kernel's mask are; `_scaled_dot_product_efficient_backward`'s shape."""

BY_NUMBER = {
    0: AttentionBackend.MATH,
    1: AttentionBackend.FLASH,
    2: AttentionBackend.EFFICIENT,
    3: AttentionBackend.CUDNN,
}
"""`torch.nn.attention.SDPBackend`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What decides on a kernel, save for the device; `attention_backend` says what each is."""

    call: AttentionCall
    allowed: tuple[AttentionBackend, ...]
    order: tuple[AttentionBackend, ...] | None

    def answer(self, target: TraceTarget) -> AttentionBackend:
        """The kernel on a device; raises `RuntimeError` where none can run."""
        return attention_backend(
            self.call,
            target.compute_capability,
            target.software,
            allowed=self.allowed,
            order=self.order,
        )


ASKED: set[Question] = set()
"""What was asked in this process since it was last emptied; devices whose answers to all of it are
the same share a trace."""


def allowed_backends() -> tuple[AttentionBackend, ...]:
    """Those that the program has not switched off (`sdpa_kernel`, `enable_flash_sdp`)."""
    backends: Any = torch.backends.cuda
    switches = {
        AttentionBackend.FLASH: backends.flash_sdp_enabled(),
        AttentionBackend.EFFICIENT: backends.mem_efficient_sdp_enabled(),
        AttentionBackend.MATH: backends.math_sdp_enabled(),
        AttentionBackend.CUDNN: backends.cudnn_sdp_enabled(),
    }
    return tuple(backend for backend, on in switches.items() if on)


def priorities() -> list[int]:
    """Numbers of the backends in the order that is in force."""
    return list(torch._C._get_sdp_priority_order())


def _call(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    gqa: bool,
) -> AttentionCall:
    qkv = (query, key, value)
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in qkv}
    return AttentionCall(
        query_shape=tuple(query.shape),
        key_shape=tuple(key.shape),
        value_shape=tuple(value.shape),
        dtype=dtypes.pop() if len(dtypes) == 1 else "mixed",
        mask_shape=None if mask is None else tuple(mask.shape),
        mask_requires_grad=mask is not None and mask.requires_grad,
        causal=causal,
        dropout=dropout,
        training=torch.is_grad_enabled() and any(tensor.requires_grad for tensor in qkv),
        enable_gqa=gqa,
        last_stride_one=all(t.stride(-1) == 1 or t.shape[-1] == 1 for t in qkv),
    )


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A boolean mask as one that is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=dtype)
    return torch.where(mask, zero, torch.full((), float("-inf"), dtype=dtype))


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    size = query.shape[-1]
    missing = -size % FLASH_ALIGNMENT
    if missing:
        query, key, value = (pad(tensor, (0, missing)) for tensor in (query, key, value))
    scale = scale if scale is not None else size**-0.5
    out: torch.Tensor = aten._scaled_dot_product_flash_attention(
        query, key, value, dropout, causal, False, scale=scale
    )[0]
    return out[..., :size] if missing else out


def _efficient_mask(
    mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    if mask is None:
        return None
    aligned = mask.stride(-1) == 1 and not any(s % MASK_ALIGNMENT for s in mask.stride()[:-1])
    if not aligned:
        length = mask.shape[-1]
        mask = pad(mask, (0, MASK_ALIGNMENT - length % MASK_ALIGNMENT))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _repeated(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values with as many heads as the queries have."""
    groups = query.shape[-3] // key.shape[-3]
    return key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)


def _written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention as models wrote it before torch had the function; autocast acts on each step."""
    if enable_gqa:
        key, value = _repeated(query, key, value)
    scores = (query * (scale or query.shape[-1] ** -0.5)) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.dropout(scores.softmax(dim=-1), dropout_p, True) @ value


def _attention(target: TraceTarget, usual: list[int]) -> Kernel:
    def kernel(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if enable_gqa and target.software.torch < GROUPED_SINCE:
            # Models repeated keys and values themselves before torch could share them.
            key, value = _repeated(query, key, value)
            enable_gqa = False
        call = _call(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        order = priorities()
        own = None if order == usual else tuple(BY_NUMBER[n] for n in order if n in BY_NUMBER)
        question = Question(call=call, allowed=allowed_backends(), order=own)
        ASKED.add(question)
        backend = question.answer(target)
        mask = _additive(attn_mask, query.dtype)
        if backend is AttentionBackend.MATH:
            out: torch.Tensor = aten._scaled_dot_product_attention_math(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale,
                **({"enable_gqa": True} if enable_gqa else {}),
            )[0]  # fmt: skip
            return out
        unbatched = query.dim() == 3
        if unbatched:
            query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
            while mask is not None and mask.dim() < 4:
                mask = mask.unsqueeze(0)
        if backend is AttentionBackend.FLASH:
            out = _flash(query, key, value, dropout_p, is_causal, scale)
        elif backend is AttentionBackend.EFFICIENT:
            out = aten._scaled_dot_product_efficient_attention(
                query, key, value, _efficient_mask(mask, query, key), call.training, dropout_p,
                is_causal, scale=scale,
            )[0]  # fmt: skip
        else:
            out = aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, call.training, dropout_p, is_causal, False, scale=scale
            )[0]
        return out.squeeze(0) if unbatched else out

    return kernel


@contextmanager
def cuda_attention(target: TraceTarget) -> Iterator[None]:
    """Has attention run the target's kernels, whoever calls it (modules, C++, under autocast)."""
    usual = priorities()
    with ExitStack() as stack:
        fused = fused_attention_exists(target.software)
        kernel = _attention(target, usual) if fused else _written_out
        table = {"scaled_dot_product_attention": kernel}
        stack.enter_context(kernels(table, COMPOSITE))
        backends: Any = torch.backends.cuda
        reduced = backends.fp16_bf16_reduction_math_sdp_allowed()
        # From torch 2.5 on, the math kernel computes 16-bit inputs in fp32.
        backends.allow_fp16_bf16_reduction_math_sdp(reduced or target.software.torch < (2, 5))
        stack.callback(backends.allow_fp16_bf16_reduction_math_sdp, reduced)
        yield
