"""Work bound by memory: NeuSight, Vidur, gpu-benches, Liger, KernelBench, optimizers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.names import CATALOGUE_NAMES
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources.table import Line, lines_of, whole
from bsprof.calibrate.fit.works import traffic

_ELEMENTWISE = frozenset(
    ("add", "addu", "div", "divu", "mul", "mulu", "pow", "powu", "relu", "gelu", "tanh")
)
_CLOCK_S = 8e-6
"""Vidur's clock ticks in microseconds."""
_HOST_S = 60e-6
"""KernelBench's small programs are bound by the host (25 us)."""
_LAYER_NORM, _BATCH_NORM = "aten.native_layer_norm", "aten.native_batch_norm"
_GROUP_NORM = "aten.native_group_norm"


def neusight(folder: Path) -> Iterator[KernelRow]:
    """Elementwise operators, layer norm and softmax in fp32; the data are zeros."""
    need = ("gpu", "op", "rows", "cols", "bytes_ideal", "latency_us")
    for line in lines_of(folder / "neusight_vector_fp32.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None:
            continue
        rows, columns, moved = whole(line["rows"]), whole(line["cols"]), whole(line["bytes_ideal"])
        if line["op"] in _ELEMENTWISE:
            work = traffic(WorkClass.ELEMENTWISE, moved, "fp32", name=f"aten.{line['op']}")
        else:
            is_norm = line["op"] == "ln"
            work = traffic(
                WorkClass.NORMALISATION if is_norm else WorkClass.SOFTMAX,
                moved,
                "fp32",
                rows=rows,
                columns=columns,
                name=_LAYER_NORM if is_norm else "aten._softmax",
            )
        yield KernelRow(
            work=work,
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="NeuSight " + line["gpu"],
            has_floor=True,
        )


def vidur(folder: Path) -> Iterator[KernelRow]:
    """Residual additions of language models, fp16; its other kernels are not torch's."""
    need = ("gpu", "op", "bytes_ideal", "latency_us")
    for line in lines_of(folder / "vidur_compute_fp16.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        seconds = float(line["latency_us"]) * 1e-6
        if device is None or line["op"] != "add" or seconds < _CLOCK_S:
            continue
        yield KernelRow(
            work=traffic(
                WorkClass.ELEMENTWISE, whole(line["bytes_ideal"]), "fp16", name="aten.add"
            ),
            seconds=seconds,
            device=device,
            source="Vidur " + line["gpu"],
        )


def small_kernels(folder: Path) -> Iterator[KernelRow]:
    """A scaling of fp64 numbers against size, by stream launches: launch floor and cache."""
    need = ("gpu", "mode", "bytes_ideal", "latency_us")
    for line in lines_of(folder / "gpubenches_smallkernels.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None or line["mode"] != "stream launch":
            continue
        yield KernelRow(
            work=traffic(
                WorkClass.ELEMENTWISE, whole(line["bytes_ideal"]), "fp64", name="aten.mul"
            ),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="gpu-benches " + line["gpu"],
        )


def liger(folder: Path) -> Iterator[KernelRow]:
    """Operators of plain torch that Liger compares itself with; backward as full less forward."""
    need = ("gpu", "op", "impl", "pass", "metric_name", "x_value", "median", "config", "source")
    times: dict[tuple[str, ...], tuple[Line, dict[str, float]]] = {}
    for line in lines_of(folder / "liger_ops.csv", need):
        if line["metric_name"] != "speed" or line["impl"] not in ("huggingface", "torch"):
            continue
        key = (line["gpu"], line["op"], line["source"], line["config"], line["x_value"])
        times.setdefault(key, (line, {}))[1][line["pass"]] = float(line["median"]) * 1e-3
    for line, passes in times.values():
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None:
            continue
        forward = passes.get("forward")
        backward = passes.get("backward")
        if backward is None and forward is not None and "full" in passes:
            backward = passes["full"] - forward
        for is_backward, seconds in ((False, forward), (True, backward)):
            work = _liger_work(line, is_backward)
            if work is not None and seconds is not None and seconds > 0:
                yield KernelRow(
                    work=work,
                    seconds=seconds,
                    device=device,
                    source=f"{line['source']} {line['gpu']}",
                    has_floor=True,
                )


def _liger_work(line: Line, is_backward: bool) -> Work | None:
    settings: Mapping[str, object] = json.loads(line["config"])
    size = whole(line["x_value"])

    def setting(name: str) -> int:
        return int(str(settings[name]))

    item = 2 if "bfloat16" in str(settings.get("dtype")) else 4
    compute = "bf16" if item == 2 else "fp32"
    times = 3 if is_backward else 2
    if line["op"] == "layer_norm":
        rows = setting("M")
        return traffic(
            WorkClass.NORMALISATION_BACKWARD if is_backward else WorkClass.NORMALISATION,
            times * rows * size * item,
            compute,
            rows=rows,
            columns=size,
            backward=is_backward,
            name=_LAYER_NORM,
            launches=2 if is_backward else 1,
        )
    if line["op"] == "group_norm":
        samples, length = setting("M"), setting("H")
        groups = size // setting("channels_per_group")
        return traffic(
            WorkClass.NORMALISATION_BACKWARD if is_backward else WorkClass.NORMALISATION,
            times * samples * size * length * item,
            compute,
            rows=samples * groups,
            columns=setting("channels_per_group") * length,
            backward=is_backward,
            name=_GROUP_NORM,
            launches=2,
        )
    if line["op"] == "softmax":
        rows = setting("M")
        return traffic(
            WorkClass.SOFTMAX,
            times * rows * size * item,
            compute,
            rows=rows,
            columns=size,
            backward=is_backward,
            name="aten._softmax",
        )
    if line["op"] == "cross_entropy":
        rows = setting("B") * setting("T")
        if is_backward:
            return None  # two operators: the gradient of the loss is filled first
        return traffic(
            WorkClass.SOFTMAX,
            times * rows * size * item,
            compute,
            rows=rows,
            columns=size,
            name="aten._log_softmax",
            launches=2,
        )
    if line["op"] == "embedding":
        tokens, width = setting("B") * setting("T"), setting("D")
        if is_backward:
            return traffic(
                WorkClass.EMBEDDING_BACKWARD,
                (tokens + size) * width * item,
                compute,
                backward=True,
                name="aten.embedding_dense_backward",
                launches=8,
            )
        return traffic(
            WorkClass.EMBEDDING, 2 * tokens * width * item, compute, name="aten.embedding"
        )
    return None


_KERNELBENCH: Mapping[str, tuple[WorkClass, str]] = {
    "5_Matrix_scalar_multiplication": (WorkClass.ELEMENTWISE, "aten.mul"),
    "33_BatchNorm": (WorkClass.NORMALISATION, _BATCH_NORM),
    "34_InstanceNorm": (WorkClass.NORMALISATION, _BATCH_NORM),
    "35_GroupNorm_": (WorkClass.NORMALISATION, _GROUP_NORM),
    "43_Max_Pooling_3D": (WorkClass.POOLING, "aten.max_pool3d_with_indices"),
    "45_Average_Pooling_2D": (WorkClass.POOLING, "aten.avg_pool2d"),
    "46_Average_Pooling_3D": (WorkClass.POOLING, "aten.avg_pool3d"),
}
_IMAGE = (16, 64, 256, 256)


def kernelbench(folder: Path) -> Iterator[KernelRow]:
    """Programs of one operator on large fp32 tensors."""
    need = ("gpu", "host", "level", "op", "input_shapes", "latency_us")
    for line in lines_of(folder / "kernelbench_torch_eager.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        seconds = float(line["latency_us"]) * 1e-6
        if (
            device is None
            or line["level"] != "level1"
            or line["op"] not in _KERNELBENCH
            or seconds < _HOST_S
        ):
            continue
        yield KernelRow(
            work=_kernelbench_work(line["op"]),
            seconds=seconds,
            device=device,
            source=f"KernelBench {line['gpu']}",
            has_floor=True,
        )


def _kernelbench_work(name: str) -> Work:
    kind, operator = _KERNELBENCH[name]
    samples, channels, height, width = _IMAGE
    image = samples * channels * height * width
    if kind is WorkClass.ELEMENTWISE:
        return traffic(kind, 2 * 4 * 16384 * 4096, "fp32", name=operator)
    if kind is WorkClass.POOLING:
        if name.startswith("45"):
            moved = 4 * (image + samples * channels * (height // 3) ** 2)
        else:
            cube = 16 * 32 * 64**3
            out = 16 * 32 * (30 if name.startswith("43") else 32) ** 3
            moved = 4 * (cube + out)
        return traffic(kind, moved, "fp32", name=operator)
    rows = {"33": channels, "34": samples * channels, "35": samples * 8}[name[:2]]
    return traffic(
        kind,
        2 * 4 * image,
        "fp32",
        rows=rows,
        columns=image // rows,
        name=operator,
        launches=1,
    )


_OPTIMIZER_PASSES: Mapping[str, int] = {"optimizer_Adam": 19, "optimizer_AdamW": 21}
"""Tensors of fp32 that the operators of torch's foreach Adam and AdamW read and write, added up
(`torch/optim/adamw.py`: mul 2, lerp 3, mul 2, addcmul 4, sqrt 2, div 2, add 2, addcdiv 4)."""
_FUSED_PASSES = 7
"""Parameter, two averages, each read and written; the gradient read."""


def optimizers(folder: Path) -> Iterator[KernelRow]:
    """Updates by Adam and AdamW, fused, and foreach with all its operators as one work."""
    need = ("gpu", "op", "impl", "params_M", "latency_us")
    for line in lines_of(folder / "optimizer_published.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None or line["op"] not in _OPTIMIZER_PASSES:
            continue
        parameters = round(float(line["params_M"]) * 1e6)
        is_fused = line["impl"].startswith("fused")
        tensors = _FUSED_PASSES if is_fused else _OPTIMIZER_PASSES[line["op"]]
        yield KernelRow(
            work=traffic(
                WorkClass.OPTIMIZER_FUSED if is_fused else WorkClass.OPTIMIZER_FOREACH,
                4 * tensors * parameters,
                "fp32",
                name="aten._fused_adamw_" if is_fused else "aten._foreach_add_",
                launches=1 if is_fused else 8,
            ),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="trinix " + line["gpu"],
        )
