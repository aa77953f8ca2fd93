"""Convolutions: NeuSight (forward, fp32), DeepBench (all three passes), KernelBench (TF32)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.names import CATALOGUE_NAMES, COMPUTE
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources.table import Line, lines_of, whole
from bsprof.calibrate.fit.works import ITEM_BYTES, convolution

_DEEPBENCH_PASSES = {
    "conv_fwd": WorkClass.CONVOLUTION_FORWARD,
    "conv_bwd_input": WorkClass.CONVOLUTION_DATA,
    "conv_bwd_weight": WorkClass.CONVOLUTION_WEIGHT,
}
_NO_TF32 = frozenset({"t4", "v100-16gb-sxm"})
"""KernelBench lets convolutions use TF32; these devices have none."""
_KERNELBENCH_LEAST_S = 60e-6
"""Its small programs are bound by the host (25 us)."""


def neusight(folder: Path) -> Iterator[KernelRow]:
    """Forward convolutions in fp32, cuDNN's fastest algorithm; the data are zeros."""
    need = ("gpu", "batch", "c_in", "c_out", "ksize", "hw_in", "hw_out", "stride", "latency_us")
    for line in lines_of(folder / "neusight_conv_fp32.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None:
            continue
        yield KernelRow(
            work=convolution(
                WorkClass.CONVOLUTION_FORWARD,
                "fp32",
                samples=whole(line["batch"]),
                channels_in=whole(line["c_in"]),
                channels_out=whole(line["c_out"]),
                pixels_in=whole(line["hw_in"]) ** 2,
                pixels_out=whole(line["hw_out"]) ** 2,
                area=whole(line["ksize"]) ** 2,
                stride=whole(line["stride"]),
            ),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="NeuSight " + line["gpu"],
            has_floor=True,
        )


def deepbench(folder: Path) -> Iterator[KernelRow]:
    """Speech and vision layers, forward and both gradients, cuDNN's fastest algorithm."""
    need = ("gpu", "op", "dtype", "batch", "c_in", "c_out", "w", "h", "kw", "kh", "latency_us")
    for line in lines_of(folder / "deepbench_train.csv", need):
        device, compute = CATALOGUE_NAMES.get(line["gpu"]), COMPUTE.get(line["dtype"])
        direction = _DEEPBENCH_PASSES.get(line["op"])
        if device is None or compute is None or direction is None:
            continue
        width, height = (_outputs(line, axis) for axis in "wh")
        inputs = whole(line["batch"]) * whole(line["c_in"]) * whole(line["w"]) * whole(line["h"])
        outputs = whole(line["batch"]) * whole(line["c_out"]) * width * height
        # Tensor cores take channels last; its data have them first and are copied inside.
        copied = 2 * ITEM_BYTES[compute] * (inputs + outputs) if compute == "fp16" else 0
        yield KernelRow(
            extra_bytes=copied,
            work=convolution(
                direction,
                compute,
                samples=whole(line["batch"]),
                channels_in=whole(line["c_in"]),
                channels_out=whole(line["c_out"]),
                pixels_in=whole(line["w"]) * whole(line["h"]),
                pixels_out=width * height,
                area=whole(line["kw"]) * whole(line["kh"]),
                stride=whole(line["stride_h"]),
            ),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="DeepBench " + line["gpu"],
        )


def _outputs(line: Line, axis: str) -> int:
    size, kernel = whole(line[axis]), whole(line["k" + axis])
    return (size + 2 * whole(line["pad_" + axis]) - kernel) // whole(line["stride_" + axis]) + 1


def kernelbench(folder: Path) -> Iterator[KernelRow]:
    """Two-dimensional convolutions of level 1, transposed ones as gradients of their data."""
    need = ("gpu", "host", "level", "op", "input_shapes", "init_args", "latency_us")
    for line in lines_of(folder / "kernelbench_torch_eager.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        seconds = float(line["latency_us"]) * 1e-6
        if device is None or line["level"] != "level1" or seconds < _KERNELBENCH_LEAST_S:
            continue
        work = _kernelbench_work(line, "fp32" if device in _NO_TF32 else "tf32")
        if work is not None:
            yield KernelRow(
                work=work,
                seconds=seconds,
                device=device,
                source=f"KernelBench {line['gpu']}",
                has_floor=True,
            )


def _kernelbench_work(line: Line, compute: str) -> Work | None:
    name = line["op"]
    is_transposed = "conv_transposed_2D" in name
    is_plain = "conv_standard_2D" in name or "conv_pointwise_2D" in name
    is_depthwise = "conv_depthwise_2D" in name
    if not (is_transposed or is_plain or is_depthwise):
        return None
    settings = _settings(line["init_args"])
    if settings.get("dilation", 1) not in (1, (1, 1)) or settings.get("groups", 1) == 4:
        return None
    samples, channels, height, width = (int(x) for x in line["input_shapes"].split("x"))
    kernel = _pair(settings.get("kernel_size", 1))
    stride, padding = _pair(settings.get("stride", 1)), _pair(settings.get("padding", 0))
    out = int(str(settings.get("out_channels", channels)))
    area = kernel[0] * kernel[1]
    before = height * width
    if is_transposed:
        after = 1
        for size, step, pad, k in zip((height, width), stride, padding, kernel, strict=True):
            after *= (size - 1) * step - 2 * pad + k
        return convolution(
            WorkClass.CONVOLUTION_DATA,
            compute,
            samples=samples,
            channels_in=out,
            channels_out=channels,
            pixels_in=after,
            pixels_out=before,
            area=area,
            stride=stride[0],
        )
    after = 1
    for size, step, pad, k in zip((height, width), stride, padding, kernel, strict=True):
        after *= (size + 2 * pad - k) // step + 1
    return convolution(
        WorkClass.CONVOLUTION_FORWARD,
        compute,
        samples=samples,
        channels_in=channels,
        channels_out=out,
        pixels_in=before,
        pixels_out=after,
        area=area,
        stride=stride[0],
        groups=channels if is_depthwise else 1,
    )


def _settings(text: str) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for part in filter(None, text.split(";")):
        key, _equals, value = part.partition("=")
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[key] = value
    return found


def _pair(value: object) -> tuple[int, int]:
    if isinstance(value, tuple):
        return int(value[0]), int(value[1])
    return (int(value), int(value)) if isinstance(value, int) else (1, 1)
