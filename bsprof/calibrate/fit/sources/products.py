"""Matrix products: AutoHeuristic, aiconfigurator, Vidur, NeuSight, DeepBench, single layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bsprof.calibrate.fit.names import CATALOGUE_NAMES, COMPUTE
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources.table import lines_of, whole
from bsprof.calibrate.fit.works import product

_CLOCK_S = 10e-6
"""Vidur's clock ticks in microseconds: shorter kernels are left out."""
_LEAST_HOST_FREE_S = 150e-6
"""Single products of a notebook below this are bound by its host."""

_TF32_DEVICES = frozenset({"h100-80gb-sxm", "rtx-3090-ti"})
"""Their fp32 figures of the notebooks lie above what fp32 can: TF32 was on."""

_KERNELBENCH: Mapping[str, tuple[int, int, int, int]] = {
    "1_Square_matrix_multiplication_": (0, 2048, 2048, 2048),
    "2_Standard_matrix_multiplication_": (0, 1024, 2048, 4096),
    "3_Batched_matrix_multiplication": (128, 128, 512, 256),
    "6_Matmul_with_large_K_dimension_": (0, 256, 256, 131072),
    "7_Matmul_with_small_K_dimension_": (0, 16384, 16384, 32),
    "8_Matmul_with_irregular_shapes_": (0, 8205, 5921, 2949),
    "9_Tall_skinny_matrix_multiplication_": (0, 16384, 16384, 16),
    "10_3D_tensor_matrix_multiplication": (0, 16384, 768, 2048),
    "11_4D_tensor_matrix_multiplication": (0, 2097152, 768, 256),
    "13_Matmul_for_symmetric_matrices": (0, 4096, 4096, 4096),
    "16_Matmul_with_transposed_A": (0, 1024, 2048, 4096),
    "17_Matmul_with_transposed_B": (0, 1024, 2048, 4096),
    "18_Matmul_with_transposed_both": (0, 1024, 2048, 4096),
}
"""Batch (0: none), m, n and k of KernelBench's products, all in fp32 without TF32."""


def autoheuristic(folder: Path) -> Iterator[KernelRow]:
    """`mm` on shapes of training runs, and unaligned ones as they are and padded."""
    need = ("gpu", "dtype", "m", "n", "k", "latency_us")
    for name in ("autoheuristic_mm.csv", "autoheuristic_padmm_a100.csv"):
        for line in lines_of(folder / name, need):
            device = CATALOGUE_NAMES.get(line["gpu"])
            if device is None:
                continue
            m, n, k = whole(line["m"]), whole(line["n"]), whole(line["k"])
            yield KernelRow(
                work=product(m, n, k, COMPUTE[line["dtype"]]),
                seconds=float(line["latency_us"]) * 1e-6,
                device=device,
                source="AutoHeuristic " + line["gpu"],
                has_floor=True,
            )


def aiconfigurator(folder: Path) -> Iterator[KernelRow]:
    """Linear layers in bf16, in CUDA graphs; its 8-bit rows are left out."""
    need = ("gpu", "dtype", "m", "n", "k", "latency_us", "source")
    for line in lines_of(folder / "aiconfigurator_gemm.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None or line["dtype"] != "bfloat16":
            continue
        yield KernelRow(
            work=product(whole(line["m"]), whole(line["n"]), whole(line["k"]), "bf16"),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="aiconfigurator " + line["gpu"],
        )


def vidur(folder: Path) -> Iterator[KernelRow]:
    """Linear layers of language models, fp16."""
    need = ("gpu", "op", "m", "n", "k", "latency_us")
    for line in lines_of(folder / "vidur_compute_fp16.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        seconds = float(line["latency_us"]) * 1e-6
        if device is None or line["op"] != "gemm" or seconds < _CLOCK_S:
            continue
        yield KernelRow(
            work=product(whole(line["m"]), whole(line["n"]), whole(line["k"]), "fp16"),
            seconds=seconds,
            device=device,
            source="Vidur " + line["gpu"],
        )


def neusight(folder: Path) -> Iterator[KernelRow]:
    """Linear layers and batched products in fp32 without TF32; 25 to 50 us are the host's."""
    need = ("gpu", "op", "b", "m", "n", "k", "latency_us")
    for line in lines_of(folder / "neusight_matmul_fp32.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None:
            continue
        b, m, n, k = (whole(line[name]) for name in ("b", "m", "n", "k"))
        is_batched = line["op"] == "bmm"
        work = product(m, n, k, "fp32", batch=b) if is_batched else product(b * m, n, k, "fp32")
        yield KernelRow(
            work=work,
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="NeuSight " + line["gpu"],
            has_floor=True,
        )


def deepbench(folder: Path) -> Iterator[KernelRow]:
    """Products of recurrent and dense layers, fp32 and fp16 with tensor cores."""
    need = ("gpu", "op", "dtype", "m", "n", "k", "latency_us")
    for line in lines_of(folder / "deepbench_train.csv", need):
        device, compute = CATALOGUE_NAMES.get(line["gpu"]), COMPUTE.get(line["dtype"])
        if device is None or compute is None or line["op"] != "gemm":
            continue
        yield KernelRow(
            work=product(whole(line["m"]), whole(line["n"]), whole(line["k"]), compute),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="DeepBench " + line["gpu"],
        )


def single_layers(folder: Path) -> Iterator[KernelRow]:
    """Square products of the notebooks that also time whole layers (the layers are not fitted)."""
    need = ("gpu", "env", "op", "dtype", "n", "latency_us")
    for line in lines_of(folder / "mli_layer_batch_sweeps.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        seconds = float(line["latency_us"]) * 1e-6
        if device is None or line["op"] != "matmul_square" or seconds < _LEAST_HOST_FREE_S:
            continue
        size = whole(line["n"])
        compute = COMPUTE[line["dtype"]]
        if compute == "fp32" and device in _TF32_DEVICES:
            compute = "tf32"
        yield KernelRow(
            work=product(size, size, size, compute),
            seconds=seconds,
            device=device,
            source=f"transformers-benchmarks {line['gpu']} {line['env']}",
        )


def kernelbench(folder: Path) -> Iterator[KernelRow]:
    """Products of level 1, fp32, around which some 25 us of a host lie."""
    need = ("gpu", "level", "op", "latency_us")
    for line in lines_of(folder / "kernelbench_torch_eager.csv", need):
        device = CATALOGUE_NAMES.get(line["gpu"])
        if device is None or line["level"] != "level1" or line["op"] not in _KERNELBENCH:
            continue
        batch, m, n, k = _KERNELBENCH[line["op"]]
        yield KernelRow(
            work=product(m, n, k, "fp32", batch=batch),
            seconds=float(line["latency_us"]) * 1e-6,
            device=device,
            source="KernelBench " + line["gpu"],
            has_floor=True,
        )
