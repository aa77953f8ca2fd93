"""The records that bsprof passes around and keeps: frozen, plain, standard library only."""

from bsprof.records.device import DevicePeaks, DeviceSnapshot, DeviceSpec, Environment
from bsprof.records.fit import MemoryFit, PhaseLine, Saturation, TimeFit
from bsprof.records.loader import LoaderPoint
from bsprof.records.plan import (
    PLAN_SCHEMA_VERSION,
    Alternative,
    Objective,
    PieceRun,
    Plan,
    RankPieces,
    Recommendation,
    Target,
)
from bsprof.records.point import (
    Category,
    Failure,
    MemoryPeaks,
    Phase,
    Point,
    PointStatus,
    Regime,
    Timing,
)
from bsprof.records.profile import SCHEMA_VERSION, Note, Origin, Profile, SweepPlan
from bsprof.records.quantity import Quantity, per_second
from bsprof.records.workload import (
    Mode,
    Precision,
    Scalar,
    WorkloadFacts,
    WorkloadKey,
    WorkloadSpec,
)

__all__ = [
    "PLAN_SCHEMA_VERSION",
    "SCHEMA_VERSION",
    "Alternative",
    "Category",
    "DevicePeaks",
    "DeviceSnapshot",
    "DeviceSpec",
    "Environment",
    "Failure",
    "LoaderPoint",
    "MemoryFit",
    "MemoryPeaks",
    "Mode",
    "Note",
    "Objective",
    "Origin",
    "Phase",
    "PhaseLine",
    "PieceRun",
    "Plan",
    "Point",
    "PointStatus",
    "Precision",
    "Profile",
    "Quantity",
    "RankPieces",
    "Recommendation",
    "Regime",
    "Saturation",
    "Scalar",
    "SweepPlan",
    "Target",
    "TimeFit",
    "Timing",
    "WorkloadFacts",
    "WorkloadKey",
    "WorkloadSpec",
    "per_second",
]
