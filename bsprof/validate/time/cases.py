"""What is compared: a published time as settings to predict under, and the seconds it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bsprof.predict.target import Protocol, Software
from bsprof.records import WorkloadSpec


class TimeQuantity(StrEnum):
    """Which part of training was timed.

    `update` is all micro-steps of an optimizer step and that step, `micro_step` forward and
    backward alone, `forward` the forward pass alone.
    """

    UPDATE = "update"
    MICRO_STEP = "micro_step"
    FORWARD = "forward"


class Calibrates(StrEnum):
    """What the measured time of a row tells about the other rows of its sweep.

    `host` is the host's time per kernel (the row is launch-bound); `point` is all that one
    measured point of a profile corrects: the scale and the constant of a step.
    """

    NOTHING = "nothing"
    HOST = "host"
    POINT = "point"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCase:
    """One row whose time can be predicted.

    Attributes:
        row: Where it stands: file and line.
        source: Whose it is.
        family: Kind of model, for the tables.
        model: As published, with what else tells it from its neighbours.
        spec: What to predict for it; `mode` is `infer` where gradients were off.
        device: Name in the device catalogue.
        micro_batch: Samples of a micro-step, of one GPU.
        seconds: Measured, of one `quantity`.
        quantity: What was timed.
        accumulation_steps: Micro-steps of an update.
        world_size, parallel: As in `Conditions`.
        software: Generation of software whose rules apply.
        protocol: How the source's loop is put together; its last window is what is priced.
        machine: Rows of one machine with one host share it; empty is the source and the device.
        ceilings: FLOP/s of the largest products that this very machine multiplied, by compute type,
            where the source has them: they stand for what is known of other machines.
        set_name: Of the scored sets; empty for one of the other files.
        grouped_apart: Whether models that turn out to have grouped convolutions (more than one
            channel a group) go to the set `<set_name>-grouped`.
        attention_kernel: That the source declares (`flash1`), in place of the one that the rules
            of the software choose; empty takes those.
        sweep: Rows that differ in nothing but the size share it; empty is what they share.
        published_gmacs: Multiplications of a forward pass of one sample, in 10^9, as published for
            the model that was measured (more than one where tables count differently): a row whose
            trace is another network is not scored.
        framework_s: Seconds that the source's framework is known to add to every step, roughly; 0
            where none is known to.
        calibrates: What this row tells about its sweep; one that tells something is not scored.
        training_row: Whether it may fit the constants of the datasheet comparison, and the
            coefficients; a row that may is not scored.
        assumptions: What the source does not state, and was taken to be.
    """

    row: str
    source: str
    family: str
    model: str
    spec: WorkloadSpec
    device: str
    micro_batch: int
    seconds: float
    quantity: TimeQuantity = TimeQuantity.UPDATE
    accumulation_steps: int = 1
    world_size: int = 1
    parallel: str = "none"
    software: Software = field(default_factory=Software)
    protocol: Protocol = field(default_factory=lambda: Protocol(windows=(1, 1)))
    machine: str = ""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    set_name: str = ""
    grouped_apart: bool = False
    attention_kernel: str = ""
    sweep: str = ""
    published_gmacs: tuple[float, ...] = ()
    framework_s: float = 0.0
    calibrates: Calibrates = Calibrates.NOTHING
    training_row: bool = False
    assumptions: tuple[str, ...] = ()
