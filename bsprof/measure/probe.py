"""A short probe of this device's ceilings: matmul rate, copy bandwidth, launch time.

Runs in a worker. What it finds is a ceiling that this torch reaches on this device, not a
datasheet figure: the best of many short blocks. Each part stops once it no longer improves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import torch

from bsprof.hardware.peaks import device_key
from bsprof.measure.devices.protocol import Device
from bsprof.records import DevicePeaks

# Seconds per part, at most; about ten parts. Heuristic: a shared machine needs some tries to
# show an undisturbed block, and a sweep should not wait long for its first point.
_PART_S = 0.3
# Every matmul part runs twice, at different moments, for the same reason.
_ROUNDS = 2
# Far above the clock's resolution, and on an accelerator above a synchronisation. Short on the
# CPU: the best of many short blocks finds an undisturbed one where others compute too.
_BLOCK_S = {"cpu": 0.002}
_BLOCK_S_ACCELERATOR = 0.02
_MIN_BLOCKS = 8
_STABLE_SHARE = 0.01  # a gain below this in as many blocks as the minimum ends a part
_SMALLEST_SIDE, _LARGEST_SIDE = 256, 8192
# Up to here fp32 is tried whatever smaller sides took: it is never emulated.
_ALWAYS_SIDE = {torch.float32: 1024}
# Far beyond any cache (the largest last-level caches are about 1 GiB over many sockets, and a
# share of the usable memory bounds it).
_COPY_BYTES = {"cpu": 256 * 2**20}
_COPY_BYTES_ACCELERATOR = 2**30
_USABLE_SHARE = 16
_LAUNCHES = 200
_MAX_QUEUED = 2000

# Of y = x W^T, of its gradient for x, and of its gradient for W.
_LAYOUTS = ("forward", "input_gradient", "weight_gradient")
_COMPUTE_TYPES: tuple[tuple[str, torch.dtype], ...] = (
    ("fp32", torch.float32),
    ("bf16", torch.bfloat16),
    ("fp16", torch.float16),
)


def probe_peaks(device: Device, *, part_s: float = _PART_S) -> DevicePeaks:
    """Measures this device's ceilings.

    Args:
        device: An open device; its caches are released before and after.
        part_s: Seconds for each part at most (one call may run over).

    Returns:
        Peaks with source `probe`. A compute type that the device refuses is left out.
    """
    snapshot = device.snapshot()
    device.release()
    generator = torch.Generator(device="cpu").manual_seed(0)
    with torch.no_grad():
        flops: dict[str, float] = {}
        for _ in range(_ROUNDS):
            for name, rate in _matmul_rates(device, generator, snapshot.usable_bytes, part_s):
                flops[name] = max(rate, flops.get(name, 0.0))
        bandwidth = _copy_rate(device, snapshot.usable_bytes, part_s)
        launch_s = _launch_seconds(device, part_s)
    device.release()
    return DevicePeaks(
        flops_per_s=flops,
        bandwidth_bytes_per_s=bandwidth,
        launch_s=launch_s,
        source="probe",
        device_key=device_key(snapshot, torch.__version__),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _matmul_rates(
    device: Device, generator: torch.Generator, usable_bytes: int, part_s: float
) -> Iterator[tuple[str, float]]:
    """(compute type, FLOP/s) for each type that the device can multiply in."""
    for name, dtype in _COMPUTE_TYPES:
        with _float32_matmul_precision("highest"):
            rate = _matmul_rate(device, dtype, generator, usable_bytes, part_s)
        if rate is not None:
            yield name, rate
    if device.kind == "cuda":
        # On a GPU without TF32 units this equals fp32, which is then the truth.
        with _float32_matmul_precision("high") as changed:
            rate = _matmul_rate(device, torch.float32, generator, usable_bytes, part_s)
        if changed and rate is not None:
            yield "tf32", rate


def _matmul_rate(
    device: Device,
    dtype: torch.dtype,
    generator: torch.Generator,
    usable_bytes: int,
    part_s: float,
) -> float | None:
    """Best FLOP/s over square matmuls of growing side; None if the device refuses the type.

    Uses the fastest of the three layouts that a linear layer runs (emulated types differ by
    twenty times between them). The side doubles while three matrices stay within a sixteenth of
    the usable memory and one call within the part's time.
    """
    try:
        square = _Square(_SMALLEST_SIDE, dtype, device, generator)
        trials = {layout: _trial_seconds(device, square, layout) for layout in _LAYOUTS}
    except (RuntimeError, TypeError) as error:
        # "not implemented for 'Half'", "MPS does not support bfloat16": no such ceiling.
        if is_refused_type(error):
            return None
        raise
    layout = min(trials, key=lambda name: trials[name])
    best = square.flops / trials[layout]
    while True:
        # A quarter for each side: small ones are the most disturbed where others compute too,
        # and must not use up the time.
        deadline = time.perf_counter() + part_s / 4
        seconds = _best_seconds(device, partial(square.multiply, layout), deadline)
        best = max(best, square.flops / seconds)
        side = 2 * square.side
        too_slow = 8 * square.flops / best > part_s and side > _ALWAYS_SIDE.get(dtype, 0)
        too_big = 3 * side**2 * dtype.itemsize > usable_bytes / _USABLE_SHARE
        if too_slow or too_big or side > _LARGEST_SIDE:
            return best
        square = _Square(side, dtype, device, generator)
        square.multiply(layout)


def _trial_seconds(device: Device, square: _Square, layout: str) -> float:
    """Best seconds of three calls, after one to warm up."""
    square.multiply(layout)
    best = float("inf")
    for _ in range(3):
        device.synchronize()
        start = time.perf_counter()
        square.multiply(layout)
        device.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


class _Square:
    """Two random square matrices and room for their product."""

    def __init__(
        self, side: int, dtype: torch.dtype, device: Device, generator: torch.Generator
    ) -> None:
        # Random numbers: zeros would draw less power and run faster than real work.
        left, right = (
            torch.randn(side, side, generator=generator).to(device.torch_device, dtype)
            for _ in range(2)
        )
        self.side = side
        self.flops = 2.0 * side**3
        self._operands = {
            "forward": (left, right.t()),
            "input_gradient": (left, right),
            "weight_gradient": (left.t(), right),
        }
        self._out = torch.empty_like(left)

    def multiply(self, layout: str) -> None:
        left, right = self._operands[layout]
        torch.mm(left, right, out=self._out)


def _copy_rate(device: Device, usable_bytes: int, part_s: float) -> float:
    """Best bytes per second, read plus written, of copying one array onto another."""
    wanted = _COPY_BYTES.get(device.kind, _COPY_BYTES_ACCELERATOR)
    count = min(wanted, usable_bytes // _USABLE_SHARE) // 4
    source = torch.ones(count, dtype=torch.float32, device=device.torch_device)
    target = torch.empty_like(source)
    target.copy_(source)  # touches every page once, outside the clock
    deadline = time.perf_counter() + 2 * part_s
    seconds = _best_seconds(device, lambda: target.copy_(source), deadline)
    return 2.0 * source.nbytes / seconds


def _launch_seconds(device: Device, part_s: float) -> float:
    """Seconds per operator in a queue of the smallest operators there are."""
    cell = torch.zeros(1, device=device.torch_device)

    def launch_many() -> None:
        for _ in range(_LAUNCHES):
            cell.add_(1.0)

    launch_many()
    deadline = time.perf_counter() + part_s
    return _best_seconds(device, launch_many, deadline) / _LAUNCHES


def _best_seconds(device: Device, work: Callable[[], object], deadline: float) -> float:
    """Least seconds per call over blocks of queued calls, each between two synchronisations.

    Ends at the deadline, or once the best no longer improves by 1 % in eight blocks; runs at
    least one block.
    """
    block_s = _BLOCK_S.get(device.kind, _BLOCK_S_ACCELERATOR)
    calls, best, since_gain = 1, float("inf"), 0
    while True:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        device.synchronize()
        end = time.perf_counter()
        seconds = (end - start) / calls
        since_gain = 0 if seconds < best * (1 - _STABLE_SHARE) else since_gain + 1
        best = min(best, seconds)
        if end > deadline or since_gain >= _MIN_BLOCKS:
            return best
        calls = max(1, min(_MAX_QUEUED, round(block_s / max(best, 1e-9))))


def is_refused_type(error: Exception) -> bool:
    """Whether an error says that the device has no kernel for a type of number."""
    text = str(error).lower()
    return any(
        sign in text
        for sign in ("not implemented", "not support", "unsupported", "doesn't support")
    )


@contextmanager
def _float32_matmul_precision(wanted: str) -> Iterator[bool]:
    """Sets the fp32 matmul precision for a block; yields whether this torch let us.

    The old and the new switches exclude each other: where the new ones are in use, the old one
    raises.
    """
    try:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(wanted)
    except RuntimeError:
        yield False
        return
    try:
        yield True
    finally:
        torch.set_float32_matmul_precision(before)
