"""The records that bsprof passes around and keeps: frozen, plain, standard library only."""

from bsprof.records.device import DevicePeaks, DeviceSnapshot, DeviceSpec, Environment
from bsprof.records.fit import MemoryFit, PhaseLine, Saturation, TimeFit
from bsprof.records.loader import LoaderPoint
from bsprof.records.parts import Category, Phase, Regime, ranked_shares
from bsprof.records.plan import (
    DEFAULT_HEADROOM,
    PLAN_SCHEMA_VERSION,
    Alternative,
    Epoch,
    Objective,
    PieceRun,
    Plan,
    RankPieces,
    Recommendation,
    Target,
)
from bsprof.records.point import (
    Failure,
    MemoryPeaks,
    Point,
    PointStatus,
    Timing,
)
from bsprof.records.prediction import (
    Change,
    HeavyOperator,
    Place,
    PointPrediction,
    Prediction,
    Stage,
    Term,
    Timeline,
    TimeWorlds,
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
    "DEFAULT_HEADROOM",
    "PLAN_SCHEMA_VERSION",
    "SCHEMA_VERSION",
    "Alternative",
    "Category",
    "Change",
    "DevicePeaks",
    "DeviceSnapshot",
    "DeviceSpec",
    "Environment",
    "Epoch",
    "Failure",
    "HeavyOperator",
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
    "Place",
    "Plan",
    "Point",
    "PointPrediction",
    "PointStatus",
    "Precision",
    "Prediction",
    "Profile",
    "Quantity",
    "RankPieces",
    "Recommendation",
    "Regime",
    "Saturation",
    "Scalar",
    "Stage",
    "SweepPlan",
    "Target",
    "Term",
    "TimeFit",
    "TimeWorlds",
    "Timeline",
    "Timing",
    "WorkloadFacts",
    "WorkloadKey",
    "WorkloadSpec",
    "per_second",
    "ranked_shares",
]
