"""Everything that a folder of public kernel measurements holds, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bsprof.calibrate.fit.ceilings import Maximum, published_bandwidths, published_maxima
from bsprof.calibrate.fit.floors import launch_floors
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.sources import attention, convolutions, products, streams
from bsprof.errors import CalibrationError
from bsprof.hardware.catalogue import devices as catalogue
from bsprof.records.calibration import InputFile

_READERS: Sequence[tuple[str, Callable[[Path], Iterator[KernelRow]]]] = (
    ("autoheuristic_mm.csv", products.autoheuristic),
    ("aiconfigurator_gemm.csv", products.aiconfigurator),
    ("vidur_compute_fp16.csv", products.vidur),
    ("neusight_matmul_fp32.csv", products.neusight),
    ("deepbench_train.csv", products.deepbench),
    ("mli_layer_batch_sweeps.csv", products.single_layers),
    ("kernelbench_torch_eager.csv", products.kernelbench),
    ("neusight_conv_fp32.csv", convolutions.neusight),
    ("deepbench_train.csv", convolutions.deepbench),
    ("kernelbench_torch_eager.csv", convolutions.kernelbench),
    ("aiconfigurator_attention.csv", attention.aiconfigurator),
    ("attention_published.csv", attention.published),
    ("neusight_vector_fp32.csv", streams.neusight),
    ("vidur_compute_fp16.csv", streams.vidur),
    ("gpubenches_smallkernels.csv", streams.small_kernels),
    ("liger_ops.csv", streams.liger),
    ("kernelbench_torch_eager.csv", streams.kernelbench),
    ("optimizer_published.csv", streams.optimizers),
)
_FURTHER_FILES = (
    "autoheuristic_padmm_a100.csv",
    "bandwidth_published.csv",
    "gemm_conv_published_peaks.csv",
    "gpubenches_stream.csv",
    "launch_floor.csv",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything that a folder holds for a fit.

    Attributes:
        rows: Kernels.
        both_passes: Attention whose times hold forward and backward; works are the forward ones.
        maxima: Published ceilings; `rows` add their own.
        floors: Launch floors by device.
        files: Provenance.
    """

    rows: tuple[KernelRow, ...]
    both_passes: tuple[KernelRow, ...]
    maxima: tuple[Maximum, ...]
    floors: Mapping[str, float]
    files: tuple[InputFile, ...]

    def without(self, names: Collection[str]) -> Measurements:
        """The same less everything that was measured on these devices."""
        gone = left_out_devices(names)
        return Measurements(
            rows=tuple(row for row in self.rows if row.device not in gone),
            both_passes=tuple(row for row in self.both_passes if row.device not in gone),
            maxima=tuple(m for m in self.maxima if m.device not in gone),
            floors={name: floor for name, floor in self.floors.items() if name not in gone},
            files=self.files,
        )


def read_measurements(folder: Path) -> Measurements:
    """The kernel measurements in a folder.

    Raises:
        CalibrationError: the folder or one of its files is missing or cannot be read.
    """
    if not folder.is_dir():
        raise CalibrationError(
            f"cannot read measurements from {folder}",
            found="no folder of that name",
            next_step="name a folder of kernel measurements",
        )
    rows: list[KernelRow] = []
    counts: dict[str, int] = dict.fromkeys(_FURTHER_FILES, 0)
    for name, read in _READERS:
        found = list(read(folder))
        rows += found
        counts[name] = counts.get(name, 0) + len(found)
    maxima = [*published_maxima(folder), *published_bandwidths(folder)]
    files = tuple(
        InputFile(
            name=name,
            sha256=hashlib.sha256((folder / name).read_bytes()).hexdigest(),
            rows=count,
        )
        for name, count in sorted(counts.items())
    )
    return Measurements(
        rows=tuple(rows),
        both_passes=tuple(attention.both_passes(folder)),
        maxima=tuple(maxima),
        floors=launch_floors(folder),
        files=files,
    )


def left_out_devices(names: Collection[str]) -> frozenset[str]:
    """Catalogue names that names or beginnings of names mean: `h100` is all three of them.

    Raises:
        CalibrationError: a name means no device of the catalogue.
    """
    gone: set[str] = set()
    for name in names:
        wanted = name.strip().lower().replace(" ", "-")
        meant = [
            device.name
            for device in catalogue()
            if device.name == wanted or device.name.startswith(f"{wanted}-")
        ]
        if not meant:
            raise CalibrationError(
                f"cannot leave out {name!r}",
                found="no device of the catalogue has a name that begins so",
                next_step="see `bsprof devices`",
            )
        gone |= set(meant)
    return frozenset(gone)
