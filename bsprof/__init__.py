"""bsprof: which micro-batch, and how many accumulation steps, on this device, and why.

    import bsprof

    if __name__ == "__main__":  # a sweep starts worker processes
        profile = bsprof.run_sweep("gpt-tiny")
        answer = bsprof.recommend_plan(profile, target_batch=2048)
        print(answer.plan.micro_batch_size, answer.plan.accumulation_steps)

Every command of the program `bsprof` is one call of a function here, plus printing. Nothing heavy
is loaded before it is used: `import bsprof` loads no torch, numpy, pandas, scipy or matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bsprof.accumulation.accumulate import accumulate
    from bsprof.accumulation.accumulator import Accumulator
    from bsprof.accumulation.plan_file import (
        PlanFile,
        load_plan,
    )
    from bsprof.accumulation.watch import Watch
    from bsprof.diagnose.check import check_equivalence
    from bsprof.diagnose.findings import Equivalence
    from bsprof.diagnose.measure_noise import measure_noise
    from bsprof.diagnose.noise.records import Noise
    from bsprof.errors import (
        BsprofError,
        CalibrationError,
        DeviceUnavailable,
        FitError,
        MeasurementError,
        NoFeasibleBatch,
        OutputError,
        PlanFormatError,
        ProfileFormatError,
        ProfileNotFound,
        ProfileTooNew,
        UnknownDevice,
        UsageError,
        WorkloadError,
    )
    from bsprof.hardware.catalogue import devices as list_devices
    from bsprof.hardware.catalogue import find_device
    from bsprof.measure.doctor import examine
    from bsprof.measure.events import SweepEvent
    from bsprof.measure.sweep import run_sweep
    from bsprof.measure.wire import PhaseLimits
    from bsprof.predict.sweep import (
        predict_sweep,
        predict_sweeps,
    )
    from bsprof.predict.target import Software
    from bsprof.recommend.compare import compare_profiles
    from bsprof.recommend.compare_document import comparison_document
    from bsprof.recommend.compared import Comparison
    from bsprof.recommend.document import recommendation_document
    from bsprof.recommend.plan import recommend_plan
    from bsprof.records import (
        DeviceSpec,
        Mode,
        Note,
        Objective,
        Plan,
        Point,
        PointStatus,
        Precision,
        Profile,
        Quantity,
        Recommendation,
        SweepPlan,
        Target,
        WorkloadSpec,
    )
    from bsprof.report import build_report
    from bsprof.report import render as render_report
    from bsprof.store import listing as list_profiles
    from bsprof.store import load as load_profile
    from bsprof.store import newest as newest_profile
    from bsprof.store import save as save_profile
    from bsprof.workloads.listing import list_models
    from bsprof.workloads.names import builtin_names
    from bsprof.workloads.workload import Workload

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "BsprofError",
            "CalibrationError",
            "DeviceUnavailable",
            "FitError",
            "MeasurementError",
            "NoFeasibleBatch",
            "OutputError",
            "PlanFormatError",
            "ProfileFormatError",
            "ProfileNotFound",
            "ProfileTooNew",
            "UnknownDevice",
            "UsageError",
            "WorkloadError",
        ),
        ("bsprof.errors", ""),
    ),
    **dict.fromkeys(
        (
            "DeviceSpec",
            "Mode",
            "Note",
            "Objective",
            "Plan",
            "Point",
            "PointStatus",
            "Precision",
            "Profile",
            "Quantity",
            "Recommendation",
            "SweepPlan",
            "Target",
            "WorkloadSpec",
        ),
        ("bsprof.records", ""),
    ),
    "Accumulator": ("bsprof.accumulation.accumulator", ""),
    "Comparison": ("bsprof.recommend.compared", ""),
    "PlanFile": ("bsprof.accumulation.plan_file", ""),
    "Watch": ("bsprof.accumulation.watch", ""),
    "accumulate": ("bsprof.accumulation.accumulate", ""),
    "load_plan": ("bsprof.accumulation.plan_file", ""),
    "Equivalence": ("bsprof.diagnose.findings", ""),
    "Noise": ("bsprof.diagnose.noise.records", ""),
    "PhaseLimits": ("bsprof.measure.wire", ""),
    "Software": ("bsprof.predict.target", ""),
    "SweepEvent": ("bsprof.measure.events", ""),
    "Workload": ("bsprof.workloads.workload", ""),
    "build_report": ("bsprof.report", ""),
    "builtin_names": ("bsprof.workloads.names", ""),
    "check_equivalence": ("bsprof.diagnose.check", ""),
    "compare_profiles": ("bsprof.recommend.compare", ""),
    "comparison_document": ("bsprof.recommend.compare_document", ""),
    "examine": ("bsprof.measure.doctor", ""),
    "find_device": ("bsprof.hardware.catalogue", ""),
    "list_devices": ("bsprof.hardware.catalogue", "devices"),
    "list_models": ("bsprof.workloads.listing", ""),
    "list_profiles": ("bsprof.store", "listing"),
    "load_profile": ("bsprof.store", "load"),
    "measure_noise": ("bsprof.diagnose.measure_noise", ""),
    "newest_profile": ("bsprof.store", "newest"),
    "predict_sweep": ("bsprof.predict.sweep", ""),
    "predict_sweeps": ("bsprof.predict.sweep", ""),
    "recommend_plan": ("bsprof.recommend.plan", ""),
    "recommendation_document": ("bsprof.recommend.document", ""),
    "render_report": ("bsprof.report", "render"),
    "run_sweep": ("bsprof.measure.sweep", ""),
    "save_profile": ("bsprof.store", "save"),
}
"""Where each public name lives: its module, and its name there if that is another."""

__all__ = [
    "Accumulator",
    "BsprofError",
    "CalibrationError",
    "Comparison",
    "DeviceSpec",
    "DeviceUnavailable",
    "Equivalence",
    "FitError",
    "MeasurementError",
    "Mode",
    "NoFeasibleBatch",
    "Noise",
    "Note",
    "Objective",
    "OutputError",
    "PhaseLimits",
    "Plan",
    "PlanFile",
    "PlanFormatError",
    "Point",
    "PointStatus",
    "Precision",
    "Profile",
    "ProfileFormatError",
    "ProfileNotFound",
    "ProfileTooNew",
    "Quantity",
    "Recommendation",
    "Software",
    "SweepEvent",
    "SweepPlan",
    "Target",
    "UnknownDevice",
    "UsageError",
    "Watch",
    "Workload",
    "WorkloadError",
    "WorkloadSpec",
    "__version__",
    "accumulate",
    "build_report",
    "builtin_names",
    "check_equivalence",
    "compare_profiles",
    "comparison_document",
    "examine",
    "find_device",
    "list_devices",
    "list_models",
    "list_profiles",
    "load_plan",
    "load_profile",
    "measure_noise",
    "newest_profile",
    "predict_sweep",
    "predict_sweeps",
    "recommend_plan",
    "recommendation_document",
    "render_report",
    "run_sweep",
    "save_profile",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bsprof' has no attribute {name!r}")
    from importlib import import_module

    module, there = _HOMES[name]
    value: object = getattr(import_module(module), there or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
