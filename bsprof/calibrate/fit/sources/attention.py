"""Fused attention: aiconfigurator (prefill, forward) and figures read from published charts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from bsprof.calibrate.fit.names import CATALOGUE_NAMES, COMPUTE
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources.table import lines_of, whole
from bsprof.calibrate.fit.works import attention

_KERNELS: Mapping[str, str] = {
    "flash_attention": "flash2",
    "vllm_flash_attn": "flash2",
    "vllm_flash_attn_fa2": "flash2",
    "vllm_flash_attn_fa3": "flash3",
    "vllm_vit_flash_attn_fa2": "flash2",
    "vllm_vit_flash_attn_fa3": "flash3",
    "torch_flow": "cudnn",
}
"""Implementations by aiconfigurator's kernel; TensorRT's own is counted with cuDNN's, whose
code it shares."""
_PUBLISHED: Mapping[str, str] = {
    "FA1": "flash1",
    "FA2": "flash2",
    "FA3": "flash3",
    "xformers": "efficient",
    "cuDNN": "cudnn",
}
_LARGEST_HEAD = 256
_SAMPLES, _HEADS = "8", "32"
"""Where a table of rates does not say; enough to fill the device, and the rate then depends on
neither."""


def aiconfigurator(folder: Path) -> Iterator[KernelRow]:
    """Causal prefill and full encoder attention, bf16, in CUDA graphs; forward only."""
    need = ("gpu", "kernel", "causal", "batch", "seq_len", "q_heads", "kv_heads", "head_dim")
    for line in lines_of(folder / "aiconfigurator_attention.csv", need):
        device, name = CATALOGUE_NAMES.get(line["gpu"]), _KERNELS.get(line["kernel"])
        size = whole(line["head_dim"])
        if device is None or name is None or size > _LARGEST_HEAD:
            continue
        yield KernelRow(
            work=attention(
                name,
                "bf16",
                samples=whole(line["batch"]),
                heads=whole(line["q_heads"]),
                key_heads=whole(line["kv_heads"]),
                queries=whole(line["seq_len"]),
                head_size=size,
                causal=line["causal"] == "1",
            ),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="/".join(line["source"].split("/")[:2]) + " " + line["gpu"],
        )


def published(folder: Path) -> Iterator[KernelRow]:
    """Forward or backward alone; rows of both together are left to `both_passes`."""
    for row, direction in _published(folder):
        if direction != "fwd+bwd":
            yield row


def both_passes(folder: Path) -> Iterator[KernelRow]:
    """Rows that time forward and backward together: the work is the forward one."""
    for row, direction in _published(folder):
        if direction == "fwd+bwd":
            yield row


def backward_of(row: KernelRow, forward_s: float) -> KernelRow:
    """The backward pass of a row of both, whose forward pass takes so long; at least its half."""
    work = row.work
    backward = attention(
        work.implementation,
        work.compute,
        samples=1,
        heads=work.batch,
        queries=work.m,
        head_size=work.k,
        causal=work.causal,
        backward=True,
    )
    return dataclasses.replace(
        row, work=backward, seconds=max(row.seconds - forward_s, 0.5 * row.seconds)
    )


def _published(folder: Path) -> Iterator[tuple[KernelRow, str]]:
    need = ("gpu", "impl", "pass", "dtype", "batch", "heads", "seq_len", "head_dim", "tflops")
    for line in lines_of(folder / "attention_published.csv", need):
        device, name = CATALOGUE_NAMES.get(line["gpu"]), _PUBLISHED.get(line["impl"])
        if device is None or name is None:
            continue
        causal, is_backward = line["causal"] == "1", line["pass"] == "bwd"
        samples, heads = whole(line["batch"] or _SAMPLES), whole(line["heads"] or _HEADS)
        size, length = whole(line["head_dim"]), whole(line["seq_len"])
        seconds = float(line["latency_us"] or 0) * 1e-6
        if not seconds:
            # Charts count 4 m n k forward, 2.5 times that backward, half where causal.
            flops = 4.0 * samples * heads * length * length * size
            flops *= (2.5 if is_backward else 1.0) * (0.5 if causal else 1.0)
            seconds = flops / (float(line["tflops"]) * 1e12)
        yield (
            KernelRow(
                work=attention(
                    name,
                    COMPUTE[line["dtype"]],
                    samples=samples,
                    heads=heads,
                    queries=length,
                    head_size=size,
                    causal=causal,
                    backward=is_backward,
                ),
                seconds=seconds,
                device=device,
                source=line["source"].split(" ")[0] + " " + line["gpu"],
            ),
            line["pass"],
        )
