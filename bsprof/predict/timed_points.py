"""Points with times: rates, utilisation and what binds, from a predicted time (pure)."""

from __future__ import annotations

from dataclasses import replace

from bsprof.measure.derive import COMPUTE_TYPE
from bsprof.predict.timing import TimePrediction
from bsprof.records import (
    DevicePeaks,
    DeviceSpec,
    Point,
    PointPrediction,
    Precision,
    Quantity,
    per_second,
)


def catalogue_peaks(device: DeviceSpec, launch_s: float) -> DevicePeaks:
    """The ceilings that MFU is held against: those of the data sheet, as is usual.

    Args:
        launch_s: Of one empty kernel.
    """
    return DevicePeaks(
        flops_per_s=dict(device.flops_per_s),
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        launch_s=launch_s,
        source="catalogue",
        device_key=device.name,
    )


def timed(point: Point, time: TimePrediction, peaks: DevicePeaks, precision: Precision) -> Point:
    """The point with its predicted times.

    Args:
        point: Of the same size, with its memory.
        time: As predicted.
        peaks: From `catalogue_peaks`.
        precision: Whose ceiling MFU is held against.
    """
    ceiling = peaks.flops_per_s.get(COMPUTE_TYPE[precision])
    flops, moved = time.model_flops, time.bytes_moved
    return replace(
        point,
        micro_step_s=time.micro_step_s,
        micro_step_sync_s=time.micro_step_sync_s,
        optimizer_step_s=time.optimizer_step_s,
        flops=Quantity.exact(flops),
        bytes_moved=Quantity.exact(moved),
        kernels=Quantity.exact(time.launches),
        arithmetic_intensity=Quantity.exact(flops / moved) if moved else None,
        samples_per_s=per_second(point.micro_batch_size, time.update_s),
        mfu=_share(flops, time.micro_step_s, ceiling),
        hfu=_share(time.hardware_flops, time.micro_step_s, ceiling),
        regime=time.regime,
        prediction=replace(
            point.prediction or PointPrediction(),
            worlds=time.worlds,
            seconds_by_class={c.value: s for c, s in time.micro_step.by_class_s.items()},
            host_s=time.micro_step.host_s,
            heaviest=time.heaviest,
        ),
    )


def _share(flops: int, seconds: Quantity, ceiling: float | None) -> Quantity | None:
    return per_second(flops / ceiling, seconds) if ceiling else None
